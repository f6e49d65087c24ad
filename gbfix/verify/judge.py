"""Turns the calls of all runs of a target into what they show: differences and remarks.

It runs in a worker, where tensors can be unpickled, and returns values that need no torch. It decides
which differences matter; what a status is called is decided by the checker.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from gbfix.verify.compare import differences
from gbfix.verify.messages import Findings, Runs
from gbfix.verify.snapshot import CallShot, TensorShot
from gbfix.verify.tolerance import Tolerance, derive
from gbfix.verify.verdict import ADDED, Difference, Kind


@dataclass
class _Split:
    """Differences sorted into those that count and those that are only told."""

    allowed: frozenset[Kind]
    counting: list[Difference] = field(default_factory=list)
    told: list[Difference] = field(default_factory=list)

    def add(self, found: Iterable[Difference], allowed: frozenset[Kind]) -> None:
        for difference in found:
            (self.told if difference.kind in allowed else self.counting).append(difference)


def judge_all(runs: Sequence[tuple[Runs, str]], leeway: frozenset[Kind]) -> tuple[Findings, ...]:
    """Judge several ways of calling, each with its label, one after the other."""
    return tuple(judge(one, leeway, label) for one, label in runs)


def judge(runs: Runs, leeway: frozenset[Kind], label: str) -> Findings:
    """Compare everything with the original's eager run.

    Args:
        runs: the calls.
        leeway: kinds of differences that compiled runs may show.
        label: what to add to the names of the modes; empty for plain calls.
    """
    eager = _calls(runs.original_eager) or ()
    split = _Split(leeway)
    rewritten = _calls(runs.rewritten_eager)
    if rewritten is not None:
        split.add(differences(f"eager{label}", eager, rewritten), ADDED)
    original = _calls(runs.original_compiled)
    compiled = _calls(runs.rewritten_compiled)
    if compiled is not None:
        tolerance = derive(eager, original or (), _calls(runs.reference) or ())
        mode = f"compiled{label}"
        found = differences(mode, eager, compiled, tolerance)
        if original is not None:
            found = _not_shared(found, eager, original, compiled, tolerance)
        split.add(found, leeway)
    return Findings(
        tuple(split.counting),
        tuple(split.told),
        tuple(str(shot.raised) if shot.raised else None for shot in eager),
        _compiler_errors(f"compiled{label}", eager, original or ()),
        any(shot.raised is not None and shot.raised.out_of_memory for shot in eager),
        any(_has_gradient(shot) for shot in eager),
    )


def excess_precision(
    runs: Runs, emulated: Runs, found: Sequence[Difference], leeway: frozenset[Kind], label: str
) -> tuple[Difference, ...]:
    """Those differences that come from precision which Inductor keeps and eager rounds away.

    They are gone if both sides are compiled with `emulate_precision_casts`, judged as strictly: the
    tolerance is then what the original's own emulated run is off by. Each tells both figures.

    Args:
        runs: the calls, compiled as usual.
        emulated: the same, compiled with emulation.
        found: the differences of the usual runs that count.
        leeway: kinds of differences that compiled runs may show.
        label: what the modes of the runs are called after.
    """
    eager, compiled = _calls(runs.original_eager), _calls(emulated.rewritten_compiled)
    original, reference = _calls(emulated.original_compiled), _calls(runs.reference)
    if eager is None or compiled is None or original is None:
        return ()
    left = {(d.call, d.place) for d in judge(emulated, leeway, label).differences}
    tolerance = derive(eager, original, reference or ())
    told: list[Difference] = []
    for difference in found:
        if difference.kind is not Kind.VALUE or (difference.call, difference.place) in left:
            continue
        mine = eager[difference.call].leaves.get(difference.place)
        theirs = compiled[difference.call].leaves.get(difference.place)
        if isinstance(mine, TensorShot) and isinstance(theirs, TensorShot):
            off, allowed = tolerance.figures(difference.place, mine, theirs)
            detail = (
                f"{difference.detail}; with emulate_precision_casts off by {off:.3g} where "
                f"{allowed:.3g} is allowed, so it is precision that Inductor keeps"
            )
            told.append(replace(difference, detail=detail))
    return tuple(told)


def _calls(pickled: bytes | None) -> tuple[CallShot, ...] | None:
    if pickled is None:
        return None
    found: tuple[CallShot, ...] = pickle.loads(pickled)
    return found


def _not_shared(
    found: Sequence[Difference],
    eager: Sequence[CallShot],
    original: Sequence[CallShot],
    compiled: Sequence[CallShot],
    tolerance: Tolerance,
) -> tuple[Difference, ...]:
    """Differences from eager that the original, compiled, does not show in the same way.

    Compiling changes some things by itself, strides and the order of prints for example, and a
    rewrite is not to blame for them.
    """
    own = {(d.call, d.kind, d.place) for d in differences("", eager, original, tolerance)}
    apart = {(d.call, d.place) for d in differences("", original, compiled, tolerance)}
    return tuple(
        d for d in found if (d.call, d.kind, d.place) not in own or (d.call, d.place) in apart
    )


def _compiler_errors(
    mode: str, eager: Sequence[CallShot], compiled: Sequence[CallShot]
) -> tuple[Difference, ...]:
    return tuple(
        Difference(mode, number, Kind.EXCEPTION, "", str(theirs.raised))
        for number, (mine, theirs) in enumerate(zip(eager, compiled, strict=False))
        if theirs.raised is not None and mine.raised is None
    )


def _has_gradient(shot: CallShot) -> bool:
    return any(
        place.startswith("gradient") and isinstance(leaf, TensorShot)
        for place, leaf in shot.leaves.items()
    )
