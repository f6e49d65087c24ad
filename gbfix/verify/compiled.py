"""The compiled runs of a session: the rewritten side against the original's eager run, and the breaks.

What the original's own compiled run does otherwise is not the rewrite's fault, and how far it is off
is what the rewrite may be off as well. Those runs are made only where something is to be excused.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gbfix.dynamo.records import Capture
from gbfix.verify.breaks import fewer_breaks, told
from gbfix.verify.diagnosing import diagnosed
from gbfix.verify.eager import leave_out_ways
from gbfix.verify.jobs import Limits, Outcome
from gbfix.verify.messages import Findings, RunRecord, Runs, RunSpec
from gbfix.verify.probing import FULLGRAPH, HALVES, INFERENCE, job, record_of
from gbfix.verify.session import Session, Stop
from gbfix.verify.targets import Side
from gbfix.verify.verdict import Difference, Kind, Status


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

    def spec(self, session: Session, side: Side) -> RunSpec:
        """How a side is run in this way."""
        return session.spec(side, self.label, backend=self.backend, fullgraph=self.fullgraph)


def run_compiled(session: Session) -> None:
    """Run the rewritten side compiled in every way, and count the breaks of both sides.

    Raises:
        Stop: if it is not the same as the original in eager, or the original itself is not.
    """
    ways = _ways(session)
    original_specs = [session.spec(session.original, backend=session.backend)]
    specs = [*original_specs, *(way.spec(session, session.rewritten) for way in ways)]
    if session.options.fullgraph_before:
        specs.append(ways[-1].spec(session, session.original))
    outcomes = session.run([*specs, *_static_specs(session)])
    original = session.of_original(outcomes[0], "compiled")
    counts = [record_of(outcome) for outcome in outcomes[len(ways) :]]
    whole = counts[0]
    runs: dict[_Way, Runs] = {}
    for way, outcome in zip(ways, outcomes[1:], strict=False):
        if way.fullgraph and (whole.failure or whole.refused) is not None:
            continue
        record = session.of_rewritten(outcome, f"compiled{way.name}")
        runs[way] = replace(session.ways[way.label], rewritten_compiled=record.calls)
        if way == ways[0]:
            runs[way] = replace(runs[way], original_compiled=original.calls)
            _count_breaks(session, original, record, counts)
    known = {ways[-1]: outcomes[len(ways) + 1]} if session.options.fullgraph_before else {}
    findings = _judged_fully(session, runs, known)
    # The compiler need not know a type that nobody asked for.
    unknown = [way for way in runs if way.label in HALVES and findings[way].compiler_errors]
    if unknown:
        leave_out_ways(session, [way.label for way in unknown])
    shown = [findings[way] for way in runs if way not in unknown]
    session.remarks = (*session.remarks, *(text for found in shown for text in found.remarks))
    differences = session.steady(d for found in shown for d in found.differences)
    failures = [error for found in shown for error in found.compiler_errors]
    if failures:
        raise Stop(Status.FAILS_COMPILED, failures[0].detail, differences, failures[0])
    if differences:
        raise Stop(Status.DIFFERENT, str(differences[0]), differences)


def count_breaks_in(session: Session, label: str) -> None:
    """Count the breaks in another way of calling, for code that breaks nowhere else."""
    sides = (session.original, session.rewritten)
    specs = [session.spec(side, label, backend="eager") for side in sides]
    wholes = [replace(spec, fullgraph=True) for spec in specs]
    records = [record_of(outcome) for outcome in session.run([*specs, *wholes])]
    if all(record.capture is not None for record in records[:2]):
        session.evidence = replace(
            session.evidence,
            before=_captured(session.original, records[0], records[2]),
            after=_captured(session.rewritten, records[1], records[3]),
            before_static=None,
            after_static=None,
        )


def stop_if_no_fewer(session: Session) -> None:
    """Count the breaks in each way of calling, without a backend; the rewrite's only if it can help.

    Raises:
        Stop: if the rewritten side breaks no less in any way of calling.
    """
    shown: tuple[str, Capture, Capture | None] | None = None
    for labels in (("", INFERENCE), HALVES):
        used = [label for label in labels if label in session.ways]
        for label, before in zip(used, _captures(session, session.original, used), strict=True):
            if before is None:
                return
            after = None
            if not before.whole:
                (after,) = _captures(session, session.rewritten, [label])
                if after is None or fewer_breaks(before, after):
                    return
            if shown is None or (after is not None and shown[2] is None):
                shown = label, before, after
    assert shown is not None
    label, before, after = shown
    session.evidence = replace(session.evidence, backend="eager", before=before, after=after)
    reason = f"{told(before)} before" + (f", {told(after)} after" if after is not None else "")
    raise Stop(Status.NO_FEWER_BREAKS, f"{reason},{label}" if label else reason)


def _captures(session: Session, side: Side, labels: Sequence[str]) -> list[Capture | None]:
    records = map(record_of, session.run(session.spec(side, w, backend="eager") for w in labels))
    return [_captured(side, record, None) for record in records]


def _ways(session: Session) -> list[_Way]:
    """How the rewritten code is run compiled: plainly first, and at last as one graph."""
    ways = [_Way(label, session.backend) for label in session.ways]
    for backend in session.options.further_backends:
        ways.append(_Way(ways[-1].label, backend, f"{ways[-1].label}, {backend}"))
    # Whether one graph holds everything is Dynamo's answer; no backend has to be waited for.
    return [*ways, _Way("", "eager", FULLGRAPH, fullgraph=True)]


def _static_specs(session: Session) -> list[RunSpec]:
    """The runs with `dynamic=False`: both sides, each also as one graph."""
    if not session.options.both_dynamic or session.options.dynamic is not None:
        return []
    sides = [session.spec(side, backend="eager") for side in (session.original, session.rewritten)]
    return [
        replace(spec, dynamic=False, fullgraph=fullgraph)
        for spec in sides
        for fullgraph in (False, True)
    ]


def _judged_fully(
    session: Session, runs: dict[_Way, Runs], known: Mapping[_Way, Outcome]
) -> dict[_Way, Findings]:
    """Judge each way, and those that show anything once more with all that may excuse it.

    The original's own compiled run and its float64 reference only ever widen what is allowed, so
    most targets do not need them. `known` are runs of the original that have been made.
    """
    first = session.judged([(runs[way], way.name) for way in runs])
    findings = dict(zip(runs, first, strict=True))
    doubtful = [way for way in runs if findings[way].differences or findings[way].remarks]
    # What follows another run in its process sees no warning that torch gives once in a process.
    alone = [way for way in doubtful if way.fullgraph]
    known = {way: outcome for way, outcome in known.items() if way not in alone}
    for way, outcome in zip(
        alone, session.run([way.spec(session, session.rewritten) for way in alone]), strict=True
    ):
        record = record_of(outcome)
        if record.failure is None and not record.refused:
            runs[way] = replace(runs[way], rewritten_compiled=record.calls)
    missing = [way for way in doubtful if runs[way].original_compiled is None]
    unknown = [way for way in missing if way not in known]
    specs = [way.spec(session, session.original) for way in unknown]
    specs += [session.spec(session.original, way.label, reference=True) for way in doubtful]
    outcomes = session.run(specs)
    own = {**known, **dict(zip(unknown, outcomes, strict=False))}
    for way in missing:
        compiled = session.of_original(own[way], f"compiled{way.name}")
        if not (way.fullgraph and compiled.refused):
            runs[way] = replace(runs[way], original_compiled=compiled.calls)
    for way, outcome in zip(doubtful, outcomes[len(unknown) :], strict=True):
        runs[way] = replace(runs[way], reference=record_of(outcome).calls or None)
    judged = session.judged([(runs[way], way.name) for way in doubtful])
    for way, found in zip(doubtful, judged, strict=True):
        findings[way] = _without_excess(session, way, runs[way], found)
    return findings


def _without_excess(session: Session, way: _Way, runs: Runs, found: Findings) -> Findings:
    """The findings, with differences that come only from Inductor's own precision as remarks."""
    if way.backend != "inductor" or not any(d.kind is Kind.VALUE for d in found.differences):
        return found
    specs = [
        replace(way.spec(session, side), emulate_precision_casts=True)
        for side in (session.original, session.rewritten)
    ]
    first, second = map(record_of, session.run(specs))
    if first.failure is not None or second.failure is not None:
        return found
    emulated = replace(runs, original_compiled=first.calls, rewritten_compiled=second.calls)
    given = runs, emulated, found.differences, session.options.leeway, way.name
    limits = Limits(session.options.limits.seconds, None)
    (outcome,) = session.workers.run([job("gbfix.verify.judge:excess_precision", limits, *given)])
    if outcome.result is None:
        return found
    excess: tuple[Difference, ...] = pickle.loads(outcome.result)
    gone = {(d.call, d.kind, d.place) for d in excess}
    left = tuple(d for d in found.differences if (d.call, d.kind, d.place) not in gone)
    return replace(found, differences=left, remarks=(*found.remarks, *excess))


def _count_breaks(
    session: Session, first: RunRecord, second: RunRecord, counts: Sequence[RunRecord]
) -> None:
    """Keep what was captured.

    `counts` are the runs as one graph, the rewritten's first; the original's may be missing. Then
    come those with `dynamic=False`, if any.
    """
    after, *others = counts
    before = others.pop(0) if session.options.fullgraph_before else None
    session.evidence = replace(
        session.evidence,
        before=_captured(session.original, first, before),
        after=_captured(session.rewritten, second, after),
    )
    if others:
        session.evidence = replace(
            session.evidence,
            before_static=_captured(session.original, others[0], others[1]),
            after_static=_captured(session.rewritten, others[2], others[3]),
        )


def _captured(side: Side, record: RunRecord, whole: RunRecord | None) -> Capture | None:
    """What was captured in a run, and whether the other one, if any, shows it in one graph."""
    capture = record.capture
    if capture is None:
        return None
    if whole is not None:
        capture = capture.with_fullgraph(whole.failure or whole.refused, whole.taken)
    return diagnosed(capture, side.texts)
