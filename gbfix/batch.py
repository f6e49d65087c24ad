"""Checks and fixes many files: over processes, with what is known kept.

Files are looked at one at a time. Each says which functions of others it reaches; those are looked at
again until nothing new is reached, so that the result depends neither on the order nor on the number
of processes. Knows the survey and the engine, nothing of fixes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from gbfix import engine
from gbfix.cache import Cache
from gbfix.engine import NARROWED, rewrite_part, without_collecting
from gbfix.findings import FileError, FileResult, RunResult
from gbfix.reach import Reach, Task
from gbfix.settings import Settings
from gbfix.source.text import SourceFile
from gbfix.suppressions import parse, unused_notices
from gbfix.survey import Notes, Survey

WHOLE = 60_000_000
"""Characters of source up to which a project is fixed in one piece, in memory."""
PIECE = 400_000
"""Characters of source that a process is given at a time."""

Progress = Callable[[Path], None]


@dataclass(frozen=True)
class _Fixing:
    """Files to fix, by index, and the functions of the project's region."""

    files: tuple[int, ...]
    reached: frozenset[str]


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
        cache: what earlier runs made of a project that is fixed in one piece.
        on_file: called once for each file when it has been looked at.

    Raises:
        UserError: for selectors that name nothing.
    """
    if in_one_piece(files):
        known = cache.whole(files, settings, rewritten=True) if cache is not None else None
        if known is None:
            known = engine.run(files, settings, on_file=on_file)
            if cache is not None:
                cache.keep_whole(files, settings, known, rewritten=True)
        return known
    with without_collecting():
        return _Batch(files, settings, jobs, on_file).rewritten()


def in_one_piece(files: Sequence[SourceFile]) -> bool:
    """Whether a project is small enough to be fixed in memory as a whole."""
    return sum(len(file.text) for file in files if "torch" in file.text) <= WHOLE


class _Batch:
    """The files of one run, and the processes that look at them."""

    def __init__(
        self,
        files: Sequence[SourceFile],
        settings: Settings,
        jobs: int,
        on_file: Progress | None,
    ) -> None:
        self.files = files
        self.settings = settings
        self.on_file = on_file
        self.survey = Survey(files, settings)
        self.sizes = {m.source.path: len(m.source.text) for m in self.survey.modules}
        self.jobs = min(jobs, max(1, sum(self.sizes.values()) // PIECE))
        self.plan = self.survey.plan()
        self.reach = Reach(self.survey.modules, self.plan, self.survey.may_call)

    def checked(self) -> RunResult:
        """Look at all files until nothing new is reached."""
        with self._executor() as executor:
            self._look(executor)
        return self._joined()

    def rewritten(self) -> RunResult:
        """Look at all files, then fix those in which there is something to fix."""
        with self._executor() as executor:
            self._look(executor)
            found = self._joined()
            fixable = sorted(self._fixable(found))
            size = max(1, len(fixable) // (8 * self.jobs))
            todo = [
                _Fixing(tuple(fixable[i : i + size]), self.reach.whole().reached)
                for i in range(0, len(fixable), size)
            ]
            results = map(self._fix, todo) if executor is None else executor.map(_fix, todo)
            return _replaced(found, results)

    def _look(self, executor: Executor | None) -> None:
        order = [module.source.path for module in self.survey.importers.order]
        self._rounds(executor, order, self.on_file)
        if self.settings.region.value == "auto" and not self.reach.anything:
            # A project without modules, and without anything compiled.
            self.reach = Reach(
                self.survey.modules, replace(self.plan, everything=True), self.survey.may_call
            )
            self._rounds(executor, order, None)
        whole = self.reach.whole()
        unsure = [path for path in order if self.reach.is_unsure(path, whole)]
        for path, notes in self._looked(executor, unsure, lambda p: self.reach.task(p, whole)):
            self.reach.replace(path, notes)

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
                given = task(path)
                yield path, self.survey.look(path, given.plan, given.whole)
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

    def _fixable(self, found: RunResult) -> set[int]:
        """The files, by index, with a fix that the settings allow."""
        wanted = {
            file.path
            for file in found.files
            for finding in file.findings
            if any(offer.safety >= self.settings.safety for offer in finding.offers)
        }
        return {i for i, file in enumerate(self.files) if file.path in wanted}

    def _fix(self, job: _Fixing) -> RunResult:
        return _fixed(self.survey, self.files, self.settings, job)

    @contextmanager
    def _executor(self) -> Iterator[Executor | None]:
        if self.jobs < 2:
            yield None
            return
        # Where processes can be forked, the source need not be sent to them.
        global _WORLD
        _WORLD = self.survey, self.files, self.settings
        method = "fork" if os.name == "posix" and os.uname().sysname == "Linux" else "spawn"
        given = () if method == "fork" else (tuple(self.files), self.settings)
        with ProcessPoolExecutor(
            self.jobs, get_context(method), initializer=_prepare, initargs=given
        ) as executor:
            yield executor

    def _joined(self) -> RunResult:
        results: list[FileResult] = []
        errors: list[FileError] = []
        notices: list[str] = []
        reach = self.reach
        if self.plan.roots and not self.plan.forwards and self.settings.region.value == "auto":
            if any(notes.forwards - notes.reached for notes in reach.notes.values()):
                notices.append(NARROWED)
        for file in self.files:
            notes = reach.notes.get(file.path, Notes())
            if notes.error is not None:
                errors.append(FileError(file.path, f"{file.path}: {notes.error}"))
                continue
            results.append(FileResult(file.path, file, file.text, notes.findings))
            notices += unused_notices(file.path, parse(file.text), notes.silenced)
        consulted = frozenset().union(*(notes.consulted for notes in reach.notes.values()))
        absent = frozenset().union(*(notes.absent for notes in reach.notes.values()))
        return RunResult(tuple(results), tuple(errors), tuple(notices), consulted, absent)


def _replaced(found: RunResult, results: Iterable[RunResult]) -> RunResult:
    """A check's result with those files replaced that were looked at again to be fixed."""
    made = list(results)
    files = {file.path: file for result in made for file in result.files}
    errors = {error.path: error for result in made for error in result.errors}
    return replace(
        found,
        files=tuple(files.get(f.path, f) for f in found.files if f.path not in errors),
        errors=tuple(sorted((*found.errors, *errors.values()), key=lambda e: e.path)),
    )


def _fixed(
    survey: Survey, files: Sequence[SourceFile], settings: Settings, job: _Fixing
) -> RunResult:
    own = [files[i] for i in job.files]
    result = rewrite_part(own, survey.modules, settings, job.reached)
    for module in survey.modules:
        module.forget()
    return result


_WORLD: tuple[Survey, Sequence[SourceFile], Settings] | None = None


def _prepare(files: tuple[SourceFile, ...] | None = None, settings: Settings | None = None) -> None:
    global _WORLD
    if files is not None and settings is not None:
        _WORLD = Survey(files, settings), files, settings


def _look(tasks: Sequence[tuple[Path, Task]]) -> list[tuple[Path, Notes]]:
    assert _WORLD is not None
    survey = _WORLD[0]
    with without_collecting():
        return [(path, survey.look(path, task.plan, task.whole)) for path, task in tasks]


def _fix(job: _Fixing) -> RunResult:
    assert _WORLD is not None
    return _fixed(*_WORLD, job)


__all__ = ["check", "in_one_piece", "rewrite"]
