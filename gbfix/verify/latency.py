"""Latencies of original and rewritten, and their ratios with their spread; values only."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Latency:
    """What one process measured, in seconds: its first call, and the median of later ones."""

    first: float
    steady: float


@dataclass(frozen=True)
class Ratio:
    """Rewritten over original: the median over the pairs, and the least and the most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, before: Sequence[float], after: Sequence[float]) -> Ratio:
        """The ratios of pairs that were measured one after the other."""
        ratios = [b / a for a, b in zip(before, after, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f})"


@dataclass(frozen=True)
class Timing:
    """The latencies of both sides, in the order of the rounds."""

    before: tuple[Latency, ...]
    after: tuple[Latency, ...]

    @property
    def first(self) -> Ratio:
        """How long the first call takes, compilation included, against the original's."""
        return Ratio.of([x.first for x in self.before], [x.first for x in self.after])

    @property
    def steady(self) -> Ratio:
        """How long a later call takes against the original's."""
        return Ratio.of([x.steady for x in self.before], [x.steady for x in self.after])
