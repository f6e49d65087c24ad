"""Compare what two runs saved: outputs, state and gradients, leaf by leaf.

Eager is held to the bit. A compiled run may round differently, so it is held to the tolerance that
PyTorch's own tests use for the type.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

BIT, CLOSE, DIFFERS, MISSING = "bit", "close", "DIFFERS", "missing"
ORDER = [BIT, CLOSE, MISSING, DIFFERS]


@dataclass
class Verdict:
    """How equal two runs are, and which leaves say otherwise."""

    mark: str = BIT
    details: list[str] = field(default_factory=list)
    none_to_zero: int = 0
    """Gradients that are `None` in the original and zeros in the rewrite."""

    def add(self, mark: str, detail: str = "") -> None:
        self.mark = max(self.mark, mark, key=ORDER.index)
        if detail:
            self.details.append(detail)

    def __str__(self) -> str:
        return self.mark + (f", {self.none_to_zero} None to 0" if self.none_to_zero else "")


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Several verdicts as one."""
    total = Verdict()
    for verdict in verdicts:
        total.add(verdict.mark)
        total.details += verdict.details
        total.none_to_zero += verdict.none_to_zero
    return total


def compare(original: dict[str, Any] | None, other: dict[str, Any] | None) -> Verdict:
    """Compare every leaf of `other` with the same leaf of `original`."""
    verdict = Verdict()
    if original is None or other is None:
        verdict.add(MISSING, "one side has no result")
        return verdict
    for name in sorted(original.keys() | other.keys()):
        found = Verdict()
        if name in original and name in other:
            _leaf(name, original[name], other[name], found)
        else:
            found.add(DIFFERS, f"{name} only in {'original' if name in original else 'rewrite'}")
        if "!" in name:
            # Plain attributes and shared memory are how a module works, not what it computes.
            verdict.details += [f"note: {d}" for d in found.details]
        else:
            verdict = worst([verdict, found])
    return verdict


def _leaf(name: str, a: Any, b: Any, verdict: Verdict) -> None:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        _tensor(name, a, b, verdict)
    elif name.startswith("grad ") and a is None and isinstance(b, torch.Tensor) and not b.any():
        verdict.none_to_zero += 1
        verdict.details.append(f"{name} was None, is zeros")
    elif type(a) is not type(b) or a != b:
        verdict.add(DIFFERS, f"{name}: {_show(a)} became {_show(b)}")


def _tensor(name: str, a: torch.Tensor, b: torch.Tensor, verdict: Verdict) -> None:
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        verdict.add(DIFFERS, f"{name}: {_show(a)} became {_show(b)}")
    elif _bits(a) == _bits(b):
        verdict.add(BIT)
    else:
        try:
            torch.testing.assert_close(b, a, equal_nan=True)
            verdict.add(CLOSE, f"{name}: within tolerance, largest difference {_gap(a, b):.2g}")
        except AssertionError:
            verdict.add(DIFFERS, f"{name}: largest difference {_gap(a, b):.2g}")


def _bits(tensor: torch.Tensor) -> bytes:
    """The values as bytes: NaN equals NaN, and 0.0 is not -0.0."""
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max())


def _show(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return repr(value)[:200]
