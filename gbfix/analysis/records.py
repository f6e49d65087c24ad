"""Records of the project, dataclasses and named tuples, and the functions that are called with them.

What a record's field holds is what its annotation promises. A parameter without annotation holds a
record if every call in the project that reaches the function hands it one of one class, made or
annotated where the call stands. Knows syntax and names, runs no analysis of the callers.
"""

from __future__ import annotations

import ast
from functools import cached_property

from gbfix.analysis.annotations import annotated
from gbfix.analysis.project import ClassInfo, FunctionInfo, Module, Project
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value, replace

_DECORATORS = frozenset({"dataclass", "define", "frozen"})


def is_record(cls: ClassInfo) -> bool:
    """Whether a class is a dataclass or a named tuple."""
    names = [d.func if isinstance(d, ast.Call) else d for d in cls.node.decorator_list]
    names += cls.node.bases
    last = {n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "") for n in names}
    return bool(last & _DECORATORS) or "NamedTuple" in last


def field_value(node: ast.AST, cls: ClassInfo, project: Project) -> Value | None:
    """What a field of a record is promised to hold; None where its definition does not say."""
    if not isinstance(node, ast.AnnAssign) or node not in cls.node.body:
        return None
    value = annotated(node.annotation, cls.module, project)
    if value is None or not isinstance(node.value, ast.Constant) or node.value.value is not None:
        return value
    return replace(value, kinds=value.kinds | Kind.NONE)


class Records:
    """The records that are passed to the functions of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def passed(self, info: FunctionInfo, name: str) -> Value | None:
        """The record that every call hands to a parameter; None where they do not agree."""
        calls = self._calls.get(info.node.name, []) if self._calls else []
        arguments = info.node.args
        names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
        if info.owner is not None:
            names = names[1:]
        found: set[str | None] = set()
        for module, function, call in calls:
            if not self._reaches(call, info, module, len(names)):
                continue
            given = _argument(call, name, names)
            found.add(self._class_of(given, module, function) if given is not None else None)
        reference = found.pop() if len(found) == 1 else None
        return Value(Kind.OBJECT, reference=reference) if reference is not None else None

    @cached_property
    def _calls(self) -> dict[str, list[tuple[Module, FunctionInfo, ast.Call]]]:
        """The calls of the project by the last name of what they call, if it has records at all."""
        modules = self.project.given
        if not any("dataclass" in m.source.text or "NamedTuple" in m.source.text for m in modules):
            return {}
        found: dict[str, list[tuple[Module, FunctionInfo, ast.Call]]] = {}
        for module in modules:
            for function in module.functions():
                for node in walk(function.node):
                    if isinstance(node, ast.Call):
                        name = getattr(node.func, "attr", getattr(node.func, "id", None))
                        if name is not None:
                            found.setdefault(name, []).append((module, function, node))
        return found

    def _reaches(self, call: ast.Call, info: FunctionInfo, module: Module, count: int) -> bool:
        if info.owner is None:
            return module.qualify(call.func) == info.qualified
        return isinstance(call.func, ast.Attribute) and len(call.args) <= count

    def _class_of(self, node: ast.expr, module: Module, function: FunctionInfo) -> str | None:
        """The record that an argument is: made by a call, or a name that holds nothing else."""
        if isinstance(node, ast.Call):
            return self._record(module.qualify(node.func))
        if not isinstance(node, ast.Name):
            return None
        stores = [
            n
            for n in walk(function.node)
            if isinstance(n, ast.Name) and n.id == node.id and not isinstance(n.ctx, ast.Load)
        ]
        arguments = function.node.args
        declared = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameter = next((a for a in declared if a.arg == node.id), None)
        if parameter is not None:
            value = annotated(parameter.annotation, module, self.project)
            return self._record(value.reference) if value is not None and not stores else None
        statement = module.parents.get(stores[0]) if len(stores) == 1 else None
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            if statement.targets == stores:
                return self._record(module.qualify(statement.value.func))
        return None

    def _record(self, qualified: str | None) -> str | None:
        cls = self.project.class_info(qualified)
        return cls.qualified if cls is not None and is_record(cls) else None


def _argument(call: ast.Call, name: str, names: list[str]) -> ast.expr | None:
    if any(isinstance(a, ast.Starred) for a in call.args):
        return None
    at = names.index(name) if name in names else len(call.args)
    if at < len(call.args):
        return call.args[at]
    return next((k.value for k in call.keywords if k.arg == name), None)
