"""Verifies one target: makes the runs in workers, has them judged, and gives the verdict.

It needs neither torch nor the user's code in its own process.
"""

from __future__ import annotations

import os
import pickle
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gbfix.dynamo.backends import default_backend
from gbfix.dynamo.records import Capture
from gbfix.errors import UserError
from gbfix.verify.arms import Branch, concerned, coverage, rewritten_branches
from gbfix.verify.breaks import fewer_breaks, told
from gbfix.verify.constants import decided_once
from gbfix.verify.diagnosing import diagnosed
from gbfix.verify.jobs import Job, Limits, Outcome
from gbfix.verify.messages import (
    Findings,
    Generated,
    Measured,
    MeasureSpec,
    RunRecord,
    Runs,
    RunSpec,
    SearchSpec,
)
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
        further_backends: backends on which the rewritten code is run too, with gradients if it has any.
        gradients: whether to compare gradients as well.
        fullgraph_before: whether to ask if the original compiles as one graph.
        leeway: differences that compiled runs may show; they are told, but do not count.
        launches: whether host syncs and CUDA-graph launches are counted, where there is CUDA.
        search_seconds: how long to search for inputs.
        both_dynamic: whether breaks are counted with `dynamic=False` as well.
        time: whether latencies are measured as well, where nothing is different.
        shrink_seconds: how long to look for a smaller input that shows a difference; 0 for not at all.
    """

    backend: str | None = None
    further_backends: tuple[str, ...] = ()
    device: str = "cpu"
    dtype: str | None = None
    dynamic: bool | None = None
    gradients: bool = True
    fullgraph_before: bool = True
    leeway: frozenset[Kind] = REVIEW
    limits: Limits = field(default_factory=Limits)
    launches: bool = True
    search_seconds: float = 30.0
    shrink_seconds: float = 20.0
    both_dynamic: bool = True
    time: bool = False


# What Dynamo says of arms whose results, or operands, do not go together.
_SHAPES = re.compile(
    "merging two branches|strides of the two branches|run FX node with fake tensors"
)


@dataclass(frozen=True)
class _Way:
    """One way of running compiled: its label among the eager ways, its backend, its own name."""

    label: str
    backend: str
    added: str | None = None
    fullgraph: bool = False

    @property
    def name(self) -> str:
        """What is added to the names of modes in differences."""
        return self.label if self.added is None else self.added

    @property
    def gradients(self) -> bool:
        """Whether gradients are asked for."""
        return self.label == GRADIENTS

    def spec(self, side: RunSpec) -> RunSpec:
        """How a side is run in this way."""
        return replace(
            side, backend=self.backend, fullgraph=self.fullgraph, gradients=self.gradients
        )


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


def capture_of(
    workers: Workers, side: Side, inputs: Inputs, options: Options | None = None
) -> Capture:
    """What the compiler makes of one side, called with each input.

    Raises:
        UserError: if it cannot be run.
    """
    wanted = options or Options()
    check = _Check(workers, side, side, inputs, wanted)
    spec = check._spec(side, backend=wanted.backend or default_backend())
    (outcome,) = workers.run([check._job(spec)])
    record = record_of(outcome)
    if record.capture is None:
        raise UserError(f"{side.target.title}: {record.failure}")
    return record.capture


def inputs_for(
    workers: Workers, original: Side, rewritten: Side, options: Options | None = None
) -> Inputs:
    """Generate inputs that reach the arms of the branches that a rewrite touches.

    Raises:
        UserError: if none are found with which the original runs.
    """
    check = _Check(workers, original, rewritten, None, options or Options())
    try:
        check._find_inputs()
    except _Stop as stop:
        raise UserError(stop.reason) from stop
    assert check.inputs is not None
    return check.inputs


def measured(
    workers: Workers,
    side: Side,
    inputs: Inputs,
    options: Options | None = None,
    *,
    mode: str | None = None,
    lock: str | None = None,
) -> Measured:
    """How fast one side is in use, and what it asks of the device.

    Args:
        mode: what to give to `torch.compile` in place of the options' backend.
        lock: a file whose holder alone times its calls, where several are measured at once.
    """
    wanted = options or Options()
    backend = None if mode is not None else wanted.backend
    spec = MeasureSpec(side, inputs, backend, mode, wanted.device, wanted.dtype, lock=lock)
    (outcome,) = workers.run([job("gbfix.verify.measuring:measure", wanted.limits, spec)])
    if outcome.result is None:
        return Measured(failure=outcome.failure or "it did not end")
    found: Measured = pickle.loads(outcome.result)
    return found


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
        self.generated: Inputs | None = None
        self.most_dims: int | None = None
        self.varying: set[tuple[Kind, str]] = set()

    def verdict(self) -> Verdict:
        """Make the runs, the cheap ones first, until the verdict is known."""
        title = self.original.target.title
        try:
            status, reason = self._status()
        except _Stop as stop:
            partly = self._with_fewer_dimensions(stop)
            if partly is not None:
                return partly
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

    def _with_fewer_dimensions(self, stop: _Stop) -> Verdict | None:
        """A verdict for inputs of fewer dimensions, if the compiler refuses those that were guessed.

        Both arms of a `torch.cond` are compiled, and their results have to have one shape. If they have
        not for the shapes that were made up here, they may have for those that people pass.
        """
        if self.generated is None or stop.status is not Status.DIFFERENT:
            return None
        if self.most_dims is not None or not all(map(_is_refused, stop.differences)):
            return None
        shapes = [shape for call in self.generated.recipes for shape in call.shapes]
        most = max(map(len, shapes), default=0)
        if not most:
            return None
        options = replace(self.options, shrink_seconds=0)
        other = _Check(self.workers, self.original, self.rewritten, None, options)
        other.most_dims = most - 1
        verdict = other.verdict()
        if verdict.status not in (Status.VERIFIED, Status.PARTLY_VERIFIED):
            return None
        first = stop.differences[0]
        given = self.evidence.inputs[first.call % len(self.evidence.inputs)]
        reason = f"{verdict.reason}; with inputs such as {given} the rewritten does not compile"
        return replace(
            verdict,
            status=Status.PARTLY_VERIFIED,
            reason=reason,
            remarks=(*verdict.remarks, replace(first, detail=f"for {given}: {first.detail}")),
        )

    def _status(self) -> tuple[Status, str]:
        self.backend = self.options.backend or default_backend()
        self.evidence = replace(self.evidence, backend=self.backend)
        self._find_inputs()
        self._eager()
        if self.options.device == "cuda":
            self._leave_out_raising()
        self._compiled()
        if self.options.time:
            spec = self._spec(self.original, backend=self.backend)
            measured = timing(self.workers, spec, self.rewritten, self.options.limits)
            self.evidence = replace(self.evidence, timing=measured)
        if self.options.device == "cuda" and self.options.launches:
            self._count_launches()
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
        saved = self.inputs.saved if self.inputs is not None else ()
        if self.inputs is not None and not saved:
            return
        touched, files, decided = self._touched()
        spec = SearchSpec(
            self.original,
            touched,
            files,
            "".join(text for _, text in self.rewritten.texts),
            decided,
            self.options.search_seconds,
            self.options.device,
            self.options.dtype,
            self.most_dims,
            saved,
        )
        limits = replace(
            self.options.limits,
            seconds=self.options.limits.seconds + self.options.search_seconds,
        )
        (outcome,) = self.workers.run([job("gbfix.verify.inputs:generate", limits, spec)])
        if outcome.result is None:
            if saved:  # what was stored is enough to run
                return
            raise _Stop(Status.NOT_RUN, f"the search for inputs: {outcome.failure}")
        generated: Generated = pickle.loads(outcome.result)
        if generated.inputs is None:
            raise _Stop(Status.NOT_RUN, str(generated.failure))
        self.inputs = generated.inputs
        if not saved:
            self.generated = generated.inputs

    def _touched(self) -> tuple[frozenset[Branch], frozenset[str], frozenset[Branch]]:
        """The branches that the rewrite touches, the files that it is about, what is decided once."""
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
        decided = [decided_once(path, text, other) for path, (text, other) in versions.items()]
        return (
            frozenset(touched),
            frozenset(changed | ({own} if own else set())),
            frozenset().union(*decided),
        )

    def _eager(self) -> None:
        ways = [
            self._spec(self.original),
            self._spec(self.rewritten),
            self._spec(self.original, watch=True),
        ]
        if self.options.gradients:
            ways += [replace(spec, gradients=True) for spec in ways[:2]]
        outcomes = self.workers.run([self._job(spec) for spec in ways])
        watched = self._original(outcomes[2], "eager")
        touched, files, decided = self._touched()
        self.evidence = replace(
            self.evidence,
            inputs=watched.inputs,
            calls=watched.number_of_calls,
            arms=coverage(touched, watched.seen, files, decided),
        )
        self._judge_eager(outcomes)

    def _judge_eager(self, outcomes: Sequence[Outcome]) -> None:
        """Compare the eager runs, and keep the original's for the compiled ones."""
        ways = [self._eager_way("", outcomes)]
        failed: _Stop | None = None
        if self.options.gradients:
            try:
                ways.append(self._eager_way(GRADIENTS, outcomes[3:]))
            except _Stop as stop:  # told if plain calls have nothing to tell
                failed = stop
        findings = self._judged(ways)
        plain = findings[0]
        errors = enumerate(plain.original_errors[: len(self.evidence.inputs)])
        raising = tuple(number for number, error in errors if error is not None)
        self.evidence = replace(self.evidence, raising=raising)
        if plain.out_of_memory:
            raise _Stop(Status.NOT_RUN, "the original ran out of memory")
        if all(plain.original_errors):
            raise _Stop(Status.FAILS_EAGER, str(plain.original_errors[0]))
        for (runs, label), found in zip(ways, findings, strict=True):
            self.remarks = (*self.remarks, *found.remarks)
            differences = self._without_own(label, runs, found.differences)
            if differences:
                raise _Stop(Status.DIFFERENT, str(differences[0]), differences)
        if failed is not None:
            raise failed
        if any(found.has_gradients for found in findings):
            self.evidence = replace(self.evidence, gradients=True)
        else:
            self.ways.pop(GRADIENTS, None)

    def _without_own(
        self, label: str, runs: Runs, differences: Sequence[Difference]
    ) -> tuple[Difference, ...]:
        """The differences without those between one run of the original and the next.

        What a module keeps of a clock differs from run to run; it becomes a remark. A result that
        does is no result that could be compared, so it stays a difference.
        """
        if not differences:
            return ()
        spec = self._spec(self.original, gradients=label == GRADIENTS)
        (outcome,) = self.workers.run([self._job(spec)])
        again = self._original(outcome, f"eager{label}")
        (own,) = self._judged([(Runs(runs.original_eager, again.calls), label)])
        own_state = [d for d in own.differences if d.place.startswith("state")]
        self.varying |= {(d.kind, d.place) for d in own_state}
        self.remarks = (*self.remarks, *own_state)
        return self._steady(differences)

    def _steady(self, differences: Iterable[Difference]) -> tuple[Difference, ...]:
        """Those that are not in a place where the original differs from itself."""
        return tuple(d for d in differences if (d.kind, d.place) not in self.varying)

    def _leave_out_raising(self) -> None:
        """Keep calls that raise out of compiled runs, and run those that are left in eager again.

        A check that fails on the device takes the process's CUDA context with it, so that nothing
        after it could be compared.
        """
        assert self.inputs is not None
        count = len(self.evidence.inputs)
        only = tuple(n for n in range(count) if n not in self.evidence.raising)
        if 0 < len(only) < count:
            eager = self.evidence
            self.inputs = replace(self.inputs, only=only)
            self._eager()
            self.evidence = replace(self.evidence, arms=eager.arms, raising=eager.raising)

    def _count_launches(self) -> None:
        """What both sides ask of the device; nothing is known where CUDA graphs refuse them."""
        assert self.inputs is not None
        found = [
            measured(self.workers, side, self.inputs, self.options, mode="reduce-overhead").launches
            for side in (self.original, self.rewritten)
        ]
        self.evidence = replace(self.evidence, launches_before=found[0], launches_after=found[1])

    def _eager_way(self, label: str, outcomes: Sequence[Outcome]) -> tuple[Runs, str]:
        """The eager runs of one way of calling."""
        original = self._original(outcomes[0], f"eager{label}")
        rewritten = self._rewritten(outcomes[1], f"eager{label}")
        self.ways[label] = Runs(original.calls)
        if original.always_compiled and rewritten.always_compiled:
            return self.ways[label], label
        return Runs(original.calls, rewritten.calls), label

    # Compiled runs

    def _compiled(self) -> None:
        ways = self._ways()
        specs = [self._spec(self.original, backend=self.backend)]
        specs += [way.spec(self._spec(self.rewritten)) for way in ways]
        still = self._still_specs()
        if self.options.fullgraph_before:
            specs.append(ways[-1].spec(self._spec(self.original)))
        outcomes = self.workers.run([self._job(spec) for spec in (*specs, *still)])
        original = self._original(outcomes[0], "compiled")
        counts = [record_of(outcome) for outcome in outcomes[len(ways) :]]
        whole = counts[0]
        runs: dict[_Way, Runs] = {}
        for way, outcome in zip(ways, outcomes[1:], strict=False):
            if way.fullgraph and (whole.failure or whole.refused) is not None:
                continue
            record = self._rewritten(outcome, f"compiled{way.name}")
            eager = self.ways[way.label]
            runs[way] = replace(eager, rewritten_compiled=record.calls)
            if way == ways[0]:
                runs[way] = replace(runs[way], original_compiled=original.calls)
                self._count_breaks(original, record, counts)
        findings = self._judged_fully(runs)
        self.remarks = (*self.remarks, *(text for found in findings for text in found.remarks))
        differences = self._steady(d for found in findings for d in found.differences)
        failures = [error for found in findings for error in found.compiler_errors]
        if failures:
            raise _Stop(Status.FAILS_COMPILED, failures[0], differences)
        if differences:
            raise _Stop(Status.DIFFERENT, str(differences[0]), differences)

    def _without_excess(self, way: _Way, runs: Runs, found: Findings) -> Findings:
        """The findings, with differences that come only from Inductor's own precision as remarks."""
        if way.backend != "inductor" or not any(d.kind is Kind.VALUE for d in found.differences):
            return found
        ways = [
            replace(way.spec(self._spec(side)), emulate_precision_casts=True)
            for side in (self.original, self.rewritten)
        ]
        first, second = map(record_of, self.workers.run([self._job(spec) for spec in ways]))
        if first.failure is not None or second.failure is not None:
            return found
        emulated = replace(runs, original_compiled=first.calls, rewritten_compiled=second.calls)
        given = runs, emulated, found.differences, self.options.leeway, way.name
        limits = Limits(self.options.limits.seconds, None)
        (outcome,) = self.workers.run([job("gbfix.verify.judge:excess_precision", limits, *given)])
        if outcome.result is None:
            return found
        excess: tuple[Difference, ...] = pickle.loads(outcome.result)
        gone = {(d.call, d.kind, d.place) for d in excess}
        left = tuple(d for d in found.differences if (d.call, d.kind, d.place) not in gone)
        return replace(found, differences=left, remarks=(*found.remarks, *excess))

    def _still_specs(self) -> list[RunSpec]:
        """The runs with `dynamic=False`: both sides, each also as one graph."""
        if not self.options.both_dynamic or self.options.dynamic is not None:
            return []
        sides = [self._spec(side, backend="eager") for side in (self.original, self.rewritten)]
        return [
            replace(spec, dynamic=False, fullgraph=fullgraph)
            for spec in sides
            for fullgraph in (False, True)
        ]

    def _ways(self) -> list[_Way]:
        """How the rewritten code is run compiled: plainly first, and at last as one graph."""
        ways = [_Way(label, self.backend) for label in self.ways]
        for backend in self.options.further_backends:
            ways.append(_Way(ways[-1].label, backend, f"{ways[-1].label}, {backend}"))
        # Whether one graph holds everything is Dynamo's answer; no backend has to be waited for.
        return [*ways, _Way("", "eager", ", fullgraph", fullgraph=True)]

    def _judged_fully(self, runs: dict[_Way, Runs]) -> list[Findings]:
        """Judge each way, and those that show anything once more with all that may excuse it.

        The original's own compiled run and its float64 reference only ever widen what is allowed, so
        most targets do not need them.
        """
        findings = dict(
            zip(runs, self._judged([(runs[way], way.name) for way in runs]), strict=True)
        )
        doubtful = [way for way in runs if findings[way].differences or findings[way].remarks]
        missing = [way for way in doubtful if runs[way].original_compiled is None]
        specs = [way.spec(self._spec(self.original)) for way in missing]
        specs += [
            self._spec(self.original, gradients=way.gradients, reference=True) for way in doubtful
        ]
        outcomes = self.workers.run([self._job(spec) for spec in specs])
        for way, outcome in zip(missing, outcomes, strict=False):
            compiled = self._original(outcome, f"compiled{way.name}")
            if not (way.fullgraph and compiled.refused):
                runs[way] = replace(runs[way], original_compiled=compiled.calls)
        for way, outcome in zip(doubtful, outcomes[len(missing) :], strict=True):
            runs[way] = replace(runs[way], reference=record_of(outcome).calls or None)
        judged = self._judged([(runs[way], way.name) for way in doubtful])
        for way, found in zip(doubtful, judged, strict=True):
            findings[way] = self._without_excess(way, runs[way], found)
        return list(findings.values())

    def _count_breaks(
        self, first: RunRecord, second: RunRecord, counts: Sequence[RunRecord]
    ) -> None:
        """Keep what was captured.

        `counts` are the runs as one graph, the rewritten's first; the original's may be missing. Then
        come those with `dynamic=False`, if any.
        """
        after, *others = counts
        before = others.pop(0) if self.options.fullgraph_before else None
        self.evidence = replace(
            self.evidence,
            before=_captured(self.original, first, before),
            after=_captured(self.rewritten, second, after),
        )
        if others:
            self.evidence = replace(
                self.evidence,
                before_static=_captured(self.original, others[0], others[1]),
                after_static=_captured(self.rewritten, others[2], others[3]),
            )

    def _reproduction(self, stop: _Stop) -> Reproduction | None:
        """The smallest calls that show the first difference."""
        seconds = self.options.shrink_seconds
        if stop.status is not Status.DIFFERENT or not seconds or self.inputs is None:
            return None
        difference = stop.differences[0]
        if not difference.mode.endswith(("eager", "compiled", GRADIENTS)):
            return None  # another backend, or one graph: the default way does not show it
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

    def _judged(self, runs: Sequence[tuple[Runs, str]]) -> tuple[Findings, ...]:
        """Have runs compared, each with what to add to the names of its modes."""
        if not runs:
            return ()
        limits = Limits(self.options.limits.seconds, None)
        comparing = job("gbfix.verify.judge:judge_all", limits, tuple(runs), self.options.leeway)
        (outcome,) = self.workers.run([comparing])
        if outcome.result is None:
            raise _Stop(Status.NOT_RUN, f"the comparison: {outcome.failure}")
        findings: tuple[Findings, ...] = pickle.loads(outcome.result)
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


def _is_refused(difference: Difference) -> bool:
    """Whether the compiler does not take a rewritten branch for the shapes of this call."""
    return difference.kind is Kind.EXCEPTION and bool(_SHAPES.search(difference.detail))


def _captured(side: Side, record: RunRecord, whole: RunRecord | None) -> Capture | None:
    """What was captured in a run, and whether the other one, if any, shows it in one graph."""
    capture = record.capture
    if capture is None:
        return None
    if whole is not None:
        capture = capture.with_fullgraph(whole.failure or whole.refused)
    return diagnosed(capture, side.texts)
