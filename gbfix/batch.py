"""Checks and fixes many files: over processes, with what is known kept.

Files are looked at one at a time. Each says which functions of others it reaches; those are looked at
again until nothing new is reached, so that the result depends neither on the order nor on the number
of processes. Fixing goes on from there in passes, each over the files that the one before it changed,
and each sees all files as that has left them. Knows the survey and the engine, nothing of fixes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from gbfix import engine
from gbfix.analysis.modules import Module
from gbfix.analysis.naming import named
from gbfix.analysis.regions import Plan
from gbfix.asked import Whole
from gbfix.cache import Cache
from gbfix.engine import MOST_PASSES, NARROWED, TOO_MANY_PASSES, without_collecting
from gbfix.findings import FileError, FileResult, RunResult
from gbfix.looking import FileState
from gbfix.reach import Reach, Task
from gbfix.settings import Settings
from gbfix.source.text import SourceFile
from gbfix.suppressions import parse, unused_notices
from gbfix.survey import Notes, Survey

WHOLE = 60_000_000
"""Characters of source up to which a project can be fixed again for a single file of it."""
PIECE = 400_000
"""Characters of source that a process is given at a time."""

Progress = Callable[[Path], None]


@dataclass(frozen=True)
class _World:
    """What every process knows: the project, and in later passes its region and the changed files."""

    survey: Survey
    whole: Whole | None = None
    states: Mapping[Path, FileState] = field(default_factory=dict)

    def look(self, path: Path, task: Task) -> Notes:
        """Look at a file."""
        whole = task.whole or self.whole
        return self.survey.look(path, task.plan, whole, self.states.get(path))


def check(
    files: Sequence[SourceFile],
    settings: Settings,
    *,
    jobs: int = 1,
    cache: Cache | None = None,
    on_file: Progress | None = None,
) -> RunResult:
    """Find the break sites of files, with the fixes on offer.

    Args:
        files: the project.
        settings: what to look for.
        jobs: how many processes may work; the result does not depend on it.
        cache: what earlier runs found.
        on_file: called once for each file when it is done.

    Raises:
        UserError: for selectors that name nothing.
    """
    known = cache.whole(files, settings) if cache is not None else None
    if known is not None:
        return known
    with without_collecting():
        result = _Batch(files, settings, jobs, on_file).checked()
    if cache is not None:
        cache.keep_whole(files, settings, result)
    return result


def rewrite(
    files: Sequence[SourceFile],
    settings: Settings,
    *,
    jobs: int = 1,
    cache: Cache | None = None,
    on_file: Progress | None = None,
) -> RunResult:
    """Fix files in memory.

    Args:
        files: the project.
        settings: what to look for and how much to trust.
        jobs: how many processes may work; the result does not depend on it.
        cache: what earlier runs made of the project.
        on_file: called once for each file when it has been looked at.

    Raises:
        UserError: for selectors that name nothing.
    """
    known = cache.whole(files, settings, rewritten=True) if cache is not None else None
    if known is not None:
        return known
    if _size(files) < 2 * PIECE:  # parts cost more than they save
        result = engine.run(files, settings, on_file=on_file)
    else:
        with without_collecting():
            result = _Batch(files, settings, jobs, on_file, rewrite=True).rewritten()
    if cache is not None:
        cache.keep_whole(files, settings, result, rewritten=True)
    return result


def in_one_piece(files: Sequence[SourceFile]) -> bool:
    """Whether a project is small enough to be fixed again for a single file of it."""
    return _size(files) <= WHOLE


def _size(files: Iterable[SourceFile]) -> int:
    return sum(len(file.text) for file in files if "torch" in file.text)


class _Batch:
    """The files of one run, and the processes that look at them."""

    def __init__(
        self,
        files: Sequence[SourceFile],
        settings: Settings,
        jobs: int,
        on_file: Progress | None,
        *,
        rewrite: bool = False,
    ) -> None:
        self.files = files
        self.settings = settings
        self.jobs = jobs
        self.on_file = on_file
        modules = named([file for file in files if "torch" in file.text])
        survey = Survey(modules, settings, rewrite=rewrite)
        self.world = _World(survey)
        self.sizes = {m.source.path: len(m.source.text) for m in modules}
        self.plan = survey.plan()
        self.reach = Reach(modules, self.plan, survey.may_call)
        self.whole = Whole(frozenset())
        self.states: dict[Path, FileState] = {}
        self.notices: list[str] = []

    def checked(self) -> RunResult:
        """Look at all files until nothing new is reached."""
        self._look()
        return self._joined()

    def rewritten(self) -> RunResult:
        """Look at all files, and go on with those that were changed until nothing changes."""
        self._look()
        modules = {module.source.path: module for module in self.world.survey.modules}
        originals = dict(modules)
        todo = [path for path in modules if self.reach.notes[path].state is not None]
        for number in range(MOST_PASSES):
            for path in todo:
                state = self.reach.notes[path].state
                assert state is not None
                self.states[path] = state
                modules[path] = replace(originals[path], source=state.current, parsed=None)
            if not todo or number == MOST_PASSES - 1:
                break
            for path in self._pass(todo, list(modules.values())):
                modules[path] = originals[path]
            todo = [path for path in todo if self.reach.notes[path].state is not None]
        for path in todo:
            self.reach.replace(path, Notes(error=TOO_MANY_PASSES))
        return self._joined()

    def _pass(self, todo: Sequence[Path], modules: Sequence[Module]) -> list[Path]:
        """Look once more at files that were changed; returns those that had to be given up."""
        states = {path: self.states[path] for path in todo}
        survey = Survey(modules, self.settings, rewrite=True, only=states.keys())
        self.world = _World(survey, self.whole, states)
        order = [module.source.path for module in survey.importers.order]
        with self._executor(order) as executor:
            for path, notes in self._looked(executor, order, self._next):
                self.reach.replace(path, notes)
        self._set_apart()
        return [path for path in todo if self.reach.notes[path].error is not None]

    def _next(self, path: Path) -> Task:
        return Task(Plan(self.reach.notes[path].reached))

    def _look(self) -> None:
        order = [module.source.path for module in self.world.survey.importers.order]
        with self._executor(order) as executor:
            self._rounds(executor, order, self.on_file)
            if self.settings.region.value == "auto" and not self.reach.anything:
                # A project without modules, and without anything compiled.
                survey = self.world.survey
                everything = replace(self.plan, everything=True)
                before = self.reach
                self.reach = Reach(survey.modules, everything, survey.may_call)
                self.reach.consulted, self.reach.absent = before.consulted, before.absent
                self._rounds(executor, order, None)
            if self.plan.roots and not self.plan.forwards and self.settings.region.value == "auto":
                if any(notes.forwards - notes.reached for notes in self.reach.notes.values()):
                    self.notices.append(NARROWED)
            self.whole = self.reach.whole()
            unsure = [path for path in order if self.reach.is_unsure(path, self.whole)]
            for path, notes in self._looked(
                executor, unsure, lambda p: self.reach.task(p, self.whole)
            ):
                self.reach.replace(path, notes)
        self._set_apart()

    def _set_apart(self) -> None:
        survey = self.world.survey
        survey.set_apart()
        self.reach.consulted |= survey.consulted
        self.reach.absent |= survey.absent

    def _rounds(
        self, executor: Executor | None, order: Sequence[Path], on_file: Progress | None
    ) -> None:
        todo: Sequence[Path] = order
        while todo:
            for path, notes in self._looked(executor, todo, self.reach.task):
                self.reach.add(path, notes)
                if on_file is not None:
                    on_file(path)
            todo, on_file = self.reach.again(order), None

    def _looked(
        self, executor: Executor | None, paths: Sequence[Path], task: Callable[[Path], Task]
    ) -> Iterator[tuple[Path, Notes]]:
        """Look at files; what each starts from is asked for when its turn comes."""
        if executor is None:
            for path in paths:
                yield path, self.world.look(path, task(path))
            return
        pieces = self._pieces(paths)
        running: set[Future[list[tuple[Path, Notes]]]] = set()
        while True:
            while len(running) <= self.jobs and (piece := next(pieces, None)):
                running.add(executor.submit(_look, [(path, task(path)) for path in piece]))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield from future.result()

    def _pieces(self, paths: Sequence[Path]) -> Iterator[list[Path]]:
        # A few files that are looked at once more are work for all processes as well.
        most = min(PIECE, sum(self.sizes[path] for path in paths) // (2 * self.jobs))
        piece: list[Path] = []
        size = 0
        for path in paths:
            piece.append(path)
            size += self.sizes[path]
            if size >= most:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece

    @contextmanager
    def _executor(self, paths: Sequence[Path]) -> Iterator[Executor | None]:
        """Processes for some files, if these are worth it."""
        jobs = min(self.jobs, max(1, sum(self.sizes[path] for path in paths) // PIECE))
        if jobs < 2:
            yield None
            return
        # Where processes can be forked, the source need not be sent to them.
        global _WORLD
        _WORLD = world = self.world
        world.survey.prepare()
        method = "fork" if os.name == "posix" and os.uname().sysname == "Linux" else "spawn"
        prepare: Callable[[], None] | None = None
        if method == "spawn":
            modules = [replace(module, parsed=None) for module in world.survey.modules]
            prepare = partial(
                _prepare, modules, self.settings, world.survey.rewrite, world.whole, world.states
            )
        with ProcessPoolExecutor(jobs, get_context(method), initializer=prepare) as executor:
            yield executor

    def _joined(self) -> RunResult:
        results: list[FileResult] = []
        errors: list[FileError] = []
        notices = list(self.notices)
        reach = self.reach
        for file in self.files:
            notes = reach.notes.get(file.path, Notes())
            if notes.error is not None:
                errors.append(FileError(file.path, f"{file.path}: {notes.error}"))
                continue
            state = self.states.get(file.path)
            text = state.current.text if state is not None else file.text
            results.append(FileResult(file.path, file, text, notes.findings))
            notices += unused_notices(file.path, parse(file.text), notes.silenced)
        consulted, absent = frozenset(reach.consulted), frozenset(reach.absent)
        return RunResult(tuple(results), tuple(errors), tuple(notices), consulted, absent)


_WORLD: _World | None = None


def _prepare(
    modules: Sequence[Module],
    settings: Settings,
    rewrite: bool,
    whole: Whole | None,
    states: Mapping[Path, FileState],
) -> None:
    global _WORLD
    survey = Survey(modules, settings, rewrite=rewrite, only=states.keys() if states else None)
    _WORLD = _World(survey, whole, states)


def _look(tasks: Sequence[tuple[Path, Task]]) -> list[tuple[Path, Notes]]:
    assert _WORLD is not None
    with without_collecting():
        return [(path, _WORLD.look(path, task)) for path, task in tasks]


__all__ = ["check", "in_one_piece", "rewrite"]
