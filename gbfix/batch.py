"""Checks and fixes many files: in parts that fit into memory, over processes, with what is known kept.

A large project is cut into parts, whatever the number of processes, so that the result does not
depend on it. Each part says which functions of other parts it reaches; parts are looked at again
until nothing new is reached. Knows the engine's parts and results, nothing of fixes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

from gbfix import engine
from gbfix.analysis.modules import Module
from gbfix.analysis.naming import named
from gbfix.analysis.regions import Plan
from gbfix.analysis.trees import forget
from gbfix.cache import Cache
from gbfix.engine import NARROWED, PartResult, analyse_part, plan_region, rewrite_part
from gbfix.findings import FileError, FileResult, Finding, RunResult
from gbfix.settings import Settings
from gbfix.source.text import SourceFile
from gbfix.suppressions import Suppression, parse, unused_notices

# A project in one part takes about half the time of one in several, and about twice the memory.
PART = 30_000_000
"""Characters of source in a part; a project that is not longer than two of them has one part."""
_KEPT = 6_000_000

Progress = Callable[[Path], None]


@dataclass(frozen=True)
class _Job:
    """A part to look at: its number, its files by index, and what its region starts from."""

    number: int
    files: tuple[int, ...]
    plan: Plan
    done: frozenset[str]


@dataclass(frozen=True)
class _Fixing:
    """Files to fix, by index, and the functions of the project's region."""

    files: tuple[int, ...]
    reached: frozenset[str]


@dataclass
class _Known:
    """What all rounds together have found in one part."""

    findings: dict[Path, list[Finding]] = field(default_factory=dict)
    errors: dict[Path, FileError] = field(default_factory=dict)
    silenced: list[tuple[Path, Suppression, str]] = field(default_factory=list)
    reached: frozenset[str] = frozenset()
    forwards: frozenset[str] = frozenset()
    calls: frozenset[tuple[str, str]] = frozenset()
    consulted: frozenset[Path] = frozenset()
    absent: frozenset[Path] = frozenset()

    def add(self, result: PartResult) -> None:
        for path, findings in result.findings.items():
            self.findings.setdefault(path, []).extend(findings)
        for error in result.errors:
            self.errors.setdefault(error.path, error)
        self.silenced += result.silenced
        self.reached |= result.reached
        self.forwards |= result.forwards
        self.consulted |= result.consulted
        self.absent |= result.absent


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
    parts = split(files)
    if len(parts) < 2:
        result = engine.run(files, settings, rewrite=False, on_file=on_file)
    else:
        result = _Parts(files, parts, settings, jobs, on_file).result()
    if cache is not None:
        cache.keep_whole(files, settings, result)
    return result


def rewrite(
    files: Sequence[SourceFile],
    settings: Settings,
    *,
    jobs: int = 1,
    on_file: Progress | None = None,
) -> RunResult:
    """Fix files in memory.

    Args:
        files: the project.
        settings: what to look for and how much to trust.
        jobs: how many processes may work; the result does not depend on it.
        on_file: called once for each file when it has been looked at.

    Raises:
        UserError: for selectors that name nothing.
    """
    parts = split(files)
    if len(parts) < 2:
        return engine.run(files, settings, on_file=on_file)
    return _Parts(files, parts, settings, jobs, on_file).rewritten()


def split(files: Sequence[SourceFile]) -> list[tuple[int, ...]]:
    """Cut a project into parts, as indices of its files; files without `torch` are in none."""
    indices = [i for i, file in enumerate(files) if "torch" in file.text]
    total = sum(len(files[i].text) for i in indices)
    if total <= 2 * PART:
        return [tuple(indices)]
    parts: list[tuple[int, ...]] = []
    part: list[int] = []
    size = 0
    for index in indices:
        part.append(index)
        size += len(files[index].text)
        if size >= PART:
            parts.append(tuple(part))
            part, size = [], 0
    return [*parts, tuple(part)] if part else parts


class _Parts:
    """The rounds of a check over several parts."""

    def __init__(
        self,
        files: Sequence[SourceFile],
        parts: Sequence[tuple[int, ...]],
        settings: Settings,
        jobs: int,
        on_file: Progress | None,
    ) -> None:
        self.files = files
        self.parts = parts
        self.settings = settings
        self.jobs = jobs
        self.on_file = on_file
        self.world = _World(files, settings)
        self.part_of = {files[i].path: n for n, part in enumerate(parts) for i in part}
        self.known = [_Known() for _ in parts]

    def result(self) -> RunResult:
        """Look at all parts until nothing new is reached."""
        with self._executor() as executor:
            return self._checked(executor)

    def rewritten(self) -> RunResult:
        """Look at all parts, then fix the files in which there is something to fix."""
        with self._executor() as executor:
            found = self._checked(executor)
            reached = frozenset().union(*(known.reached for known in self.known))
            todo = [
                _Fixing(tuple(i for i in part if i in fixable), reached)
                for fixable in [self._fixable(found)]
                for part in _pieces(self.parts)
            ]
            todo = [job for job in todo if job.files]
            results = (
                map(self.world.rewrite, todo) if executor is None else executor.map(_rewrite, todo)
            )
            return _replaced(found, results)

    def _fixable(self, found: RunResult) -> set[int]:
        """The files, by index, with a fix that the settings allow."""
        wanted = {
            file.path
            for file in found.files
            for finding in file.findings
            if any(offer.safety >= self.settings.safety for offer in finding.offers)
        }
        return {i for i, file in enumerate(self.files) if file.path in wanted}

    def _checked(self, executor: Executor | None) -> RunResult:
        plan = plan_region(self.world.modules, self.settings)
        self._rounds(executor, [plan] * len(self.parts))
        if self.settings.region.value == "auto" and not any(k.reached for k in self.known):
            # A project without modules, and without anything compiled.
            self._rounds(executor, [Plan(everything=True)] * len(self.parts))
        notices: list[str] = []
        if plan.roots and not plan.forwards and self.settings.region.value == "auto":
            if any(k.forwards - k.reached for k in self.known):
                notices.append(NARROWED)
        return self._joined(notices)

    def _rounds(self, executor: Executor | None, plans: Sequence[Plan]) -> None:
        todo = [
            _Job(n, part, plan, self.known[n].reached)
            for n, (part, plan) in enumerate(zip(self.parts, plans, strict=True))
        ]
        first = True
        while todo:
            elsewhere: set[tuple[Path, str]] = set()
            calls: set[tuple[str, str]] = set()
            for job, result in zip(todo, self._results(executor, todo), strict=True):
                self.known[job.number].add(result)
                elsewhere |= result.elsewhere
                calls |= result.self_calls
                # What a part calls on `self` it has looked for in its own files.
                self.known[job.number].calls |= result.self_calls
                if first and self.on_file is not None:
                    for index in job.files:
                        self.on_file(self.files[index].path)
            first = False
            todo = list(self._more(elsewhere, calls))

    def _more(
        self, elsewhere: set[tuple[Path, str]], calls: set[tuple[str, str]]
    ) -> Iterator[_Job]:
        """The parts of which something is reached that was not looked at."""
        roots: dict[int, set[str]] = {}
        for path, name in elsewhere:
            number = self.part_of[path]
            if name not in self.known[number].reached:
                roots.setdefault(number, set()).add(name)
        for number, part in enumerate(self.parts):
            known = self.known[number]
            new = frozenset(c for c in calls - known.calls if self._defines(part, c[1]))
            known.calls |= calls
            if number in roots or new:
                plan = Plan(frozenset(roots.get(number, ())), self_calls=new)
                yield _Job(number, part, plan, known.reached)

    def _defines(self, part: tuple[int, ...], name: str) -> bool:
        return any(f"def {name}(" in self.files[i].text for i in part)

    def _results(self, executor: Executor | None, todo: Sequence[_Job]) -> Iterator[PartResult]:
        if executor is None:
            return map(self.world.analyse, todo)
        return iter(executor.map(_analyse, todo))

    @contextmanager
    def _executor(self) -> Iterator[Executor | None]:
        jobs = min(self.jobs, len(self.parts))
        if jobs < 2:
            yield None
            return
        # Where processes can be forked, the source need not be sent to them.
        global _WORLD
        _WORLD = self.world
        method = "fork" if os.name == "posix" and os.uname().sysname == "Linux" else "spawn"
        given = () if method == "fork" else (tuple(self.files), self.settings)
        with ProcessPoolExecutor(
            jobs, get_context(method), initializer=_prepare, initargs=given
        ) as executor:
            yield executor

    def _joined(self, notices: list[str]) -> RunResult:
        findings: dict[Path, Sequence[Finding]] = {}
        errors: dict[Path, FileError] = {}
        silenced: dict[Path, list[tuple[Suppression, str]]] = {}
        for known in self.known:
            findings.update(known.findings)
            errors.update(known.errors)
            for path, comment, code in known.silenced:
                silenced.setdefault(path, []).append((comment, code))
        results: list[FileResult] = []
        for file in self.files:
            if file.path in errors:
                continue
            ordered = sorted(findings.get(file.path, ()), key=lambda f: f.place)
            results.append(FileResult(file.path, file, file.text, tuple(ordered)))
            comments = parse(file.text)
            notices += unused_notices(file.path, comments, silenced.get(file.path, ()))
        ordered_errors = tuple(errors[file.path] for file in self.files if file.path in errors)
        consulted = frozenset().union(*(known.consulted for known in self.known))
        absent = frozenset().union(*(known.absent for known in self.known))
        return RunResult(tuple(results), ordered_errors, tuple(notices), consulted, absent)


class _World:
    """All modules of a project as one process sees them: parsed where they were looked into."""

    def __init__(self, files: Sequence[SourceFile], settings: Settings) -> None:
        self.files = files
        self.settings = settings
        self._sizes = {file.path: len(file.text) for file in files}
        self.modules: list[Module] = []
        self._renew()

    def _renew(self) -> None:
        self.modules = named([f for f in self.files if "torch" in f.text])

    def analyse(self, job: _Job) -> PartResult:
        """Look at one part."""
        if sum(self._sizes[m.source.path] for m in self.modules if m.parsed) > _KEPT:
            self._renew()
        own = [self.files[i] for i in job.files]
        result = analyse_part(own, self.modules, self.settings, job.plan, job.done)
        forget()
        return result

    def rewrite(self, job: _Fixing) -> RunResult:
        """Fix the files of a job."""
        if sum(self._sizes[m.source.path] for m in self.modules if m.parsed) > _KEPT:
            self._renew()
        own = [self.files[i] for i in job.files]
        result = rewrite_part(own, self.modules, self.settings, job.reached)
        forget()
        return result


def _pieces(parts: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Parts cut further, so that all processes have work until the end."""
    for part in parts:
        size = max(1, len(part) // 4)
        yield from (part[i : i + size] for i in range(0, len(part), size))


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


_WORLD: _World | None = None


def _prepare(files: tuple[SourceFile, ...] | None = None, settings: Settings | None = None) -> None:
    global _WORLD
    if files is not None and settings is not None:
        _WORLD = _World(files, settings)


def _analyse(job: _Job) -> PartResult:
    assert _WORLD is not None
    return _WORLD.analyse(job)


def _rewrite(job: _Fixing) -> RunResult:
    assert _WORLD is not None
    return _WORLD.rewrite(job)


__all__ = ["check", "rewrite", "split"]
