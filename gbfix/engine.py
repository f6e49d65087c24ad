"""Sites to fixes to edits, until nothing changes.

Each pass analyses the project, asks the transforms, applies what fits together, and starts again on
the new text, so that one run reaches the fixed point. Knows neither torch nor what a fix looks like.
"""

from __future__ import annotations

import ast
import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gbfix.analysis.facts import Facts
from gbfix.analysis.naming import named
from gbfix.analysis.observed import Observed
from gbfix.analysis.project import FunctionInfo, Module, Project
from gbfix.analysis.read_files import ReadFiles
from gbfix.analysis.regions import Regions
from gbfix.findings import FileError, FileResult, RunResult
from gbfix.looking import At, FileState, Looking, Only, Proposal, parsed, position_before
from gbfix.narrowed import narrow
from gbfix.settings import Settings
from gbfix.source.text import SourceFile
from gbfix.suppressions import parse, unused_notices

# A pass makes every fix that does not touch another; what takes longer never ends.
MOST_PASSES = 40
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


def rewrite_part(
    files: Sequence[SourceFile],
    modules: Sequence[Module],
    settings: Settings,
    reached: frozenset[str],
) -> RunResult:
    """Fix some files of a project, until nothing changes in them.

    Args:
        files: those to fix.
        modules: all modules of the project, in order; those of the files are parsed anew.
        settings: what to look for and how much to trust.
        reached: the functions of the whole project that are in the region, by qualified name.
    """
    made = _Run(files, settings, True, None, None)
    made.reached = reached
    made.others = modules
    with without_collecting():
        return made.result()


class _ByName:
    """The functions of a region, for modules that are parsed only when they are looked into."""

    def __init__(
        self, modules: Sequence[Module], is_reached: Callable[[FunctionInfo], bool]
    ) -> None:
        self._modules = list(modules)
        self._is_reached = is_reached
        self._known: dict[object, bool] = {}

    def __contains__(self, node: object) -> bool:
        if node not in self._known:
            # Who has the node has parsed its module.
            for module in [m for m in self._modules if m.parsed]:
                self._known |= {info.node: self._is_reached(info) for info in module.functions()}
            self._modules = [m for m in self._modules if not m.parsed]
        return self._known.get(node, False)


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
        self.others: Sequence[Module] | None = None
        self.reached: frozenset[str] | None = None
        self.notices: list[str] = []
        self.consulted: frozenset[Path] = frozenset()
        self.absent: frozenset[Path] = frozenset()

    def result(self) -> RunResult:
        """Make passes until nothing changes."""
        todo = list(self._parsed())
        for number in range(MOST_PASSES):
            changed = self._pass(todo, first=number == 0)
            if not changed:
                break
            todo = changed
            if self.at is not None:
                self.rewrite = False
        else:
            for state in todo:
                state.fail(
                    "internal error, the file is left as it was: its fixes make room for more of "
                    f"the same after {MOST_PASSES} passes"
                )
        result = _result(self.states, self.notices)
        return replace(result, consulted=self.consulted, absent=self.absent)

    def _parsed(self) -> Iterator[FileState]:
        """Parse the files that mention torch, each under the name that it has in the project."""
        files = [s.original for s in self.states if "torch" in s.original.text]
        names = {m.source.path: m for m in self.others or named(files)}
        for state in self.states:
            like = names.get(state.original.path)
            if like is None:
                continue
            module = replace(like, parsed=None)
            error = parsed(module)
            if error is not None:
                state.fail(error)
                continue
            self.modules[state.original.path] = module
            yield state

    def _pass(self, todo: list[FileState], *, first: bool) -> list[FileState]:
        """One pass over the files of `todo`; returns those that changed."""
        usable = [s for s in self.states if s.error is None and s.original.path in self.modules]
        own = [self.modules[s.original.path] for s in usable]
        if self.others is not None:
            by_path = {module.source.path: module for module in own}
            own = [by_path.get(m.source.path, m) for m in self.others]
        project = Project(own, self.read)
        facts = Facts(project)
        facts.observed = self.observed or facts.observed
        changed = self.visit(todo, facts, self._region(facts, todo), first=first)
        self.consulted |= project.consulted
        self.absent |= project.absent
        return changed

    def _region(self, facts: Facts, todo: Sequence[FileState]) -> dict[Module, list[FunctionInfo]]:
        """The functions of the region, by module. Rewriting does not change what is reached."""
        own = [
            self.modules[s.original.path]
            for s in self.states
            if s.error is None and s.original.path in self.modules
        ]
        regions = Regions(facts, own, self.settings.region.value)
        wanted: frozenset[ast.AST] | None = None
        if self.reached is None:
            wanted = self._wanted(regions, todo)
            found = regions.reached(wanted)
            if self.observed is not None:
                found |= {n: i for n, i in regions.functions.items() if self.observed.ran(i)}
            self.reached = frozenset(i.qualified for i in found.values())
            if (
                self.observed is None
                and regions.narrowed
                and any(
                    i.node.name == "forward" and i.node not in found
                    for i in regions.functions.values()
                )
            ):
                self.notices.append(NARROWED)
        else:
            modules = {self.modules[s.original.path] for s in todo}
            found = {
                n: i
                for n, i in regions.functions.items()
                if i.module in modules and self._is_reached(i)
            }
        facts.region = frozenset(found)
        if wanted is not None:
            narrow(facts, found, regions)
        if self.others is not None:
            facts.region = _ByName(facts.project.given, self._is_reached)
        facts.find_places = regions.places
        functions: dict[Module, list[FunctionInfo]] = {}
        for info in found.values():
            if self.observed is not None and not self.observed.ran(info):
                continue
            functions.setdefault(info.module, []).append(info)
        return functions

    def _wanted(self, regions: Regions, todo: Sequence[FileState]) -> frozenset[ast.AST] | None:
        """The functions around the place that proposals are made for; None if all count."""
        if self.proposals is None or self.at is None or len(todo) != 1:
            return None
        return regions.around(self.modules[todo[0].original.path], self.at[0])

    def _is_reached(self, info: FunctionInfo) -> bool:
        """A function found before, or one that a fix has put into such a function."""
        assert self.reached is not None
        if info.qualified in self.reached:
            return True
        return info.outer is not None and self._is_reached(info.outer)

    def _before(self, module: Module, line: int, column: int) -> tuple[int, int]:
        """Where a place of a module was before the run."""
        offset = module.source.offset(line, column)
        state = next((s for s in self.states if s.original.path == module.source.path), None)
        return module.source.position(offset) if state is None else position_before(offset, state)


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


__all__ = ["NARROWED", "At", "Only", "Proposal", "propose", "rewrite_part", "run"]
