"""The eager runs of a session: both sides have to leave the same bits, in every way of calling."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from gbfix.verify.arms import coverage
from gbfix.verify.halves import without_inputs
from gbfix.verify.jobs import Outcome
from gbfix.verify.messages import Findings, Runs, RunSpec
from gbfix.verify.probing import GRADIENTS, HALVES, INFERENCE, record_of
from gbfix.verify.seeking import touched
from gbfix.verify.session import Session, Stop
from gbfix.verify.verdict import Difference, Kind, Status

# What code depends on whose results are others in eval mode or without gradients.
_MODES = re.compile(
    r"\btraining\b|grad_enabled|requires_grad|no_grad|inference_mode|dropout|BatchNorm|is_leaf",
    re.I,
)


def run_eager(session: Session) -> None:
    """Run both sides in eager, and keep the original's calls for the compiled runs.

    Raises:
        Stop: if the two are not the same, or the original does not run.
    """
    ways = _ways(session)
    specs = [_watched(session, "")]
    for label in ways:
        specs += [session.spec(side, label) for side in (session.original, session.rewritten)]
    others = [label for label in ways if label in (INFERENCE, *HALVES)]
    specs += [_watched(session, label) for label in others]
    watched, *outcomes = session.run(specs)
    record = session.of_original(watched, "eager")
    session.seen = {label: record.seen for label in ways if label not in others}
    for label, outcome in zip(others, outcomes[2 * len(ways) :], strict=True):
        session.seen[label] = record_of(outcome).seen
    session.evidence = replace(
        session.evidence,
        inputs=record.inputs,
        made_with=record.made_with,
        calls=record.number_of_calls,
    )
    _cover(session, ways)
    pairs = zip(outcomes[::2], outcomes[1::2], strict=False)
    _judge(session, dict(zip(ways, pairs, strict=False)))
    leave_out_ways(session, [label for label in ways if label not in session.ways])


def leave_out_raising(session: Session) -> None:
    """Keep calls that raise out of compiled runs, and run those that are left in eager again.

    A check that fails on the device takes the process's CUDA context with it, so that nothing
    after it could be compared.
    """
    assert session.inputs is not None
    count = len(session.evidence.inputs)
    only = tuple(n for n in range(count) if n not in session.evidence.raising)
    if 0 < len(only) < count:
        eager = session.evidence
        session.inputs = replace(session.inputs, only=only)
        run_eager(session)
        session.evidence = replace(session.evidence, arms=eager.arms, raising=eager.raising)


def _ways(session: Session) -> list[str]:
    """Plain calls; with gradients; and as models are used, where the code speaks of such modes."""
    texts = (*session.original.texts, *session.rewritten.texts)
    modes = any(_MODES.search(text) for _, text in texts)
    gradients = [GRADIENTS] if session.options.gradients else []
    return ["", *gradients, *([INFERENCE] if modes else []), *_halves(session)]


def _halves(session: Session) -> list[str]:
    """All converted to half precision, where the code speaks of it and no inputs alone may have it."""
    if not session.generated or session.options.dtype is not None or session.inputs is None:
        return []
    sides = session.original, session.rewritten
    names = {name for side in sides for name in without_inputs(side, session.inputs.recipes)}
    return [label for label, name in HALVES.items() if name in names or name in session.halves]


def _watched(session: Session, label: str) -> RunSpec:
    return session.spec(session.original, label, watch=True)


def leave_out_ways(session: Session, labels: Collection[str]) -> None:
    """Have no compiled runs in some ways; what is only reached in these is then not reached."""
    for label in labels:
        session.ways.pop(label, None)
    session.evidence = replace(
        session.evidence,
        gradients=GRADIENTS in session.ways,
        inference=INFERENCE in session.ways,
        halves=tuple(name for label, name in HALVES.items() if label in session.ways),
    )
    if labels:
        _cover(session, session.ways)


def _cover(session: Session, ways: Iterable[str]) -> None:
    goal = touched(session)
    seen = frozenset().union(*(session.seen.get(label, ()) for label in ways))
    arms = coverage(goal.branches, seen, goal.files, goal.decided)
    session.evidence = replace(session.evidence, arms=arms)


def _judge(session: Session, outcomes: dict[str, tuple[Outcome, Outcome]]) -> None:
    """Compare the two sides, way by way."""
    ways: list[tuple[Runs, str]] = []
    failed: Stop | None = None
    for label, (original, rewritten) in outcomes.items():
        if label in HALVES and record_of(original).failure is not None:
            continue
        try:
            ways.append((_pair(session, label, original, rewritten), label))
        except Stop as stop:
            if not label:
                raise
            failed = failed or stop  # told if plain calls have nothing to tell
    findings = session.judged(ways)
    _check_original(session, findings[0])
    # What needs gradients is not called without, nor in a type that it does not take.
    unfit = {
        label
        for (_, label), found in zip(ways, findings, strict=True)
        if label in (INFERENCE, *HALVES) and _raises_more(found, findings[0])
    }
    for (runs, label), found in zip(ways, findings, strict=True):
        if label in unfit and label in HALVES:
            continue
        session.remarks = (*session.remarks, *found.remarks)
        differences = _without_own(session, label, runs, found.differences)
        if differences:
            raise Stop(Status.DIFFERENT, str(differences[0]), differences)
    if failed is not None:
        raise failed
    if not any(found.has_gradients for found in findings):
        session.ways.pop(GRADIENTS, None)
    for label in unfit:
        session.ways.pop(label)


def _raises_more(found: Findings, plain: Findings) -> bool:
    pairs = zip(plain.original_errors, found.original_errors, strict=False)
    return any(error and not in_plain for in_plain, error in pairs)


def _pair(session: Session, label: str, first: Outcome, second: Outcome) -> Runs:
    """The eager runs of one way of calling."""
    original = session.of_original(first, f"eager{label}")
    rewritten = session.of_rewritten(second, f"eager{label}")
    session.ways[label] = Runs(original.calls)
    if original.always_compiled and rewritten.always_compiled:
        return session.ways[label]
    return Runs(original.calls, rewritten.calls)


def _check_original(session: Session, plain: Findings) -> None:
    """See that some call of the original runs, and keep which do not."""
    errors = plain.original_errors[: len(session.evidence.inputs)]
    raising = tuple(number for number, error in enumerate(errors) if error is not None)
    session.evidence = replace(session.evidence, raising=raising)
    if plain.out_of_memory:
        raise Stop(Status.NOT_RUN, "the original ran out of memory")
    if all(plain.original_errors):
        reason = str(plain.original_errors[0])
        shown = Difference("eager", 0, Kind.EXCEPTION, "", reason)
        raise Stop(Status.FAILS_EAGER, reason, shown=shown)


def _without_own(
    session: Session, label: str, runs: Runs, differences: Sequence[Difference]
) -> tuple[Difference, ...]:
    """The differences without those between one run of the original and the next.

    What a module keeps or prints of a clock differs from run to run; it becomes a remark. A result
    that does is no result that could be compared, so it stays a difference.
    """
    if not differences:
        return ()
    (outcome,) = session.run([session.spec(session.original, label)])
    again = session.of_original(outcome, f"eager{label}")
    (own,) = session.judged([(Runs(runs.original_eager, again.calls), label)])
    varying = [d for d in own.differences if d.place.startswith("state") or _is_clock(d)]
    session.varying |= {(d.kind, d.place) for d in varying}
    if any(
        d.place == "stderr" for d in varying
    ):  # how often a bar is drawn depends on the clock, too
        session.varying |= {(kind, "stderr") for kind in (Kind.EFFECT, Kind.EFFECT_DROPPED)}
    session.remarks = (*session.remarks, *varying)
    return session.steady(differences)


def _is_clock(own: Difference) -> bool:
    """Whether the original prints other figures each time, or draws a bar of its progress."""
    drawn = own.place == "stderr" and own.kind in (Kind.EFFECT, Kind.EFFECT_DROPPED)
    return own.kind is Kind.EFFECT_NUMBERS or drawn
