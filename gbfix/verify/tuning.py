"""Tries the candidate fixes of each site on the inputs of its target, and keeps the fastest verified.

Site by site: what is chosen for one stays while the next is tried, and what is measured is always the
whole function or class, compiled, against its original. Starts from what `apply --verify` would keep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gbfix.dynamo.backends import default_backend
from gbfix.errors import UserError
from gbfix.findings import FileResult, Finding, FixOffer, RunResult
from gbfix.settings import Choice
from gbfix.verify.applying import Prepare, Rerun, keep_verified, verify_pair
from gbfix.verify.checker import inputs_for
from gbfix.verify.choosing import Candidate, choose, slower_than_original
from gbfix.verify.latency import Ratio
from gbfix.verify.messages import RunSpec
from gbfix.verify.options import Options
from gbfix.verify.project import Pair, fixed_names, pairs
from gbfix.verify.recipes import Inputs
from gbfix.verify.timing import ROUNDS, timings
from gbfix.verify.verdict import Verdict
from gbfix.verify.worker import Workers

# Runs the engine again with fixes chosen for single sites.
Chosen = Callable[[tuple[Choice, ...]], RunResult]


@dataclass(frozen=True)
class Tried:
    """A site and what was tried there."""

    finding: Finding
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    why_left: str

    @property
    def place(self) -> str:
        """Where it is, as users write it."""
        finding = self.finding
        return f"{finding.path}:{finding.line}:{finding.column} {finding.code}"


@dataclass(frozen=True)
class Tuned:
    """The result with the fixes that were chosen, the verdicts on them, and what was tried."""

    result: RunResult
    verdicts: tuple[Verdict, ...]
    tried: tuple[Tried, ...]


@dataclass(frozen=True)
class How:
    """How candidates are tried.

    Attributes:
        eligible: whether a fix on offer may be applied at all.
        chosen: runs the engine with fixes chosen for single sites.
        rerun: runs it on one file without some transforms.
        prepare: how each pair is run.
        rounds: how often each candidate is measured.
    """

    options: Options
    eligible: Callable[[FixOffer], bool]
    chosen: Chosen
    rerun: Rerun
    prepare: Prepare
    rounds: int = ROUNDS


def tuned(workers: Workers, result: RunResult, how: How) -> Tuned:
    """Choose the fix of each site that the engine has fixed.

    Args:
        workers: where it is run.
        result: what the engine makes of the project by itself.
        how: how candidates are tried.
    """
    return _Search(workers, result, how).tuned()


@dataclass
class _Search:
    workers: Workers
    result: RunResult
    how: How
    verdicts: dict[tuple[Path, str, str], Verdict] = field(default_factory=dict)
    known: dict[tuple[Path, str], Inputs | None] = field(default_factory=dict)
    choices: dict[Finding, Choice] = field(default_factory=dict)

    def tuned(self) -> Tuned:
        base, verdicts = keep_verified(
            self.workers, self.result, self.how.options, self.how.rerun, self._prepared
        )
        self._start_from(base, verdicts)
        tried: list[Tried] = []
        for file in self.result.files:
            for name in fixed_names(file) if file.changed else ():
                for finding in _of(file, name):
                    found = self._site(file, name, finding)
                    if found is not None:
                        tried.append(found)
        final = self.how.chosen(tuple(self.choices.values()))
        told, whole = self._told(final)
        if not whole:
            final, told = keep_verified(
                self.workers, final, self.how.options, self.how.rerun, self._prepared
            )
        return Tuned(final, told, tuple(tried))

    def _prepared(self, pair: Pair) -> Sequence[tuple[Pair, Inputs | None]]:
        """How a pair is run; inputs are made once, so that all candidates are called alike."""
        return [
            (ready, inputs if inputs is not None else self._made(ready))
            for ready, inputs in self.how.prepare(pair)
        ]

    def _made(self, pair: Pair) -> Inputs | None:
        key = pair.path, pair.original.target.name
        if key not in self.known:
            try:
                self.known[key] = inputs_for(
                    self.workers, pair.original, pair.rewritten, self.how.options
                )
            except UserError:
                self.known[key] = None
        return self.known[key]

    def _start_from(self, base: RunResult, verdicts: tuple[Verdict, ...]) -> None:
        """Choose for each site what is kept of it, and remember the verdicts on that."""
        by_title = {verdict.target: verdict for verdict in verdicts}
        for before, after in zip(self.result.files, base.files, strict=True):
            kept = {f.place: f.applied for f in after.findings if f.applied is not None}
            for finding in before.findings:
                if finding.applied is not None:
                    offer = kept.get(finding.place)
                    self.choices[finding] = _choice(
                        finding, offer.transform if offer is not None else None
                    )
            if after.changed:
                for pair in pairs(base, after):
                    verdict = by_title.get(pair.original.target.title)
                    if verdict is not None and verdict.verified:
                        self.verdicts[after.path, pair.name, after.after] = verdict

    def _site(self, file: FileResult, name: str, finding: Finding) -> Tried | None:
        """Try everything at one site; None if nothing at all can be told apart there."""
        offers = [offer.transform for offer in finding.offers if self.how.eligible(offer)]
        versions: dict[str, str | None] = {}
        for transform in (*dict.fromkeys(offers), None):
            text = self._with(finding, _choice(finding, transform))
            if text is not None:
                versions.setdefault(text, transform)
        if len(versions) < 2:  # a site inside of one that is treated as a whole
            return None
        original = file.before.text
        sides = {text: self._pair(file, name, text) for text in versions if text != original}
        verdicts = {text: self._verdict(name, pair, text) for text, pair in sides.items()}
        sound = {text: pair for text, pair in sides.items() if verdicts[text].verified}
        ratios = self._measured(sound)
        candidates = [
            Candidate(transform, text == original, verdicts.get(text), ratios.get(text))
            for text, transform in versions.items()
        ]
        best = choose(candidates)
        why = slower_than_original(candidates, best)
        self.choices[finding] = _choice(finding, best.transform if best else None, why)
        return Tried(finding, tuple(candidates), best, why)

    def _with(self, finding: Finding, choice: Choice) -> str | None:
        """The text of the file with one choice changed."""
        chosen = {**self.choices, finding: choice}
        files = self.how.chosen(tuple(chosen.values())).files
        return next((f.after for f in files if f.path == finding.path), None)

    def _pair(self, file: FileResult, name: str, text: str) -> Pair:
        (pair,) = pairs(self.result, replace(file, after=text), [name])
        return pair

    def _verdict(self, name: str, pair: Pair, text: str) -> Verdict:
        key = pair.path, name, text
        if key not in self.verdicts:
            options = replace(self.how.options, shrink_seconds=0)
            self.verdicts[key] = verify_pair(self.workers, self._prepared(pair), options)
        return self.verdicts[key]

    def _measured(self, sides: Mapping[str, Pair]) -> dict[str, Ratio | None]:
        """How long later calls take with each text, against the original."""
        if not sides:
            return {}
        # Where several callables lead to the target, the first stands for all.
        ready = [self._prepared(pair)[0] for pair in sides.values()]
        first, inputs = ready[0]
        if inputs is None:
            return {}
        options = self.how.options
        spec = RunSpec(
            first.original,
            inputs,
            backend=options.backend or default_backend(),
            dynamic=options.dynamic,
            device=options.device,
            dtype=options.dtype,
        )
        found = timings(
            self.workers,
            spec,
            [pair.rewritten for pair, _ in ready],
            options.limits,
            self.how.rounds,
            cached=True,
        )
        return {
            text: timing.steady if timing is not None else None
            for text, timing in zip(sides, found, strict=True)
        }

    def _told(self, final: RunResult) -> tuple[tuple[Verdict, ...], bool]:
        """The verdicts on the final texts as far as they are known, and whether all are good."""
        told: list[Verdict | None] = [
            self.verdicts.get((file.path, name, file.after))
            for file in final.files
            if file.changed
            for name in fixed_names(file)
        ]
        known = tuple(verdict for verdict in told if verdict is not None)
        return known, len(known) == len(told) and all(verdict.verified for verdict in known)


def _of(file: FileResult, name: str) -> list[Finding]:
    """The sites of a function or class that are fixed."""
    return [
        f for f in file.findings if f.applied is not None and f.function.partition(".")[0] == name
    ]


def _choice(finding: Finding, transform: str | None, why: str = "") -> Choice:
    return Choice(finding.path, finding.line, finding.column, finding.code, transform, why)
