"""Sites to fixes to edits, until nothing changes.

Each pass analyses the project, asks the transforms, applies what fits together, and starts again on
the new text, so that one run reaches the fixed point. Knows neither torch nor what a fix looks like.
"""

from __future__ import annotations

import ast
import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gbfix.analysis.call_index import calls
from gbfix.analysis.catching import Callee, may_call, named_calls
from gbfix.analysis.facts import Facts
from gbfix.analysis.naming import named
from gbfix.analysis.observed import Observed
from gbfix.analysis.project import FunctionInfo, Module, Project
from gbfix.analysis.read_files import ReadFiles
from gbfix.analysis.regions import Edge, Plan, Regions
from gbfix.asked import Asked, Whole, callable_names, callers_of, whole_of
from gbfix.findings import FileError, FileResult, RunResult
from gbfix.looking import At, FileState, Looking, Only, Proposal, parsed, position_before
from gbfix.narrowed import narrow
from gbfix.settings import Settings
from gbfix.source.text import SourceFile
from gbfix.suppressions import parse, unused_notices

# A pass makes every fix that does not touch another; what takes longer never ends.
MOST_PASSES = 40
TOO_MANY_PASSES = (
    "internal error, the file is left as it was: its fixes make room for more of "
    f"the same after {MOST_PASSES} passes"
)
NARROWED = (
    "the project uses torch.compile, so only what that reaches was looked at; "
    "--region forward looks at every forward"
)


def run(
    files: Sequence[SourceFile],
    settings: Settings,
    *,
    rewrite: bool = True,
    at: At | None = None,
    on_file: Callable[[Path], None] | None = None,
    observed: Observed | None = None,
    only: Only | None = None,
    read: ReadFiles | None = None,
) -> RunResult:
    """Find the break sites of files and, if `rewrite`, fix them.

    Args:
        files: the project.
        settings: what to look for and how much to trust.
        rewrite: whether to apply fixes; without it they are only offered.
        at: a line, or line and column (from 1), to which the run is limited.
        on_file: called once for each file when its first pass is done.
        observed: what a run of the program has shown; only functions that ran are then looked at.
        only: for each resolved path the first and last lines of sites, as the files are now; the
            run is limited to these.
        read: other files of earlier runs, which need not be parsed again.

    Raises:
        UserError: for selectors that name nothing.
    """
    with without_collecting():
        return _Run(files, settings, rewrite, at, on_file, observed, only, read).result()


def propose(
    files: Sequence[SourceFile],
    settings: Settings,
    *,
    at: At | None = None,
    read: ReadFiles | None = None,
) -> tuple[RunResult, tuple[Proposal, ...]]:
    """Find the break sites of files and say how each could be fixed; nothing is applied.

    Args:
        files: the project.
        settings: what to look for. All fixes are offered, whatever their safety.
        at: a line, or line and column (from 1), to look at; everything if None.
        read: other files of earlier runs, which need not be parsed again.

    Raises:
        UserError: for selectors that name nothing.
    """
    made = _Run(files, settings, False, at, None, read=read)
    made.proposals = []
    with without_collecting():
        return made.result(), tuple(made.proposals)


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """No garbage collection: trees are many small objects that are all in use."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class _Run(Looking):
    """The passes of one run and what they share."""

    def __init__(
        self,
        files: Sequence[SourceFile],
        settings: Settings,
        rewrite: bool,
        at: At | None,
        on_file: Callable[[Path], None] | None,
        observed: Observed | None = None,
        only: Only | None = None,
        read: ReadFiles | None = None,
    ) -> None:
        super().__init__(files, settings, rewrite=rewrite)
        self.at = at
        self.on_file = on_file
        self.observed = replace(observed, before=self._before) if observed is not None else None
        self.only = only
        self.read = read if read is not None else ReadFiles()
        self.originals: dict[Path, Module] = {}
        self.first: tuple[Regions, dict[ast.AST, FunctionInfo]] | None = None
        self.whole: Whole | None = None
        self.notices: list[str] = []
        self.consulted: frozenset[Path] = frozenset()
        self.absent: frozenset[Path] = frozenset()

    def result(self) -> RunResult:
        """Make passes until nothing changes."""
        todo = list(self._parsed())
        self.originals = dict(self.modules)
        self._passes(todo, first=True)
        while todo := [s for s in self.states if self.at is None and self._is_taken_back(s)]:
            self._passes(todo, first=False)
        result = _result(self.states, self.notices)
        return replace(result, consulted=self.consulted, absent=self.absent)

    def _passes(self, todo: list[FileState], *, first: bool) -> None:
        for number in range(MOST_PASSES):
            changed = self._pass(todo, first=first and number == 0)
            if not changed:
                return
            todo = changed
            if self.at is not None:
                self.rewrite = False
        for state in todo:
            state.fail(TOO_MANY_PASSES)

    def _is_taken_back(self, state: FileState) -> bool:
        """Whether a file is looked at again, as it was, because some changes were in vain."""
        if state.error is not None or not state.take_back():
            return False
        self.modules[state.original.path] = self.originals[state.original.path]
        return True

    def _parsed(self) -> Iterator[FileState]:
        """Parse the files that mention torch, each under the name that it has in the project."""
        files = [s.original for s in self.states if "torch" in s.original.text]
        names = {m.source.path: m for m in named(files)}
        for state in self.states:
            module = names.get(state.original.path)
            if module is None:
                continue
            error = parsed(module)
            if error is not None:
                state.fail(error)
                continue
            self.modules[state.original.path] = module
            yield state

    def _pass(self, todo: list[FileState], *, first: bool) -> list[FileState]:
        """One pass over the files of `todo`; returns those that changed."""
        for state in self.states:
            if state.error is not None and state.original.path in self.modules:
                self.modules[state.original.path] = self.originals[state.original.path]
        project = Project(self.modules.values(), self.read)
        facts = Facts(project)
        facts.observed = self.observed or facts.observed
        region = self._region(facts, todo) if first else self._same_region(facts, todo)
        changed = self.visit(todo, facts, region, first=first)
        self.consulted |= project.consulted
        self.absent |= project.absent
        return changed

    def _region(self, facts: Facts, todo: Sequence[FileState]) -> dict[Module, list[FunctionInfo]]:
        """The functions of the region, by module."""
        regions = Regions(facts, self.modules.values(), self.settings.region.value)
        wanted = self._wanted(regions, todo)
        found = regions.reached(wanted)
        if self.observed is not None:
            ran = {n: i for n, i in regions.functions.items() if self.observed.ran(i)}
            regions.edges.update(_edges((i for n, i in ran.items() if n not in found), facts))
            found |= ran
        if (
            self.observed is None
            and regions.narrowed
            and any(
                i.node.name == "forward" and i.node not in found for i in regions.functions.values()
            )
        ):
            self.notices.append(NARROWED)
        facts.region = frozenset(found)
        if wanted is not None:
            narrow(facts, found, regions)
        facts.find_places = regions.places
        self.first = regions, found
        return self._by_module(found)

    def _same_region(
        self, facts: Facts, todo: Sequence[FileState]
    ) -> dict[Module, list[FunctionInfo]]:
        """The functions of changed files that are in the region, which fixes do not change."""
        if self.whole is None:
            assert self.first is not None
            self.whole = _whole(*self.first, list(self.originals.values()))
            self.first = None
        whole, own = self.whole, [self.modules[s.original.path] for s in todo]
        regions = Regions(facts, own, self.settings.region.value)
        others = frozenset(self.modules.values()) - frozenset(own)
        found = {
            node: info
            for node, info in regions.reached_from(Plan(whole.reached), others).items()
            if info.module not in others and whole.is_reached(info)
        }

        def may_call_in(called: Callee, module: str) -> bool:
            return may_call(called, facts.project.modules[module], facts.project)

        asked = Asked(own, found, facts, regions.edges, {}, may_call_in, whole)
        facts.region, facts.calling, facts.caught_by = asked, asked.calling, asked.caught_by
        facts.find_places = Regions(facts, [], self.settings.region.value).places
        return self._by_module(found)

    def _by_module(self, found: Mapping[ast.AST, FunctionInfo]) -> dict[Module, list[FunctionInfo]]:
        functions: dict[Module, list[FunctionInfo]] = {}
        for info in found.values():
            if self.observed is None or self.observed.ran(info):
                functions.setdefault(info.module, []).append(info)
        return functions

    def _wanted(self, regions: Regions, todo: Sequence[FileState]) -> frozenset[ast.AST] | None:
        """The functions around the place that proposals are made for; None if all count."""
        if self.proposals is None or self.at is None or len(todo) != 1:
            return None
        return regions.around(self.modules[todo[0].original.path], self.at[0])

    def _before(self, module: Module, line: int, column: int) -> tuple[int, int]:
        """Where a place of a module was before the run."""
        offset = module.source.offset(line, column)
        state = next((s for s in self.states if s.original.path == module.source.path), None)
        return module.source.position(offset) if state is None else position_before(offset, state)


def _whole(
    regions: Regions, found: Mapping[ast.AST, FunctionInfo], modules: Sequence[Module]
) -> Whole:
    """The region as its files were before any was changed."""
    own: dict[Module, list[FunctionInfo]] = {}
    for info in found.values():
        own.setdefault(info.module, []).append(info)
    names = callable_names(modules)
    named_here = ((m.name, named_calls(own.get(m, ()), names)) for m in modules)
    reached = frozenset(info.qualified for info in found.values())
    return whole_of(reached, callers_of(regions.edges), named_here)


def _edges(functions: Iterable[FunctionInfo], facts: Facts) -> Iterator[Edge]:
    """The calls of functions that were not found by following calls."""
    for info in functions:
        analysis = facts.analysis(info)
        for callee, _ in calls(analysis, facts) if analysis is not None else ():
            yield Edge(callee.qualified, info.qualified, False)


def _result(states: Sequence[FileState], notices: list[str]) -> RunResult:
    files: list[FileResult] = []
    errors: list[FileError] = []
    for state in states:
        if state.error is not None:
            path = state.original.path
            errors.append(FileError(path, f"{path}: {state.error}"))
            continue
        files.append(
            FileResult(state.original.path, state.original, state.current.text, state.findings)
        )
        comments = parse(state.original.text)
        notices += unused_notices(state.original.path, comments, state.silenced)
    return RunResult(tuple(files), tuple(errors), tuple(notices))


__all__ = ["NARROWED", "At", "Only", "Proposal", "propose", "run"]
