"""Verifies one target: makes the runs in workers, has them judged, and gives the verdict.

It needs neither torch nor the user's code in its own process.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gbfix.dynamo.backends import default_backend
from gbfix.dynamo.records import Capture
from gbfix.verify.arms import Branch, concerned, coverage, rewritten_branches
from gbfix.verify.breaks import fewer_breaks, told
from gbfix.verify.diagnosing import diagnosed
from gbfix.verify.jobs import Job, Limits, Outcome
from gbfix.verify.messages import Findings, Generated, RunRecord, Runs, RunSpec, SearchSpec
from gbfix.verify.probing import GRADIENTS, Probe, job, record_of
from gbfix.verify.recipes import Inputs
from gbfix.verify.reproduction import reproduction
from gbfix.verify.targets import Side
from gbfix.verify.timing import timing
from gbfix.verify.verdict import (
    REVIEW,
    Difference,
    Evidence,
    Kind,
    Reproduction,
    Status,
    Verdict,
)
from gbfix.verify.worker import Workers


@dataclass(frozen=True)
class Options:
    """How a target is verified.

    Attributes:
        backend: the backend of compiled runs; None for Inductor where it has a compiler.
        gradients: whether to compare gradients as well.
        leeway: differences that compiled runs may show; they are told, but do not count.
        search_seconds: how long to search for inputs.
        both_dynamic: whether breaks are counted with `dynamic=False` as well.
        time: whether latencies are measured as well, where nothing is different.
        shrink_seconds: how long to look for a smaller input that shows a difference; 0 for not at all.
    """

    backend: str | None = None
    device: str = "cpu"
    dtype: str | None = None
    dynamic: bool | None = None
    gradients: bool = True
    leeway: frozenset[Kind] = REVIEW
    limits: Limits = field(default_factory=Limits)
    search_seconds: float = 30.0
    shrink_seconds: float = 20.0
    both_dynamic: bool = True
    time: bool = False


class _Stop(Exception):
    """The verdict is known before all runs are made."""

    def __init__(self, status: Status, reason: str, differences: Sequence[Difference] = ()) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.differences = tuple(differences)


def verify_sides(
    workers: Workers,
    original: Side,
    rewritten: Side,
    inputs: Inputs | None = None,
    options: Options | None = None,
) -> Verdict:
    """Verify that a rewritten side does what the original does and breaks less.

    Without `inputs` they are generated.
    """
    start = time.monotonic()
    check = _Check(workers, original, rewritten, inputs, options or Options())
    verdict = check.verdict()
    seconds = time.monotonic() - start
    return replace(verdict, evidence=replace(verdict.evidence, seconds=seconds))


class _Check:
    """The runs of one target and the evidence that they have given so far."""

    def __init__(
        self,
        workers: Workers,
        original: Side,
        rewritten: Side,
        inputs: Inputs | None,
        options: Options,
    ) -> None:
        self.workers = workers
        self.original = original
        self.rewritten = rewritten
        self.inputs = inputs
        self.options = options
        self.evidence = Evidence(device=options.device)
        self.remarks: tuple[Difference, ...] = ()
        self.ways: dict[str, Runs] = {}

    def verdict(self) -> Verdict:
        """Make the runs, the cheap ones first, until the verdict is known."""
        title = self.original.target.title
        try:
            status, reason = self._status()
        except _Stop as stop:
            return Verdict(
                title,
                stop.status,
                stop.reason,
                stop.differences,
                self.remarks,
                self.evidence,
                self._reproduction(stop),
            )
        return Verdict(title, status, reason, (), self.remarks, self.evidence)

    def _status(self) -> tuple[Status, str]:
        self.backend = self.options.backend or default_backend()
        self.evidence = replace(self.evidence, backend=self.backend)
        self._find_inputs()
        self._eager()
        self._compiled()
        if self.options.time:
            spec = self._spec(self.original, backend=self.backend)
            measured = timing(self.workers, spec, self.rewritten, self.options.limits)
            self.evidence = replace(self.evidence, timing=measured)
        before, after = self.evidence.before, self.evidence.after
        assert before is not None and after is not None
        if not fewer_breaks(before, after):
            return Status.NO_FEWER_BREAKS, f"{told(before)} before, {told(after)} after"
        arms = self.evidence.arms
        reason = f"{told(before)} before, {told(after)} after"
        if arms.missing:
            return Status.PARTLY_VERIFIED, f"{reason}; {arms} arms run, not {arms.missing[0]}"
        return Status.VERIFIED, f"{reason}; {arms} arms run"

    # Inputs and eager runs

    def _find_inputs(self) -> None:
        if self.inputs is not None:
            return
        touched, files = self._touched()
        spec = SearchSpec(
            self.original,
            touched,
            files,
            "".join(text for _, text in self.rewritten.texts),
            self.options.search_seconds,
            self.options.device,
            self.options.dtype,
        )
        limits = replace(
            self.options.limits,
            seconds=self.options.limits.seconds + self.options.search_seconds,
        )
        (outcome,) = self.workers.run([job("gbfix.verify.inputs:generate", limits, spec)])
        if outcome.result is None:
            raise _Stop(Status.NOT_RUN, f"the search for inputs: {outcome.failure}")
        generated: Generated = pickle.loads(outcome.result)
        if generated.inputs is None:
            raise _Stop(Status.NOT_RUN, str(generated.failure))
        self.inputs = generated.inputs

    def _touched(self) -> tuple[frozenset[Branch], frozenset[str]]:
        """The branches that the rewrite touches, and the files that it is about."""
        before, after = dict(self.original.texts), dict(self.rewritten.texts)
        versions = {path: (text, after.get(path, text)) for path, text in before.items()}
        mine, theirs = self.original.target.file, self.rewritten.target.file
        own = os.path.realpath(mine) if mine else None
        if own in before and theirs is not None:
            versions[own] = before[own], after.get(os.path.realpath(theirs), before[own])
        lines = concerned(before.items(), self.original.target.name.partition(".")[0])
        touched: set[Branch] = set()
        for path, (text, other) in versions.items():
            for branch in rewritten_branches(path, text, other):
                if any(branch.line in part for part in lines.get(path, ())):
                    touched.add(branch)
        changed = {path for path, (text, other) in versions.items() if text != other}
        return frozenset(touched), frozenset(changed | ({own} if own else set()))

    def _eager(self) -> None:
        ways = [
            self._spec(self.original),
            self._spec(self.rewritten),
            self._spec(self.original, reference=True),
            self._spec(self.original, watch=True),
        ]
        if self.options.gradients:
            ways += [replace(spec, gradients=True) for spec in ways[:3]]
        outcomes = self.workers.run([self._job(spec) for spec in ways])
        watched = self._original(outcomes[3], "eager")
        touched, files = self._touched()
        self.evidence = replace(
            self.evidence,
            inputs=watched.inputs,
            calls=watched.number_of_calls,
            arms=coverage(touched, watched.seen, files),
        )
        findings = self._eager_way("", outcomes)
        if findings.out_of_memory:
            raise _Stop(Status.NOT_RUN, "the original ran out of memory")
        if all(findings.original_errors):
            raise _Stop(Status.FAILS_EAGER, str(findings.original_errors[0]))
        differences = findings.differences
        if self.options.gradients and not differences:
            more = self._eager_way(GRADIENTS, outcomes[4:])
            differences = more.differences
            if more.has_gradients:
                self.evidence = replace(self.evidence, gradients=True)
            else:
                del self.ways[GRADIENTS]
        if differences:
            raise _Stop(Status.DIFFERENT, str(differences[0]), differences)

    def _eager_way(self, label: str, outcomes: Sequence[Outcome]) -> Findings:
        """Compare the eager runs of one way of calling, and keep them for the compiled ones."""
        original = self._original(outcomes[0], f"eager{label}")
        rewritten = self._rewritten(outcomes[1], f"eager{label}")
        runs = Runs(original.calls, reference=record_of(outcomes[2]).calls or None)
        self.ways[label] = runs
        if not (original.always_compiled and rewritten.always_compiled):
            runs = replace(runs, rewritten_eager=rewritten.calls)
        findings = self._judged(runs, label)
        self.remarks = (*self.remarks, *findings.remarks)
        return findings

    # Compiled runs

    def _compiled(self) -> None:
        sides = (self.original, self.rewritten)
        # Whether one graph holds everything is Dynamo's answer; no backend has to be waited for.
        ways = [self._spec(side, backend="eager", fullgraph=True) for side in sides]
        still = [replace(way, dynamic=False) for way in ways]
        if self.options.both_dynamic and self.options.dynamic is None:
            ways += [*still, *(replace(way, fullgraph=False) for way in still)]
        extra = len(ways)
        for label in self.ways:
            gradients = label == GRADIENTS
            ways += [self._spec(side, backend=self.backend, gradients=gradients) for side in sides]
        outcomes = self.workers.run([self._job(spec) for spec in ways])
        counts, runs = [record_of(outcome) for outcome in outcomes[:extra]], outcomes[extra:]
        differences: list[Difference] = []
        failures: list[str] = []
        for number, (label, eager) in enumerate(self.ways.items()):
            first = self._original(runs[2 * number], f"compiled{label}")
            second = self._rewritten(runs[2 * number + 1], f"compiled{label}")
            if label != GRADIENTS:
                self._count_breaks(first, second, counts)
            both = replace(eager, original_compiled=first.calls, rewritten_compiled=second.calls)
            found = self._without_excess(both, self._judged(both, label), label)
            differences += found.differences
            failures += found.compiler_errors
            self.remarks = (*self.remarks, *found.remarks)
        if failures:
            raise _Stop(Status.FAILS_COMPILED, failures[0], differences)
        if differences:
            raise _Stop(Status.DIFFERENT, str(differences[0]), differences)

    def _without_excess(self, runs: Runs, found: Findings, label: str) -> Findings:
        """The findings, with differences that come only from Inductor's own precision as remarks."""
        if self.backend != "inductor" or not any(d.kind is Kind.VALUE for d in found.differences):
            return found
        ways = [
            self._spec(
                side,
                backend=self.backend,
                gradients=label == GRADIENTS,
                emulate_precision_casts=True,
            )
            for side in (self.original, self.rewritten)
        ]
        first, second = map(record_of, self.workers.run([self._job(spec) for spec in ways]))
        if first.failure is not None or second.failure is not None:
            return found
        emulated = replace(runs, original_compiled=first.calls, rewritten_compiled=second.calls)
        given = runs, emulated, found.differences, self.options.leeway, label
        limits = Limits(self.options.limits.seconds, None)
        (outcome,) = self.workers.run([job("gbfix.verify.judge:excess_precision", limits, *given)])
        if outcome.result is None:
            return found
        excess: tuple[Difference, ...] = pickle.loads(outcome.result)
        gone = {(d.call, d.kind, d.place) for d in excess}
        left = tuple(d for d in found.differences if (d.call, d.kind, d.place) not in gone)
        return replace(found, differences=left, remarks=(*found.remarks, *excess))

    def _count_breaks(
        self, first: RunRecord, second: RunRecord, counts: Sequence[RunRecord]
    ) -> None:
        """Keep what was captured; `counts` are runs in one graph, then both with `dynamic=False`."""
        self.evidence = replace(
            self.evidence,
            before=_captured(self.original, first, counts[0]),
            after=_captured(self.rewritten, second, counts[1]),
        )
        if len(counts) > 2:
            self.evidence = replace(
                self.evidence,
                before_static=_captured(self.original, counts[4], counts[2]),
                after_static=_captured(self.rewritten, counts[5], counts[3]),
            )

    def _reproduction(self, stop: _Stop) -> Reproduction | None:
        """The smallest calls that show the first difference."""
        seconds = self.options.shrink_seconds
        if stop.status is not Status.DIFFERENT or not seconds or self.inputs is None:
            return None
        difference = stop.differences[0]
        how = Probe(
            self.original,
            self.rewritten,
            difference.mode,
            self._spec(self.original),
            self.backend,
            self.options.leeway,
            self.options.limits,
        )
        return reproduction(self.workers, how, difference, self.inputs, seconds)

    # Jobs

    def _spec(self, side: Side, **how: Any) -> RunSpec:
        assert self.inputs is not None
        return RunSpec(
            side,
            self.inputs,
            dynamic=self.options.dynamic,
            device=self.options.device,
            dtype=self.options.dtype,
            **how,
        )

    def _job(self, spec: RunSpec) -> Job:
        return job("gbfix.verify.execute:run", self.options.limits, spec)

    def _judged(self, runs: Runs, label: str) -> Findings:
        limits = Limits(self.options.limits.seconds, None)
        comparing = job("gbfix.verify.judge:judge", limits, runs, self.options.leeway, label)
        (outcome,) = self.workers.run([comparing])
        if outcome.result is None:
            raise _Stop(Status.NOT_RUN, f"the comparison: {outcome.failure}")
        findings: Findings = pickle.loads(outcome.result)
        return findings

    def _original(self, outcome: Outcome, mode: str) -> RunRecord:
        record = record_of(outcome)
        if record.failure is not None:
            raise _Stop(Status.NOT_RUN, f"the original, {mode}: {record.failure}")
        return record

    def _rewritten(self, outcome: Outcome, mode: str) -> RunRecord:
        record = record_of(outcome)
        if record.failure is None:
            return record
        sentence = f"the rewritten, {mode}: {record.failure}"
        if outcome.exhausted:
            raise _Stop(Status.NOT_RUN, sentence)
        difference = Difference(mode, 0, Kind.EXCEPTION, "", record.failure)
        raise _Stop(Status.DIFFERENT, sentence, [difference])


def _captured(side: Side, record: RunRecord, whole: RunRecord) -> Capture | None:
    """What was captured in a run, and whether the other one shows it in one graph."""
    if record.capture is None:
        return None
    capture = record.capture.with_fullgraph(whole.failure or whole.refused)
    return diagnosed(capture, side.texts)
