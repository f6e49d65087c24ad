"""Asks again whether two sides differ in a known way, with other inputs.

One probe makes only the runs that this difference needs, and the cheap ones first. It says what shows
and does not choose the inputs.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gbfix.verify.jobs import Job, Limits, Outcome
from gbfix.verify.messages import Findings, RunRecord, Runs, RunSpec
from gbfix.verify.recipes import Inputs
from gbfix.verify.targets import Side
from gbfix.verify.verdict import REVIEW, Difference, Kind
from gbfix.verify.worker import Workers

GRADIENTS = " with gradients"
EXCEPTIONS = (Kind.EXCEPTION, Kind.EXCEPTION_TYPE, Kind.EXCEPTION_SKIPPED)


@dataclass(frozen=True)
class Probe:
    """How two sides are run to compare them in one mode, such as `compiled with gradients`.

    Attributes:
        spec: what all runs have in common; its side and inputs are replaced.
        backend: the backend of compiled runs.
        leeway: differences that compiled runs may show.
        raising: whether calls that raise in eager are run compiled as well.
    """

    original: Side
    rewritten: Side
    mode: str
    spec: RunSpec
    backend: str
    leeway: frozenset[Kind] = REVIEW
    limits: Limits = field(default_factory=Limits)
    raising: bool = True

    @property
    def compiled(self) -> bool:
        """Whether compiled runs are compared, and not eager ones."""
        return self.mode.startswith("compiled")

    @property
    def label(self) -> str:
        """What the mode adds to `eager` or `compiled`."""
        return GRADIENTS if self.mode.endswith(GRADIENTS) else ""


@dataclass(frozen=True)
class Shown:
    """What a probe shows: differences, and the calls of the two runs that are compared, pickled."""

    differences: tuple[Difference, ...] = ()
    original: bytes | None = None
    rewritten: bytes | None = None


def probe(workers: Workers, how: Probe, inputs: Inputs) -> Shown:
    """Run both sides with these inputs; nothing shows where the original itself cannot be run."""
    spec = replace(how.spec, inputs=inputs, gradients=bool(how.label))
    mine, theirs = replace(spec, side=how.original), replace(spec, side=how.rewritten)
    if not how.compiled:
        eager, other = _run(workers, how, [mine, theirs])
        if eager.failure is not None:
            return Shown()
        if other.failure is not None:
            return Shown((_failed(how, other),), eager.calls)
        runs = Runs(eager.calls, rewritten_eager=other.calls)
        return Shown(_judged(workers, how, runs), eager.calls, other.calls)
    (eager,) = _run(workers, how, [mine])
    if eager.failure is not None:
        return Shown()
    if eager.raised == eager.number_of_calls and not how.raising:
        return Shown()
    compiled = [replace(side, backend=how.backend) for side in (mine, theirs)]
    before, after, exact = _run(workers, how, [*compiled, replace(mine, reference=True)])
    if before.failure is not None:
        return Shown()
    if after.failure is not None:
        return Shown((_failed(how, after),), eager.calls)
    runs = Runs(eager.calls, None, before.calls, after.calls, exact.calls or None)
    return Shown(_judged(workers, how, runs), eager.calls, after.calls)


def alike(first: Difference, second: Difference) -> bool:
    """Whether two differences are of one kind in one sort of place, whatever the figures."""
    if (first.mode, first.kind) != (second.mode, second.kind):
        return False
    if first.kind in EXCEPTIONS:
        return _words(first.detail)[:6] == _words(second.detail)[:6]
    return _words(first.place)[:1] == _words(second.place)[:1]


def job(function: str, limits: Limits, *arguments: Any) -> Job:
    """A job with its arguments pickled."""
    return Job(function, pickle.dumps(arguments), limits)


def record_of(outcome: Outcome) -> RunRecord:
    """What a run left, or why it left nothing."""
    if outcome.result is None:
        return RunRecord(failure=outcome.failure or "it did not end")
    record: RunRecord = pickle.loads(outcome.result)
    return record


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]+", text)


def _run(workers: Workers, how: Probe, specs: Sequence[RunSpec]) -> list[RunRecord]:
    jobs = [job("gbfix.verify.execute:run", how.limits, spec) for spec in specs]
    return [record_of(outcome) for outcome in workers.run(jobs)]


def _failed(how: Probe, record: RunRecord) -> Difference:
    return Difference(how.mode, 0, Kind.EXCEPTION, "", str(record.failure))


def _judged(workers: Workers, how: Probe, runs: Runs) -> tuple[Difference, ...]:
    limits = Limits(how.limits.seconds, None)
    (outcome,) = workers.run([job("gbfix.verify.judge:judge", limits, runs, how.leeway, how.label)])
    if outcome.result is None:
        return ()
    findings: Findings = pickle.loads(outcome.result)
    # Where the compiler fails on the original, nothing is the rewrite's fault.
    return () if findings.compiler_errors else findings.differences
