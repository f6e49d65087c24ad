"""The parameters of a function: what is said of them, and which argument of a call is for which.

Knows syntax only; what is given for a parameter is found out in `callers`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.modules import Function, FunctionInfo, last_name
from gbfix.analysis.trees import kept, walk


def declared(function: Function) -> dict[str, tuple[ast.arg, ast.expr | None]]:
    """The parameters of a function by name, with their defaults."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = len(positional) - len(arguments.defaults)
    found: dict[str, tuple[ast.arg, ast.expr | None]] = {
        a.arg: (a, arguments.defaults[i - missing] if i >= missing else None)
        for i, a in enumerate(positional)
    }
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found[argument.arg] = (argument, default)
    return found


def _position(info: FunctionInfo, name: str) -> int | None:
    """The place of a parameter among the positional arguments of a call."""
    arguments = info.node.args
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
    if name not in names:
        return None
    static = any(last_name(d) == "staticmethod" for d in info.node.decorator_list)
    return names.index(name) - (1 if info.owner is not None and not static else 0)


def argument_for(call: ast.Call, name: str, info: FunctionInfo) -> ast.expr | None:
    """The argument of a call for a parameter of the function that it runs."""
    if any(isinstance(a, ast.Starred) for a in call.args):
        return None
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    position = _position(info, name)
    if position is not None and 0 <= position < len(call.args):
        return call.args[position]
    return None


def parameter_for(call: ast.Call, argument: ast.expr, info: FunctionInfo) -> str | None:
    """The parameter that an argument of a call is for, by its place or its keyword."""
    names = declared(info.node)
    return next((n for n in names if argument_for(call, n, info) is argument), None)


def is_bare_parameter(name: str, caller: FunctionInfo) -> bool:
    """Whether a name is a parameter of which nothing is said, handed on as it came."""
    argument, default = declared(caller.node).get(name, (None, None))
    is_plain = argument is not None and argument.annotation is None and default is None
    receiver = caller.owner is not None and next(iter(declared(caller.node)), None) == name
    is_config = caller.node.name == "__init__"
    return is_plain and not receiver and not is_config and not binding_statements(caller.node, name)


def tests_itself(function: Function, name: str) -> bool:
    """Whether a function asks for the truth of a parameter itself."""
    for node in walk(function):
        if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)):
            test = node.test
            while isinstance(test, ast.UnaryOp):
                test = test.operand
            parts = test.values if isinstance(test, ast.BoolOp) else [test]
            if any(isinstance(part, ast.Name) and part.id == name for part in parts):
                return True
    return False


def binding_statements(function: Function, name: str) -> Sequence[ast.stmt | ast.comprehension]:
    """The statements of a function that bind a name; a comprehension is one of them too."""
    return _all_bindings(function).get(name, ())


_BINDING = frozenset(
    {ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.comprehension, ast.With}
)


@kept
def _all_bindings(function: ast.AST) -> dict[str, list[ast.stmt | ast.comprehension]]:
    found: dict[str, list[ast.stmt | ast.comprehension]] = {}
    for node in walk(function):
        targets: Sequence[ast.AST | None]
        if node.__class__ not in _BINDING:
            continue
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.For, ast.comprehension)):
            targets = [node.target]
        elif isinstance(node, ast.With):
            targets = [item.optional_vars for item in node.items]
        else:
            continue
        for target in targets:
            bound = walk(target) if target is not None else ()
            stored = (
                n.id for n in bound if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            )
            for name in dict.fromkeys(stored):
                found.setdefault(name, []).append(node)
    return found
