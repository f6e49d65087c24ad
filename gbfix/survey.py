"""Looks at the files of a project one at a time, and holds only what the next ones need.

A file is looked at after those that import it, so that all that reaches into it is known. What a file
reaches in others is told by name. Trees are let go of once nobody is left who imports them; what was
found out about them goes too. Knows files, modules and regions, nothing of fixes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gbfix.analysis.catching import (
    Callee,
    NamedCall,
    NamedCalls,
    callee,
    catching,
    may_call,
    named_calls,
)
from gbfix.analysis.facts import Facts
from gbfix.analysis.modules import FunctionInfo, Module
from gbfix.analysis.naming import named
from gbfix.analysis.project import Project
from gbfix.analysis.record import Analysis
from gbfix.analysis.regions import Edge, Plan, Regions, may_compile
from gbfix.analysis.trees import forget
from gbfix.findings import Finding
from gbfix.importers import Importers
from gbfix.looking import Looking, parsed
from gbfix.settings import Settings
from gbfix.source.text import SourceFile
from gbfix.suppressions import Suppression

HELD = 7_000_000
"""Characters of source whose trees are held at a time; a tree takes about 30 bytes for each."""
_BETWEEN = HELD // 20
_ANALYSIS = 1000
"""The analysis of a function takes up as much as the tree of so many characters."""


@dataclass(frozen=True)
class ClassNotes:
    """A class as other files need to know it: its methods, and what it derives from."""

    name: str
    above: frozenset[str]
    methods: frozenset[str]


@dataclass(frozen=True)
class Notes:
    """What is known of a file once it was looked at.

    Attributes:
        findings: in source order.
        error: why the file was given up.
        silenced: the comments that silenced a finding of some code.
        reached: its functions that were looked at.
        elsewhere: functions of other files that are reached from here, by module and name.
        self_calls: methods called on `self`, as class and name; other files may override them.
        edges: the calls of its functions.
        storing: its functions that set attributes.
        asked: functions of which it was asked who calls them.
        caught: functions of which it was asked who catches what they raise, and who does in the file.
        named: what its functions call.
        unsure: whether it was asked what is reached in other files.
        classes: its classes that have methods and bases.
        forwards: its functions that are called `forward`.
        consulted: files that were looked into.
        absent: files that would have been looked into if they had been there.
    """

    findings: tuple[Finding, ...] = ()
    error: str | None = None
    silenced: tuple[tuple[Suppression, str], ...] = ()
    reached: frozenset[str] = frozenset()
    elsewhere: frozenset[tuple[str, str]] = frozenset()
    self_calls: frozenset[tuple[str, str]] = frozenset()
    edges: frozenset[Edge] = frozenset()
    storing: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    caught: tuple[tuple[Callee, str | None], ...] = ()
    named: NamedCalls = field(default_factory=dict)
    unsure: bool = False
    classes: tuple[ClassNotes, ...] = ()
    forwards: frozenset[str] = frozenset()
    consulted: frozenset[Path] = frozenset()
    absent: frozenset[Path] = frozenset()


@dataclass(frozen=True)
class Whole:
    """The region of the whole project, once it is known: functions, who calls whom, and by which names.

    `named` has the calls of a name by module.
    """

    reached: frozenset[str]
    callers: dict[str, frozenset[str]] = field(default_factory=dict)
    named: dict[str, list[tuple[str, tuple[NamedCall, ...]]]] = field(default_factory=dict)


class Survey:
    """The files of a project as one process sees them."""

    def __init__(self, files: Sequence[SourceFile], settings: Settings) -> None:
        self.settings = settings
        self.modules = named([file for file in files if "torch" in file.text])
        self.by_path = {module.source.path: module for module in self.modules}
        self.project = Project(self.modules)
        self.facts = Facts(self.project)
        # Made when it is needed, since it holds the functions that it meets.
        self.facts.find_places = lambda: Regions(self.facts, [], settings.region.value).places()
        self.importers = Importers(self.modules)
        self._own = frozenset(self.modules)
        self._looked_at = 0

    def plan(self) -> Plan:
        """What the region of the project starts from."""
        mode = self.settings.region.value
        if mode in ("all", "forward"):
            return Plan(everything=mode == "all", forwards=mode == "forward")
        able = [m for m in self.modules if may_compile(m.source.text)]
        regions = Regions(self.facts, able, mode)
        roots = frozenset(info.qualified for info in regions.compiled())
        return Plan(roots, forwards=mode == "auto" and regions.says_little)

    def look(self, path: Path, plan: Plan, whole: Whole | None = None) -> Notes:
        """Look at a file.

        Args:
            path: the file.
            plan: what its part of the region starts from.
            whole: the region of the project, if that is known by now.
        """
        module = self.by_path[path]
        self.project.clock += 1
        module.used = self.project.clock
        self.project.consulted, self.project.absent = set(), set()
        error = parsed(module)
        notes = Notes(error=error) if error is not None else self._notes(module, plan, whole)
        self.importers.done(module)
        self._let_go(module)
        return notes

    def _notes(self, module: Module, plan: Plan, whole: Whole | None) -> Notes:
        facts, path = self.facts, module.source.path
        regions = Regions(facts, [module], self.settings.region.value)
        others = self._own - {module}
        found = regions.reached_from(plan, others)
        own = {node: info for node, info in found.items() if info.module is module}
        named = named_calls(own.values(), self._names)
        asked = _Asked(module, own, self, regions.edges, named, whole)
        facts.region, facts.calling, facts.caught_by = asked, asked.calling, asked.caught_by
        looking = Looking([module.source], self.settings)
        looking.modules[path] = module
        looking.visit(looking.states, facts, {module: list(own.values())}, first=True)
        (state,) = looking.states
        self.project.consulted.discard(path)
        kept = facts.kept(module).analyses
        return Notes(
            state.findings if state.error is None else (),
            state.error,
            tuple(state.silenced),
            frozenset(info.qualified for info in own.values()),
            frozenset(regions.elsewhere),
            frozenset(regions.self_calls),
            frozenset(regions.edges),
            frozenset(
                info.qualified
                for info in own.values()
                if info.node in kept and kept[info.node].sets_attributes
            ),
            frozenset(asked.called),
            tuple(asked.caught.items()),
            named,
            asked.unsure,
            tuple(self._classes(module)),
            regions.forwards(),
            frozenset(self.project.consulted),
            frozenset(self.project.absent),
        )

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names that functions of the project can be called by."""
        return frozenset().union(*(m.defined | m.classes.keys() for m in self.modules))

    def may_call(self, called: Callee, module: str) -> bool:
        """Whether a module may call a function, as far as its text and class names tell."""
        return may_call(called, self.project.modules[module], self.project)

    def _classes(self, module: Module) -> Iterable[ClassNotes]:
        owners = {i.owner.node: i.owner for i in module.functions() if i.owner is not None}
        for cls in owners.values():
            if cls.node.bases:
                above = frozenset(c.qualified for c in self.project.mro(cls)[1:])
                if above:
                    yield ClassNotes(cls.qualified, above, frozenset(cls.methods))

    def _let_go(self, module: Module) -> None:
        """Let go of trees if there are too many: first of those that hardly anybody will ask for."""
        forget()
        if not self.importers.left(module):
            self.facts.forget_analyses(module)
        self._looked_at += len(module.source.text)
        if self._looked_at < _BETWEEN:
            return
        self._looked_at = 0
        held = [m for m in self.project.modules.values() if m.parsed]
        size = sum(map(self._size, held))
        if size <= HELD:
            return
        pinned = {place.module for place in self.facts.__dict__.get("places", ())}
        for other in sorted(held, key=lambda m: -self._wait(m, module)):
            if size <= HELD * 7 // 8:
                return
            if other not in pinned:
                size -= self._size(other)
                self.facts.forget(other)

    def _wait(self, module: Module, now: Module) -> float:
        """In how many files a tree is likely to be asked for again.

        Those that import it are known; what imports that in turn asks for it much as it did before.
        """
        idle = self.project.clock - module.used
        return min(self.importers.wait(module, now), 2 * idle + 50) if module in self._own else idle

    def _size(self, module: Module) -> int:
        """What a module takes up, in characters of source."""
        return len(module.source.text) + _ANALYSIS * self.facts.analysed(module)


class _Asked:
    """The region as the transforms see it while one file is looked at.

    What they ask of other files cannot be answered before all have been looked at. It is noted then,
    and the file is looked at once more in the end.
    """

    def __init__(
        self,
        module: Module,
        own: dict[ast.AST, FunctionInfo],
        survey: Survey,
        edges: Iterable[Edge],
        named: NamedCalls,
        whole: Whole | None,
    ) -> None:
        self._module = module
        self._own = own
        self._survey = survey
        self._facts = survey.facts
        self._named = named
        self._whole = whole
        self._names = {info.qualified: info for info in own.values()}
        self._callers: dict[str, set[str]] = {}
        for edge in edges:
            self._callers.setdefault(edge.callee, set()).add(edge.caller)
        self.called: set[str] = set()
        self.caught: dict[Callee, str | None] = {}
        self.unsure = False

    def __contains__(self, node: object) -> bool:
        if node in self._own:
            return True
        if node in self._module.function_of:
            return False
        for module in list(self._facts.project.modules.values()):
            info = module.function_of.get(node) if module.parsed else None  # type: ignore[call-overload]
            if info is not None and self._whole is not None:
                return self._is_reached(info)
        self.unsure = True
        return False

    def caught_by(self, info: FunctionInfo) -> str | None:
        """The name of a function of the region that may catch what a function raises."""
        whole, own, survey = self._whole, self._named, self._survey
        function = callee(info)
        if whole is not None:
            return catching(function, lambda called: calls_to(called, whole, survey.may_call))
        found = catching(function, lambda called: own.get(called.called, ()))
        self.caught[function] = found
        return found

    def _is_reached(self, info: FunctionInfo) -> bool:
        assert self._whole is not None
        return info.qualified in self._whole.reached

    def calling(self, info: FunctionInfo) -> Iterable[Analysis]:
        """The analyses of functions of the region that may call a function."""
        called = info.module.function_of.get(info.node, info).qualified
        self.called.add(called)
        callers = set(self._callers.get(called, ()))
        if self._whole is not None:
            callers |= self._whole.callers.get(called, frozenset())
        for name in sorted(callers):
            caller = self._names.get(name) or self._facts.project.function_info(name)
            if caller is not None and (self._whole is not None or caller.module is self._module):
                analysis = self._facts.analysis(caller)
                if analysis is not None:
                    yield analysis


def calls_to(
    called: Callee, whole: Whole, may_call: Callable[[Callee, str], bool]
) -> Iterator[NamedCall]:
    """The calls in a region that may run a function."""
    for module, calls in whole.named.get(called.called, ()):
        if may_call(called, module):
            yield from calls
