"""Chooses between the fixes of one site by what was measured; values only.

A fix is taken for faster than another only where the difference is larger than the spread of the
measurements, so that noise does not overrule the order of preference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gbfix.verify.latency import Ratio
from gbfix.verify.verdict import Verdict

AS_IT_IS = "as it is"
_SAME = Ratio(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Candidate:
    """One way of treating a site, the other sites of the target being as they are chosen.

    Attributes:
        transform: the fix; None where the site stays as it is.
        original: whether nothing at all of the target is rewritten.
        verdict: what the checker says of it; None for the original.
        ratio: the latency of later calls over the original's; None if it was not measured.
    """

    transform: str | None
    original: bool = False
    verdict: Verdict | None = None
    ratio: Ratio | None = None

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return self.transform or AS_IT_IS

    @property
    def sound(self) -> bool:
        """Whether it may be taken."""
        return self.original or (self.verdict is not None and self.verdict.verified)

    @property
    def latency(self) -> Ratio | None:
        """The ratio to the original, which that has to itself without being measured."""
        return _SAME if self.original else self.ratio


def faster(one: Candidate, other: Candidate) -> bool:
    """Whether one is faster than the other by more than the measurements vary."""
    a, b = one.latency, other.latency
    if a is None or b is None:
        return False
    return a.most < b.median and a.median < b.least


def choose(candidates: Sequence[Candidate]) -> Candidate | None:
    """The fastest that is verified; of those that are alike the first, which is the preferred one.

    What stays as it is comes last, so that it is only chosen where every fix makes code slower. None
    if there is nothing to choose.
    """
    best: Candidate | None = None
    for candidate in candidates:
        if candidate.sound and (best is None or faster(candidate, best)):
            best = candidate
    return best


def slower_than_original(candidates: Sequence[Candidate], chosen: Candidate | None) -> str:
    """Why a site stays as it is although it could be fixed; empty if that is not so."""
    if chosen is None or chosen.transform is not None:
        return ""
    fixes = [c for c in candidates if c.transform is not None and c.sound and c.latency is not None]
    if not fixes:
        return ""
    best = min(fixes, key=lambda c: c.latency.median if c.latency is not None else 0.0)
    if chosen.original:
        return f"`{best.name}` is verified, but takes {best.latency} times as long as the original"
    return (
        f"`{best.name}` is verified, but takes {best.latency} times as long as the original, and "
        f"without it {chosen.latency}"
    )
