"""Verifies one target: has the runs of a session made, the cheap ones first, and gives the verdict.

It needs neither torch nor the user's code in its own process.
"""

from __future__ import annotations

import pickle
import re
import time
from dataclasses import replace

from gbfix.dynamo.records import Capture
from gbfix.errors import UserError
from gbfix.verify.breaks import fewer_breaks, told
from gbfix.verify.compiled import count_breaks_in, run_compiled, stop_if_no_fewer
from gbfix.verify.eager import leave_out_raising, run_eager
from gbfix.verify.messages import Measured, MeasureSpec
from gbfix.verify.options import Options
from gbfix.verify.probing import HALVES, INFERENCE, WAYS, job, record_of
from gbfix.verify.recipes import Inputs
from gbfix.verify.reproduction import reproduction
from gbfix.verify.seeking import find_inputs
from gbfix.verify.session import Session, Stop
from gbfix.verify.targets import Side
from gbfix.verify.timing import timing
from gbfix.verify.verdict import Difference, Evidence, Kind, Reproduction, Status, Verdict
from gbfix.verify.worker import Workers

# What Dynamo says of arms whose results, or operands, do not go together.
_SHAPES = re.compile(
    "merging two branches|strides of the two branches|run FX node with fake tensors"
)


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
    verdict = _verdict(_session(workers, original, rewritten, inputs, options))
    seconds = time.monotonic() - start
    return replace(verdict, evidence=replace(verdict.evidence, seconds=seconds))


def capture_of(
    workers: Workers, side: Side, inputs: Inputs, options: Options | None = None
) -> Capture:
    """What the compiler makes of one side, called with each input.

    Raises:
        UserError: if it cannot be run.
    """
    session = _session(workers, side, side, inputs, options)
    (outcome,) = session.run([session.spec(side, backend=session.backend)])
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
    session = _session(workers, original, rewritten, None, options)
    try:
        find_inputs(session)
    except Stop as stop:
        raise UserError(stop.reason) from stop
    assert session.inputs is not None
    return session.inputs


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
        workers: where it is run.
        side: what is run.
        inputs: what it is called with.
        options: backend, device and limits.
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


def _session(
    workers: Workers,
    original: Side,
    rewritten: Side,
    inputs: Inputs | None,
    options: Options | None,
) -> Session:
    wanted = options or Options()
    evidence = Evidence(device=wanted.device)
    session = Session(workers, original, rewritten, inputs, wanted, evidence)
    session.evidence = replace(evidence, backend=session.backend)
    return session


def _verdict(session: Session) -> Verdict:
    """Make runs until the verdict is known."""
    title = session.original.target.title
    try:
        status, reason = _status(session)
    except Stop as stop:
        partly = _with_fewer_dimensions(session, stop)
        if partly is not None:
            return partly
        return Verdict(
            title,
            stop.status,
            stop.reason,
            stop.differences,
            session.remarks,
            session.evidence,
            _reproduction(session, stop),
        )
    return Verdict(title, status, reason, (), session.remarks, session.evidence)


def _status(session: Session) -> tuple[Status, str]:
    find_inputs(session)
    run_eager(session)
    if session.options.device == "cuda":
        leave_out_raising(session)
    if session.options.only_if_fewer:
        stop_if_no_fewer(session)
    run_compiled(session)
    if session.options.time:
        spec = session.spec(session.original, backend=session.backend)
        found = timing(session.workers, spec, session.rewritten, session.options.limits)
        session.evidence = replace(session.evidence, timing=found)
    if session.options.device == "cuda" and session.options.launches:
        _count_launches(session)
    arms = session.evidence.arms
    fewer, reason = _fewer_breaks(session)
    for label in (INFERENCE, *HALVES):
        if not fewer and label in session.ways:
            plain = session.evidence
            count_breaks_in(session, label)
            fewer, there = _fewer_breaks(session)
            if fewer:
                reason = f"{there},{label}"
            else:
                session.evidence = plain
    if not fewer:
        return Status.NO_FEWER_BREAKS, reason
    if arms.missing:
        return Status.PARTLY_VERIFIED, f"{reason}; {arms} arms run, not {arms.missing[0]}"
    return Status.VERIFIED, f"{reason}; {arms} arms run"


def _fewer_breaks(session: Session) -> tuple[bool, str]:
    before, after = session.evidence.before, session.evidence.after
    assert before is not None and after is not None
    return fewer_breaks(before, after), f"{told(before)} before, {told(after)} after"


def _count_launches(session: Session) -> None:
    """What both sides ask of the device; nothing is known where CUDA graphs refuse them."""
    assert session.inputs is not None
    given = session.inputs, session.options
    found = [
        measured(session.workers, side, *given, mode="reduce-overhead").launches
        for side in (session.original, session.rewritten)
    ]
    session.evidence = replace(session.evidence, launches_before=found[0], launches_after=found[1])


def _with_fewer_dimensions(session: Session, stop: Stop) -> Verdict | None:
    """A verdict for inputs of fewer dimensions, if the compiler refuses those that were guessed.

    Both arms of a `torch.cond` are compiled, and their results have to have one shape. If they have
    not for the shapes that were made up here, they may have for those that people pass.
    """
    if not session.generated or session.inputs is None or stop.status is not Status.DIFFERENT:
        return None
    if session.most_dims is not None or not all(map(_is_refused, stop.differences)):
        return None
    shapes = [shape for call in session.inputs.recipes for shape in call.shapes]
    most = max(map(len, shapes), default=0)
    if not most:
        return None
    options = replace(session.options, shrink_seconds=0)
    other = _session(session.workers, session.original, session.rewritten, None, options)
    other.most_dims = most - 1
    verdict = _verdict(other)
    if verdict.status not in (Status.VERIFIED, Status.PARTLY_VERIFIED):
        return None
    first = stop.differences[0]
    given = session.evidence.inputs[first.call % len(session.evidence.inputs)]
    reason = f"{verdict.reason}; with inputs such as {given} the rewritten does not compile"
    return replace(
        verdict,
        status=Status.PARTLY_VERIFIED,
        reason=reason,
        remarks=(*verdict.remarks, replace(first, detail=f"for {given}: {first.detail}")),
    )


def _is_refused(difference: Difference) -> bool:
    """Whether the compiler does not take a rewritten branch for the shapes of this call."""
    return difference.kind is Kind.EXCEPTION and bool(_SHAPES.search(difference.detail))


def _reproduction(session: Session, stop: Stop) -> Reproduction | None:
    """The smallest calls that show what the verdict stands on."""
    shown, seconds = stop.shown, session.options.shrink_seconds
    if shown is None or not seconds or session.inputs is None:
        return None
    how = session.probe(shown, alone=stop.status is not Status.DIFFERENT)
    if how.label not in WAYS:
        return None  # another backend: the default way does not show it
    if how.fullgraph:
        how = replace(how, backend="eager")
    return reproduction(session.workers, how, shown, session.inputs, seconds)
