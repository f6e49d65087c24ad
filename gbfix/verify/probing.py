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

# The ways of calling, by what they add to the name of a mode, and what they ask of a run.
GRADIENTS = " with gradients"
INFERENCE = " in inference"
HALVES = {" in float16": "float16", " in bfloat16": "bfloat16"}
WAYS: dict[str, dict[str, Any]] = {
    "": {},
    GRADIENTS: {"gradients": True},
    INFERENCE: {"inference": True},
    **{label: {"dtype": name} for label, name in HALVES.items()},
}
# What is added to a mode whose runs have to be one graph; only plain calls are made so.
FULLGRAPH = ", fullgraph"
EXCEPTIONS = (Kind.EXCEPTION, Kind.EXCEPTION_TYPE, Kind.EXCEPTION_SKIPPED)


@dataclass(frozen=True)
class Probe:
    """How two sides are run to compare them in one mode, such as `compiled with gradients`.

    Attributes:
        rewritten: the other side; without one, the original is asked where it fails by itself.
        spec: what all runs have in common; its side and inputs are replaced.
        backend: the backend of compiled runs.
        leeway: differences that compiled runs may show.
        raising: whether calls that raise in eager are run compiled as well.
    """

    original: Side
    rewritten: Side | None
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
        """What the mode adds to `eager` or `compiled`, but for that it is one graph."""
        return self.mode.removeprefix("compiled").removeprefix("eager").removesuffix(FULLGRAPH)

    @property
    def fullgraph(self) -> bool:
        """Whether compiled runs have to be one graph."""
        return self.mode.endswith(FULLGRAPH)


@dataclass(frozen=True)
class Shown:
    """What a probe shows: differences, and the calls of the two runs that are compared, pickled."""

    differences: tuple[Difference, ...] = ()
    original: bytes | None = None
    rewritten: bytes | None = None


def probe(workers: Workers, how: Probe, inputs: Inputs) -> Shown:
    """Run both sides with these inputs; nothing shows where the original itself cannot be run."""
    spec = replace(how.spec, inputs=inputs, **WAYS[how.label])
    if how.rewritten is None:
        return _failures(workers, how, replace(spec, side=how.original))
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
    compiled = [
        replace(side, backend=how.backend, fullgraph=how.fullgraph) for side in (mine, theirs)
    ]
    before, after, exact = _run(workers, how, [*compiled, replace(mine, reference=True)])
    if before.failure is not None:
        return Shown()
    if after.failure is not None:
        return Shown((_failed(how, after),), eager.calls)
    own: bytes | None = before.calls
    if how.fullgraph:
        if after.refused:  # breaks, which are no difference
            return Shown()
        own = None if before.refused else own
    runs = Runs(eager.calls, None, own, after.calls, exact.calls or None)
    return Shown(_judged(workers, how, runs), eager.calls, after.calls)


def _failures(workers: Workers, how: Probe, mine: RunSpec) -> Shown:
    """What the original raises in eager, or only when it is compiled."""
    specs = [mine, replace(mine, backend=how.backend)] if how.compiled else [mine]
    eager, *others = _run(workers, how, specs)
    if any(record.failure is not None for record in (eager, *others)):
        return Shown()
    if not others:
        found = _findings(workers, how, Runs(eager.calls))
        errors = enumerate(found.original_errors if found is not None else ())
        told = [Difference(how.mode, n, Kind.EXCEPTION, "", error) for n, error in errors if error]
        return Shown(tuple(told), eager.calls)
    runs = Runs(eager.calls, original_compiled=others[0].calls)
    found = _findings(workers, how, runs)
    return Shown(found.compiler_errors if found is not None else (), eager.calls, others[0].calls)


def alike(first: Difference, second: Difference) -> bool:
    """Whether two differences are of one kind in one sort of place, whatever the figures."""
    if (first.mode, first.kind) != (second.mode, second.kind):
        return False
    if first.kind in EXCEPTIONS:
        return _words(first.detail)[:6] == _words(second.detail)[:6]
    return _words(first.place)[:1] == _words(second.place)[:1]


def job(function: str, limits: Limits, *arguments: Any) -> Job:
    """A job with its arguments pickled."""
    backends = {getattr(argument, "backend", None) for argument in arguments} - {None}
    prepare = "gbfix.dynamo.warming:warm_up_inductor" if "inductor" in backends else None
    return Job(function, pickle.dumps(arguments), limits, prepare)


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
    found = _findings(workers, how, runs)
    # Where the compiler fails on the original, nothing is the rewrite's fault.
    return () if found is None or found.compiler_errors else found.differences


def _findings(workers: Workers, how: Probe, runs: Runs) -> Findings | None:
    limits = Limits(how.limits.seconds, None)
    label = how.label + FULLGRAPH * how.fullgraph
    (outcome,) = workers.run([job("gbfix.verify.judge:judge", limits, runs, how.leeway, label)])
    if outcome.result is None:
        return None
    findings: Findings = pickle.loads(outcome.result)
    return findings
