"""Looks at the files of a project one at a time, and holds only what the next ones need.

A file is looked at after those that import it, so that all that reaches into it is known. What a file
reaches in others is told by name. Trees are let go of once nobody is left who imports them; what was
found out about them goes too. Knows files, modules and regions, nothing of fixes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gbfix.analysis.catching import Callee, NamedCalls, may_call, named_calls
from gbfix.analysis.compile_text import may_compile
from gbfix.analysis.facts import Facts
from gbfix.analysis.modules import Module
from gbfix.analysis.project import Project
from gbfix.analysis.regions import Edge, Plan, Regions
from gbfix.analysis.trees import forget
from gbfix.asked import Asked, Whole, callable_names
from gbfix.findings import Finding
from gbfix.importers import Importers
from gbfix.looking import FileState, Looking, parsed
from gbfix.settings import Settings
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
        state: the file as fixes have left it, if this look has made any.
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
    state: FileState | None = None


class Survey:
    """The files of a project as one process sees them; perhaps only some are to be looked at.

    Attributes:
        consulted: files that were looked into other than for a file, as for the plan.
        absent: files that would have been if they had been there.
    """

    def __init__(
        self,
        modules: Sequence[Module],
        settings: Settings,
        *,
        rewrite: bool = False,
        only: Collection[Path] | None = None,
    ) -> None:
        self.settings = settings
        self.rewrite = rewrite
        self.modules = modules
        self.by_path = {module.source.path: module for module in modules}
        self.project = Project(self.modules)
        self.project.clock = max((module.used for module in modules), default=0)
        self.facts = Facts(self.project)
        # Made when it is needed, since it holds the functions that it meets.
        self.facts.find_places = lambda: Regions(self.facts, [], settings.region.value).places()
        among = modules if only is None else [m for m in modules if m.source.path in only]
        self.importers = Importers(modules, among)
        self._own = frozenset(self.modules)
        self._looked_at = 0
        self.consulted: set[Path] = set()
        self.absent: set[Path] = set()

    def plan(self) -> Plan:
        """What the region of the project starts from."""
        mode = self.settings.region.value
        if mode in ("all", "forward"):
            return Plan(everything=mode == "all", forwards=mode == "forward")
        able = [m for m in self.modules if may_compile(m.source.text)]
        regions = Regions(self.facts, able, mode)
        roots = frozenset(info.qualified for info in regions.compiled())
        return Plan(roots, forwards=mode == "auto" and regions.says_little)

    def prepare(self) -> None:
        """Find out what several processes would each find out for themselves, before they part."""
        _ = self.project.derived

    def look(
        self, path: Path, plan: Plan, whole: Whole | None = None, state: FileState | None = None
    ) -> Notes:
        """Look at a file, and make the fixes that fit together if this survey rewrites.

        Args:
            path: the file.
            plan: what its part of the region starts from.
            whole: the region of the project, if that is known by now.
            state: what earlier looks have made of the file, if they have changed it.
        """
        module = self.by_path[path]
        self.project.clock += 1
        module.used = self.project.clock
        self.set_apart()
        error = parsed(module)
        notes = Notes(error=error) if error is not None else self._notes(module, plan, whole, state)
        self.project.consulted, self.project.absent = set(), set()
        self.importers.done(module)
        self._let_go(module)
        return notes

    def set_apart(self) -> None:
        """Keep what was consulted since the last look; who asks for it again is not told anew."""
        self.consulted |= self.project.consulted
        self.absent |= self.project.absent
        self.project.consulted, self.project.absent = set(), set()

    def _notes(
        self, module: Module, plan: Plan, whole: Whole | None, before: FileState | None
    ) -> Notes:
        facts, path = self.facts, module.source.path
        regions = Regions(facts, [module], self.settings.region.value)
        others = self._own - {module}
        found = regions.reached_from(plan, others)
        own = {node: info for node, info in found.items() if info.module is module}
        if before is not None and whole is not None:  # fixes do not change what is reached
            own = {node: info for node, info in own.items() if whole.is_reached(info)}
        named = named_calls(own.values(), self._names) if whole is None else {}
        asked = Asked([module], own, facts, regions.edges, named, self.may_call, whole)
        facts.region, facts.calling, facts.caught_by = asked, asked.calling, asked.caught_by
        looking = Looking([module.source], self.settings, rewrite=self.rewrite)
        looking.modules[path] = module
        if before is not None:
            looking.states = [before]
        (state,) = looking.states
        functions = {module: list(own.values())}
        changed = looking.visit(looking.states, facts, functions, first=before is None)
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
            state if changed else None,
        )

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names that functions of the project can be called by."""
        return callable_names(self.modules)

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
