"""Which functions run under `torch.compile`.

The roots are what is decorated with it, passed to it or compiled in place; where a project never
says so, every `nn.Module.forward`; where it has no module either, every function. From the roots,
everything that the project itself calls, passes on, nests or puts around by decorators is reached.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gbfix.analysis.callees import callees, methods
from gbfix.analysis.compile_targets import compiled_by, makes_function
from gbfix.analysis.compile_text import compile_lines, may_compile
from gbfix.analysis.decorators import (
    COMPILE,
    compiled_directly,
    decorator_name,
    disabled,
    traces_callees,
)
from gbfix.analysis.dynamo_settings import CompilePlace, place_of
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.passed_functions import passed_to_modules
from gbfix.analysis.project import FunctionInfo, Module
from gbfix.analysis.search_order import leading_to
from gbfix.analysis.values import Kind
from gbfix.analysis.wrappers import wrappers


class Edge(NamedTuple):
    """A call between functions that are named; `own` if it is one of a method of `self`."""

    callee: str
    caller: str
    own: bool


@dataclass(frozen=True)
class Plan:
    """What a region starts from, as it was found for a whole project that is analysed in parts.

    Attributes:
        roots: qualified names of functions that are compiled, or reached from elsewhere.
        forwards: whether every `forward` of a module counts.
        everything: whether every function counts.
        self_calls: methods called on `self`, as class and name, whose overrides count.
    """

    roots: frozenset[str] = frozenset()
    forwards: bool = False
    everything: bool = False
    self_calls: frozenset[tuple[str, str]] = frozenset()


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _managers(analysis: Analysis) -> Iterator[ast.expr]:
    """What the `with` statements of a function enter."""
    for statement in analysis.before:
        if isinstance(statement, ast.With):
            yield from (item.context_expr for item in statement.items)


class Regions:
    """Finds the functions of a region (`auto`, `compile`, `forward` or `all`)."""

    def __init__(self, facts: Facts, modules: Iterable[Module], mode: str) -> None:
        self.facts = facts
        self.modules = list(modules)
        self.mode = mode
        self.functions: dict[ast.AST, FunctionInfo] = {}
        self._nested: dict[ast.AST, list[FunctionInfo]] = {}
        self._overrides: dict[str, list[FunctionInfo]] = {}
        self._indexed: set[str] = set()
        self._of_module: dict[Module, list[FunctionInfo]] = {}
        self.self_calls: set[tuple[str, str]] = set()
        self.elsewhere: set[tuple[str, str]] = set()
        self.edges: set[Edge] = set()
        self._left_alone: Container[Module] = ()
        self.unresolved = False
        self._names_whole = False
        self.narrowed = False
        for module in self.modules:
            self._index(module)

    def _index(self, module: Module) -> None:
        if module.name in self._indexed:
            return
        self._indexed.add(module.name)
        for info in module.functions():
            self.functions[info.node] = info
            self._of_module.setdefault(module, []).append(info)
            if info.outer is not None:
                self._nested.setdefault(info.outer.node, []).append(info)
            if info.owner is not None:
                self._overrides.setdefault(info.node.name, []).append(info)

    def around(self, module: Module, line: int) -> frozenset[ast.AST]:
        """The functions of a module that a line stands in, decorators included."""
        return frozenset(
            info.node
            for info in self._of_module.get(module, ())
            if min([info.node.lineno, *(d.lineno for d in info.node.decorator_list)])
            <= line
            <= (info.node.end_lineno or line)
        )

    def reached(self, wanted: frozenset[ast.AST] | None = None) -> dict[ast.AST, FunctionInfo]:
        """Every function of the region, by its node.

        If only some functions are wanted, the search ends when all of them are found.
        """
        if self.mode == "all":
            return {n: i for n, i in self.functions.items() if not self._disabled(i)}
        roots = [] if self.mode == "forward" else list(self._compiled())
        self.narrowed = self.mode == "auto" and not self.says_little
        if self.mode == "forward" or (self.mode == "auto" and self.says_little):
            roots += self._forwards()
            for module in self.modules:
                roots += passed_to_modules(module, self.facts.project)
        if not roots and self.mode == "auto":
            return {n: i for n, i in self.functions.items() if not self._disabled(i)}
        return self._closure(roots, wanted)

    @property
    def says_little(self) -> bool:
        """Whether what is compiled leaves open which forwards are, once it was looked for.

        Nothing is, or something unknown, or no more than a method that a module calls itself.
        """
        return self.unresolved or not self._names_whole

    def compiled(self) -> list[FunctionInfo]:
        """The functions that the given modules compile; `says_little` tells if that is not all."""
        return list(self._compiled())

    def reached_from(
        self, plan: Plan, left_alone: Container[Module] = ()
    ) -> dict[ast.AST, FunctionInfo]:
        """Every function that the given modules' part of a plan reaches.

        What is reached in the modules to be left alone is not followed; `elsewhere` tells of it.
        """
        self._left_alone = left_alone
        own = [info for module in self.modules for info in self._of_module.get(module, ())]
        if plan.everything:
            return {i.node: i for i in own if not self._disabled(i)}
        roots = [info for info in own if info.qualified in plan.roots]
        if plan.forwards:
            roots += self._forwards()
            for module in self.modules:
                roots += passed_to_modules(module, self.facts.project)
        for owner, attr in sorted(plan.self_calls):
            roots += self._overrides_of(owner, attr)
        return self._closure(roots)

    def forwards(self) -> frozenset[str]:
        """The qualified names of everything called `forward`."""
        return frozenset(i.qualified for i in self.functions.values() if i.node.name == "forward")

    def _overrides_of(self, owner: str, attr: str) -> Iterator[FunctionInfo]:
        """Overrides of a method of a class that is named."""
        for info in self._overrides.get(attr, ()):
            if info.owner is not None and info.owner.qualified != owner:
                if any(c.qualified == owner for c in self.facts.project.mro(info.owner)):
                    yield info

    def _disabled(self, info: FunctionInfo) -> bool:
        return disabled(info)

    def _forwards(self) -> Iterator[FunctionInfo]:
        for info in list(self.functions.values()):
            if info.node.name == "forward" and info.owner is not None:
                bases = info.owner.bases
                if self.facts.project.is_module_class(info.owner.qualified) or (
                    info.owner.node.bases and not bases
                ):
                    yield info

    def _compiled(self) -> Iterator[FunctionInfo]:
        for module in self.modules:
            if not may_compile(module.source.text):
                continue
            for info in self._of_module.get(module, ()):
                if compiled_directly(info):
                    self._names_whole = self._names_whole or not self._is_piece(info)
                    yield info
            yield from self._compile_calls(module)

    def _is_piece(self, info: FunctionInfo) -> bool:
        """Whether a function is a method of a module that is not called from outside of it."""
        return (
            info.owner is not None
            and info.node.name not in {"forward", "__call__"}
            and self.facts.project.is_module_class(info.owner.qualified)
        )

    def _compile_calls(self, module: Module) -> Iterator[FunctionInfo]:
        for node in compile_lines(module):
            if isinstance(node, ast.Call):
                found = compiled_by(node, module, self.facts)
                self.unresolved = self.unresolved or found is None
                self._names_whole = self._names_whole or bool(found)
                yield from found or ()

    def places(self) -> Iterator[CompilePlace]:
        """Every place of the given modules that compiles, with the functions that run under it."""
        for module in self.facts.project.given:
            if not may_compile(module.source.text):
                continue
            self._index(module)
            for info in self._of_module.get(module, ()):
                for decorator in info.node.decorator_list:
                    if decorator_name(decorator, module) in COMPILE:
                        reaches = frozenset(map(place_of, self._closure([info]).values()))
                        yield CompilePlace(module, info.node, decorator, reaches)
                        break
            for node in compile_lines(module):
                if not isinstance(node, ast.Call):
                    continue
                roots = compiled_by(node, module, self.facts)
                if roots:
                    reaches = frozenset(map(place_of, self._closure(roots).values()))
                    yield CompilePlace(
                        module, node, None, reaches, makes_function(node, module, self.facts)
                    )

    def _closure(
        self, roots: Iterable[FunctionInfo], wanted: frozenset[ast.AST] | None = None
    ) -> dict[ast.AST, FunctionInfo]:
        seen: dict[ast.AST, FunctionInfo] = {}
        passed: set[ast.AST] = set()
        todo = list(roots)
        order = leading_to(wanted, self.functions) if wanted is not None else {}
        while todo:
            if wanted is not None:
                if wanted <= seen.keys():
                    break
                todo.sort(key=lambda info: order.get(info.node, 0))
            info = todo.pop()
            if info.node in seen or info.node in passed:
                continue
            if self._disabled(info):
                passed.add(info.node)
                analysis = self.facts.analysis(info) if traces_callees(info) else None
                todo += self._called(analysis) if analysis is not None else ()
                continue
            if info.module in self._left_alone:
                known = info.module.function_of.get(info.node, info)
                self.elsewhere.add((info.module.name, known.qualified))
                continue
            self._index(info.module)
            seen[info.node] = self.functions.get(info.node, info)
            todo += self._nested.get(info.node, ())
            todo += wrappers(info, self.facts.project)
            analysis = self.facts.analysis(seen[info.node])
            if analysis is not None:
                todo += self._called(analysis)
        return seen

    def _called(self, analysis: Analysis) -> Iterator[FunctionInfo]:
        project, values = self.facts.project, analysis.values
        calls: list[ast.Call] = []
        for node, value in values.items():
            kind = node.__class__
            if kind is ast.Call:
                calls.append(node)  # type: ignore[arg-type]
            if value.reference is None and value.item is None:
                continue
            if kind is ast.Name or kind is ast.Attribute or kind is ast.Subscript:
                if value.kinds & Kind.REFERENCE:
                    if project.class_info(value.reference) is None:
                        yield from callees(value, project)
                        yield from self._overriding(node, analysis)
        for manager in _managers(analysis):
            made = values.get(manager)
            cls = project.class_info(made.reference) if made is not None else None
            if cls is not None and made is not None and made.kinds & Kind.OBJECT:
                yield from methods(cls, ("__enter__", "__exit__"), project)
        for call in calls:
            function = values.get(call.func)
            if function is None or (function.reference is None and function.item is None):
                continue
            # A module that is made inside of a forward is made in eager code as a rule.
            if function.kinds & (Kind.MODULE | Kind.OBJECT) or not project.is_module_class(
                function.reference
            ):
                for info in callees(function, project):
                    if function.reference is not None:
                        own = isinstance(call.func, ast.Attribute) and _is_self(call.func.value)
                        known = info.module.function_of.get(info.node, info)
                        self.edges.add(Edge(known.qualified, analysis.info.qualified, own))
                    yield info

    def _overriding(self, node: ast.AST, analysis: Analysis) -> Iterator[FunctionInfo]:
        """Overrides in subclasses of a method called on `self`."""
        owner = analysis.info.owner
        if owner is None or not isinstance(node, ast.Attribute) or not _is_self(node.value):
            return
        self.self_calls.add((owner.qualified, node.attr))
        for info in self._overrides.get(node.attr, ()):
            if info.owner is not None and info.owner.node is not owner.node:
                if any(c.node is owner.node for c in self.facts.project.mro(info.owner)):
                    yield info
