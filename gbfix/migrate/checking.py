"""Runs one file's rewritten definitions, or one entry, and says what was found in a report's words.

What comes back needs neither workers nor verdicts to be read, so that it can be kept in a journal, or
come from another machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gbfix import batch, engine
from gbfix.dynamo.records import Capture
from gbfix.findings import FileResult, Finding
from gbfix.migrate.outcome import Arms, BreakSeen, Captured, Checked, Fragment, SkipSeen
from gbfix.migrate.pools import Shared
from gbfix.migrate.summary import relative
from gbfix.migrate.targets import Entry
from gbfix.settings import Settings
from gbfix.source.text import SourceFile
from gbfix.verify.applying import most_passing, verify_pair
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


@dataclass(frozen=True)
class Again:
    """Makes a file without some transforms, where the project is small enough to be looked at again."""

    sources: Shared[list[SourceFile]]
    settings: Settings

    def __call__(self, file: FileResult, left_out: tuple[str, ...]) -> FileResult | None:
        """The file, or None."""
        sources = self.sources.get()
        if not batch.in_one_piece(sources):
            return None
        settings = replace(self.settings, ignore=(*self.settings.ignore, *left_out))
        again = engine.run(sources, settings)
        return next((other for other in again.files if other.path == file.path), None)


@dataclass(frozen=True)
class FileTask:
    """Runs every definition of a file in which a fix was made."""

    file: FileResult
    options: Options
    again: Again
    traces: Sequence[Path]
    root: Path

    def __call__(self, workers: Workers) -> Tried:
        """Run them."""
        given: set[str] = set()

        def recorded(pair: Pair) -> Sequence[tuple[Pair, Inputs | None]]:
            found = recorded_pairs(pair, self.traces)
            if found:
                given.add(pair.name)
            return found or [(pair, None)]

        kept, verdicts = most_passing(workers, self.file, self.options, self.again, recorded)
        checked = tuple(
            checked_of(verdict, self.file.path, name, self.root, recorded=name in given)
            for name, verdict in verdicts.items()
        )
        return Tried(kept.after, kept.findings, checked)


@dataclass(frozen=True)
class EntryTask:
    """Runs an entry with the texts, before and after, of all files that change."""

    entry: Entry
    texts: Shared[tuple[Texts, Texts]]
    options: Options
    traces: Sequence[Path]
    root: Path

    def __call__(self, workers: Workers) -> Checked:
        """Run it."""
        before, after = self.texts.get()
        path, name = self.entry.path, self.entry.name
        target = of_file(path, name)
        pair = Pair(path, name, Side(target, before), Side(target, after))
        recorded = recorded_pairs(pair, self.traces)
        verdict = verify_pair(workers, recorded or [(pair, None)], self.options)
        found = checked_of(verdict, path, name, self.root, recorded=bool(recorded))
        return replace(found, entry=True)


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
