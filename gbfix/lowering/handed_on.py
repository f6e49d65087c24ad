"""How a value gets from one place of a file to another: by a name, an argument, a key or an attribute.

Answers single steps, by syntax: the one value of a local name, the argument for a parameter, the
function that a call runs. Knows nothing of what is handed on, or why it is followed.
"""

from __future__ import annotations

import ast

from gbfix.analysis.facts import Facts
from gbfix.analysis.project import ClassInfo, FunctionInfo
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind

Path = tuple[str, ...]


def key_of(node: ast.expr | None) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def parameters(info: FunctionInfo) -> list[str]:
    arguments = info.node.args
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
    return names[1:] if info.owner is not None else names


def is_parameter(name: str, info: FunctionInfo) -> bool:
    """Whether a name is a parameter that always holds what was given."""
    only = [a.arg for a in info.node.args.kwonlyargs]
    if name not in [*parameters(info), *only]:
        return False
    return not stores_of(name, info)


def stores_of(name: str, info: FunctionInfo) -> list[ast.Name]:
    return [
        n
        for n in walk(info.node)
        if isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
    ]


def bound(name: str, info: FunctionInfo) -> ast.expr | None:
    """The one value that a local name gets."""
    stores = stores_of(name, info)
    statement = info.module.parents.get(stores[0]) if len(stores) == 1 else None
    if not isinstance(statement, ast.Assign) or statement.targets != stores:
        return None
    return None if name in parameters(info) else statement.value


def stored_under(name: str, key: str, info: FunctionInfo) -> list[ast.Assign]:
    """The statements `name[key] = value` of a function."""
    return [
        n
        for n in walk(info.node)
        if isinstance(n, ast.Assign)
        and len(n.targets) == 1
        and isinstance(target := n.targets[0], ast.Subscript)
        and isinstance(target.value, ast.Name)
        and target.value.id == name
        and key_of(target.slice) == key
    ]


def parameter_for(node: ast.expr, call: ast.Call, callee: FunctionInfo) -> str | None:
    """The parameter that an argument of a call is for."""
    if any(isinstance(a, ast.Starred) for a in call.args):
        return None
    names = parameters(callee)
    if node in call.args:
        at = call.args.index(node)
        return names[at] if at < len(names) else None
    return next((k.arg for k in call.keywords if k.value is node), None)


def callee_of(call: ast.Call, info: FunctionInfo, facts: Facts) -> FunctionInfo | None:
    """The undecorated function of the same file that a call runs; of a plain class its constructor."""
    function, project = call.func, facts.project
    found: FunctionInfo | None = None
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        if function.value.id == "self" and info.owner is not None:
            found = project.method(info.owner, function.attr)
    if found is None:
        qualified = info.module.qualify(function)
        cls = project.class_info(qualified)
        if cls is not None and not project.is_module_class(cls.qualified):
            found = project.method(cls, "__init__")
        elif qualified is not None:
            found = project.function_info(qualified)
    if found is None or found.module is not info.module or found.node.decorator_list:
        return None
    return found


def plain_class(node: ast.expr, info: FunctionInfo, facts: Facts) -> ClassInfo | None:
    """The class of the file that an object is of, if it is no layer."""
    analysis = facts.analysis(info)
    value = analysis.values.get(node) if analysis is not None else None
    if value is None or value.kinds != Kind.OBJECT:
        return None
    cls = facts.project.class_info(value.reference)
    return cls if cls is not None and cls.module is info.module else None
