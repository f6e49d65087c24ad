"""Runs one file's rewritten definitions, or one entry, and says what was found in a report's words.

What comes back needs neither workers nor verdicts to be read, so that it can be kept in a journal, or
come from another machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gbfix import batch, engine
from gbfix.dynamo.records import Capture
from gbfix.findings import FileResult, Finding
from gbfix.migrate.known import Ran, digest_of
from gbfix.migrate.outcome import Arms, BreakSeen, Captured, Checked, Fragment, SkipSeen
from gbfix.migrate.pools import Shared
from gbfix.migrate.summary import relative
from gbfix.migrate.targets import Entry
from gbfix.settings import Settings
from gbfix.source.text import SourceFile
from gbfix.verify.applying import most_passing, verify_pair, verifying
from gbfix.verify.options import Options
from gbfix.verify.project import Pair
from gbfix.verify.recipes import Inputs
from gbfix.verify.recorded import recorded_pairs
from gbfix.verify.targets import Side, of_file
from gbfix.verify.verdict import Verdict
from gbfix.verify.worker import Workers


@dataclass(frozen=True)
class Tried:
    """A file after it was run: what is kept of it, and what was found."""

    after: str
    findings: tuple[Finding, ...]
    checked: tuple[Checked, ...]


Texts = tuple[tuple[str, str], ...]
"""Files that are not read from disk: their paths and what is in them."""


class _Staying:
    """What stays in the process in which it was made; in another it begins anew."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class Meanwhile(_Staying):
    """Told of what happens in a task before its end; what happens in another process is not heard."""

    def __init__(
        self,
        begun: Callable[[str], None] = lambda name: None,
        found: Callable[[str, Ran[Verdict]], None] = lambda key, ran: None,
    ) -> None:
        self.begun = begun
        self.found = found


class _Made(_Staying):
    """The projects that were made without some transforms, by these."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.files: dict[tuple[str, ...], dict[Path, FileResult]] = {}


@dataclass(frozen=True)
class Again:
    """Makes a file without some transforms, where the project is small enough to be looked at again."""

    sources: Shared[list[SourceFile]]
    settings: Settings
    _made: _Made = field(default_factory=_Made, compare=False)

    def __call__(self, file: FileResult, left_out: tuple[str, ...]) -> FileResult | None:
        """The file, or None."""
        sources = self.sources.get()
        if not batch.in_one_piece(sources):
            return None
        with self._made.lock:
            if left_out not in self._made.files:
                settings = replace(self.settings, ignore=(*self.settings.ignore, *left_out))
                again = engine.run(sources, settings)
                self._made.files[left_out] = {other.path: other for other in again.files}
            return self._made.files[left_out].get(file.path)


@dataclass(frozen=True)
class TriedFile:
    """What came of a file: of the whole of it, and of each run that was made for it, by its key.

    Where fixes were looked for again, the whole depends on all files of the project.
    """

    whole: Ran[Tried]
    runs: dict[str, Ran[Verdict]]


@dataclass(frozen=True)
class FileTask:
    """Runs every definition of a file in which a fix was made.

    `around` is what all runs depend on, and `known` are earlier runs by their keys.
    """

    file: FileResult
    options: Options
    again: Again
    traces: Sequence[Path]
    root: Path
    around: str
    known: Mapping[str, Ran[Verdict]]
    meanwhile: Meanwhile

    def __call__(self, workers: Workers) -> TriedFile:
        """Run them."""
        given: set[str] = set()
        used: list[Ran[Verdict]] = []
        new: dict[str, Ran[Verdict]] = {}
        again: list[tuple[str, ...]] = []
        run = verifying(workers, self.options)

        def recorded(pair: Pair) -> Sequence[tuple[Pair, Inputs | None]]:
            self.meanwhile.begun(pair.name)
            found = recorded_pairs(pair, self.traces)
            if found:
                given.add(pair.name)
            return found or [(pair, None)]

        def verify(original: Side, rewritten: Side, inputs: Inputs | None) -> Verdict:
            key = digest_of((self.around, repr((original, rewritten, inputs))))
            if key in self.known:
                used.append(self.known[key])
                return self.known[key].found
            workers.loaded = frozenset()
            verdict = run(original, rewritten, inputs)
            new[key] = Ran(verdict, workers.loaded)
            self.meanwhile.found(key, new[key])
            return verdict

        def rerun(file: FileResult, left_out: tuple[str, ...]) -> FileResult | None:
            again.append(left_out)
            return self.again(file, left_out)

        kept, verdicts = most_passing(self.file, verify, rerun, recorded)
        checked = tuple(
            checked_of(verdict, self.file.path, name, self.root, recorded=name in given)
            for name, verdict in verdicts.items()
        )
        loaded = all_loaded(ran.loaded for ran in (*used, *new.values()))
        tried = Tried(kept.after, kept.findings, checked)
        return TriedFile(Ran(tried, loaded, everything=bool(again)), new)


@dataclass(frozen=True)
class EntryTask:
    """Runs an entry with the texts, before and after, of all files that change."""

    entry: Entry
    texts: Shared[tuple[Texts, Texts]]
    options: Options
    traces: Sequence[Path]
    root: Path

    def __call__(self, workers: Workers) -> Ran[Checked]:
        """Run it."""
        workers.loaded = frozenset()
        before, after = self.texts.get()
        path, name = self.entry.path, self.entry.name
        target = of_file(path, name)
        pair = Pair(path, name, Side(target, before), Side(target, after))
        recorded = recorded_pairs(pair, self.traces)
        verdict = verify_pair(workers, recorded or [(pair, None)], self.options)
        found = checked_of(verdict, path, name, self.root, recorded=bool(recorded))
        return Ran(replace(found, entry=True), workers.loaded)


def all_loaded(each: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    """What several runs have loaded; None if that is not known of one of them."""
    found: frozenset[str] = frozenset()
    for loaded in each:
        if loaded is None:
            return None
        found |= loaded
    return found


def checked_of(
    verdict: Verdict, path: Path, name: str, root: Path, *, recorded: bool = False
) -> Checked:
    """A verdict in a report's words."""
    evidence = verdict.evidence
    file = relative(path, root)

    def short(text: str) -> str:
        return text.replace(f"{root}/", "")

    return Checked(
        id=f"{file}:{name}",
        path=file,
        name=name,
        entry=False,
        status=verdict.status.value,
        verified=verdict.verified,
        reason=short(verdict.reason),
        backend=evidence.backend,
        device=evidence.device,
        inputs=evidence.inputs,
        recorded=recorded,
        calls=evidence.calls,
        gradients=evidence.gradients,
        seconds=round(evidence.seconds, 3),
        arms=Arms(
            evidence.arms.covered, evidence.arms.total, tuple(map(short, evidence.arms.missing))
        ),
        differences=tuple(short(str(d)) for d in verdict.differences),
        remarks=tuple(short(str(d)) for d in verdict.remarks),
        before=_captured(evidence.before, root),
        after=_captured(evidence.after, root),
    )


def _captured(found: Capture | None, root: Path) -> Captured | None:
    if found is None:
        return None

    def name(file: str) -> str:
        return relative(Path(file), root)

    return Captured(
        graphs=found.graphs,
        operators=found.operators,
        recompiles=found.recompiles,
        breaks=tuple(
            BreakSeen(name(b.file), b.line, b.registry, b.diagnosis, b.reason, b.kind)
            for b in found.breaks
        ),
        skips=tuple(SkipSeen(name(s.file), s.line, s.function, s.reason) for s in found.skips),
        fragments=tuple(
            Fragment(name(f.file), f.line, f.function, f.operators, f.cut_by, f.again)
            for f in found.fragments
        ),
        left_out=found.ran.number_left_out if found.ran is not None else None,
        fullgraph=found.fullgraph,
        fullgraph_error=found.fullgraph_error,
    )
