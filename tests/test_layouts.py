"""A branch is safe to trace where both arms keep the strides of what they get, or neither does."""

from __future__ import annotations

import pytest

from gbfix import check_source

MODEL = """import torch
from torch import nn


class M(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            y = {one}
        else:
            y = {other}
        return y.sin()
"""


@pytest.mark.parametrize(
    ("one", "other", "safety"),
    [
        ("torch.nan_to_num(x)", "-x", "SAFE"),
        ("x.clamp(0.0, 1.0)", "x", "SAFE"),
        ("x.cumsum(0)", "x.cumsum(1)", "SAFE"),
        ("x.cumsum(0)", "x * 2", "REVIEW"),
        ("x.cumsum(0) * 2", "x.clone()", "REVIEW"),
        ("x + x.flip(0)", "x", "REVIEW"),
    ],
)
def test_strides_decide_whether_a_branch_is_safe(one: str, other: str, safety: str) -> None:
    (finding,) = check_source(MODEL.format(one=one, other=other), "m.py")
    (offer,) = (o for o in finding.offers if o.transform == "cond")
    assert offer.safety.name == safety
