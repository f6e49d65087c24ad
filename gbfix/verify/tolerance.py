"""How close a compiled result has to be, taken from the original's own error and never guessed.

The original is run in eager, compiled, and in eager in float64. For each section of what a call leaves
(results, gradients, state) and each dtype, the largest of the distances between these, relative to the
size of the tensor, is what a rewrite may differ by, twice over; for each place the same holds of the
absolute distance, which is all there is where values cancel. Below that only rounding of the last
places is allowed. The module knows nothing of exceptions or verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from gbfix.verify.snapshot import CallShot, Leaf, TensorShot

_SLACK = 2.0
_LAST_PLACES = 16.0
# A compiled run that is further away is broken, and no measure of anything.
_BROKEN = 0.05


@dataclass(frozen=True)
class Tolerance:
    """Errors that were measured: relative ones by section and dtype, absolute ones by place."""

    measured: dict[tuple[str, torch.dtype], float] = field(default_factory=dict)
    absolute: dict[str, float] = field(default_factory=dict)

    def relative(self, place: str, dtype: torch.dtype) -> float:
        """What a tensor may be off by, as a part of its own size."""
        floor = _LAST_PLACES * torch.finfo(dtype).eps
        return max(floor, _SLACK * self.measured.get((section(place), dtype), 0.0))

    def error(self, place: str, mine: TensorShot, theirs: TensorShot) -> str | None:
        """How two tensors of one shape and dtype are too far apart, or None."""
        a, b = mine.values, theirs.values
        if _same(a, b):
            return None
        if not (a.is_floating_point() or a.is_complex()):
            unequal = int((a != b).sum())
            return f"{unequal} of {a.numel()} elements differ" if unequal else None
        odd = _odd_elements(a, b)
        if odd:
            return f"{odd} of {a.numel()} elements are NaN or infinite on one side only"
        off, allowed = self.figures(place, mine, theirs)
        return None if off <= allowed else f"off by {off:.3g} where {allowed:.3g} is allowed"

    def figures(self, place: str, mine: TensorShot, theirs: TensorShot) -> tuple[float, float]:
        """By how much the finite elements of two tensors are apart, and by how much they may be."""
        a, b = mine.values, theirs.values
        dtype = mine.dtype.to_real() if a.is_complex() else mine.dtype
        allowed = self.relative(place, dtype) * _size(a, b)
        return _distance(a, b), max(allowed, _SLACK * self.absolute.get(place, 0.0))


def derive(
    eager: Sequence[CallShot], compiled: Sequence[CallShot], reference: Sequence[CallShot]
) -> Tolerance:
    """Measure the original against itself; `compiled` or `reference` may be empty."""
    measured: dict[tuple[str, torch.dtype], float] = {}
    absolute: dict[str, float] = {}
    apart = [
        (place, mine, theirs, is_reference)
        for other, is_reference in ((compiled, False), (reference, True))
        for place, mine, theirs in _pairs(eager, other)
        if not _same(mine.values, theirs.values)
    ]
    sizes: dict[tuple[str, torch.dtype], float] = {}
    for place, mine, _ in _pairs(eager, eager) if apart else ():
        key = section(place), mine.dtype
        sizes[key] = max(sizes.get(key, 0.0), _size(mine.values, mine.values))
    for place, mine, theirs, is_reference in apart:
        if _odd_elements(mine.values, theirs.values):
            continue
        key = section(place), mine.dtype
        error, size = _distance(mine.values, theirs.values), _size(mine.values, theirs.values)
        # A reference that is further away took another way through the code.
        most = math.sqrt(torch.finfo(mine.dtype).eps) if is_reference else _BROKEN
        if error <= most * size:
            measured[key] = max(measured.get(key, 0.0), error / size if size else 0.0)
        if error <= torch.finfo(mine.dtype).eps * _LAST_PLACES * sizes[key]:
            absolute[place] = max(absolute.get(place, 0.0), error)
    return Tolerance(measured, absolute)


def section(place: str) -> str:
    """The first word of a place: what kind of thing it is."""
    for end, letter in enumerate(place):
        if not letter.isalpha():
            return place[:end]
    return place


def _pairs(
    first: Sequence[CallShot], second: Sequence[CallShot]
) -> Iterator[tuple[str, TensorShot, TensorShot]]:
    for mine, theirs in zip(first, second, strict=False):
        for place, leaf in mine.leaves.items():
            other: Leaf | None = theirs.leaves.get(place)
            if isinstance(leaf, TensorShot) and isinstance(other, TensorShot):
                numeric = leaf.values.is_floating_point() and other.values.is_floating_point()
                if leaf.shape == other.shape and numeric:
                    yield place, leaf, other


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether there is nothing to measure, which is so of most tensors."""
    return a.dtype == b.dtype and torch.equal(a, b)


def _wide(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


def _odd_elements(a: torch.Tensor, b: torch.Tensor) -> int:
    """How many elements are not finite and not alike."""
    a, b = _wide(a), _wide(b)
    finite = torch.isfinite(a) & torch.isfinite(b)
    alike = (a == b) | (torch.isnan(a) & torch.isnan(b))
    return int((~finite & ~alike).sum())


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = _wide(a), _wide(b)
    off = (a - b).abs()
    off = off[torch.isfinite(off)]
    return float(off.max()) if off.numel() else 0.0


def _size(a: torch.Tensor, b: torch.Tensor) -> float:
    sizes = [value.abs() for value in (_wide(a), _wide(b))]
    finite = [value[torch.isfinite(value)] for value in sizes]
    return max((float(value.max()) for value in finite if value.numel()), default=0.0)
