"""Records of the project, dataclasses and named tuples, and the functions that are called with them.

What a record's field holds is what its annotation promises. A parameter without annotation holds a
record if every call in the project that reaches the function hands it one of one class, made or
annotated where the call stands. Knows syntax and names, runs no analysis of the callers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from gbfix.analysis.annotations import annotated
from gbfix.analysis.project import ClassInfo, FunctionInfo, Module, Project
from gbfix.analysis.trees import of_kind
from gbfix.analysis.values import Kind, Value, replace


def field_value(node: ast.AST, cls: ClassInfo, project: Project) -> Value | None:
    """What a field of a record is promised to hold; None where its definition does not say."""
    if not isinstance(node, ast.AnnAssign) or node not in cls.node.body:
        return None
    value = annotated(node.annotation, cls.module, project)
    if value is None or not isinstance(node.value, ast.Constant) or node.value.value is not None:
        return value
    return replace(value, kinds=value.kinds | Kind.NONE)


@dataclass(frozen=True)
class _Handed:
    """What one call hands to a parameter.

    Attributes:
        called: the qualified name of what is called, if it is known.
        attribute: whether an attribute is called.
        positional: how many arguments have no name.
        classes: the records that it may be as seen by each function around the call; None for
            anything else.
    """

    called: str | None
    attribute: bool
    positional: int
    classes: frozenset[str | None]


class Records:
    """The records that are passed to the functions of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._modules: dict[tuple[str, str], list[Module]] = {}
        self._known: dict[tuple[str, str, str, int | None], tuple[_Handed, ...]] = {}

    def passed(self, info: FunctionInfo, name: str) -> Value | None:
        """The record that every call hands to a parameter; None where they do not agree."""
        if not self._exist:
            return None
        arguments = info.node.args
        names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
        if info.owner is not None:
            names = names[1:]
        at = names.index(name) if name in names else None
        agreed: str | None = None
        for handed in self._handed(info, name, at):
            if info.owner is None:
                if handed.called != info.qualified:
                    continue
            elif not handed.attribute or handed.positional > len(names):
                continue
            for made in handed.classes:
                if made is None or made != (agreed or made):
                    return None
                agreed = made
        return Value(Kind.OBJECT, reference=agreed) if agreed is not None else None

    @cached_property
    def _exist(self) -> bool:
        """Whether the project has records at all."""
        texts = (module.source.text for module in self.project.given)
        return any("dataclass" in text or "NamedTuple" in text for text in texts)

    def _handed(self, info: FunctionInfo, name: str, at: int | None) -> Iterator[_Handed]:
        """What calls of whatever has the name of a function hand to a parameter of a name.

        Those of its own module come first: as a rule they say enough, and no other has to be parsed.
        """
        function, is_method = info.node.name, info.owner is not None
        if not is_method or function in info.module.called_attributes:
            yield from self._handed_in(info.module, function, name, at)
        # What is parsed already costs less, and one call that hands on something else is enough.
        for module in sorted(self._calling(info), key=lambda m: m.parsed is None):
            if module is not info.module:
                yield from self._handed_in(module, function, name, at)

    def _handed_in(
        self, module: Module, function: str, name: str, at: int | None
    ) -> Sequence[_Handed]:
        key = (module.name, function, name, at)
        if key not in self._known:
            found: list[_Handed] = []
            for call in module.uses(function).calls:
                given = _argument(call, name, at)
                classes = frozenset(
                    self._class_of(given, module, around) if given is not None else None
                    for around in module.around(call)
                )
                is_attribute = isinstance(call.func, ast.Attribute)
                called = module.qualify(call.func)
                found.append(_Handed(called, is_attribute, len(call.args), classes))
            self._known[key] = tuple(found)
        return self._known[key]

    def _calling(self, info: FunctionInfo) -> Sequence[Module]:
        """The modules that seem to call something of a function's name."""
        name, home = info.node.name, info.module
        if info.owner is not None:
            key = (name, "")
            if key not in self._modules:
                naming = self.project.naming(name)
                self._modules[key] = [m for m in naming if name in m.called_attributes]
            return self._modules[key]
        # Who calls a function of another module names that module in an import.
        key = (name, home.name)
        if key not in self._modules:
            called = re.compile(rf"{name}\s*\(")
            self._modules[key] = [
                m
                for m in self.project.naming(name)
                if home.imported_as in (text := m.source.text) and called.search(text)
            ]
        return self._modules[key]

    def _class_of(self, node: ast.expr, module: Module, function: FunctionInfo) -> str | None:
        """The record that an argument is: made by a call, or a name that holds nothing else."""
        if isinstance(node, ast.Call):
            return self._record(module.qualify(node.func))
        if not isinstance(node, ast.Name):
            return None
        stores = [
            n
            for n in of_kind(function.node, ast.Name)
            if n.id == node.id and not isinstance(n.ctx, ast.Load)
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
        return cls.qualified if cls is not None and cls.is_record else None


def _argument(call: ast.Call, name: str, at: int | None) -> ast.expr | None:
    if any(isinstance(a, ast.Starred) for a in call.args):
        return None
    if at is not None and at < len(call.args):
        return call.args[at]
    return next((k.value for k in call.keywords if k.arg == name), None)
