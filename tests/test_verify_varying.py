"""What the original itself leaves otherwise from run to run is no difference of the rewrite."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from gbfix.verify.checker import verify_sides
from gbfix.verify.options import Options
from gbfix.verify.recipes import Inputs
from gbfix.verify.targets import Side, of_file
from gbfix.verify.verdict import Kind, Status
from gbfix.verify.worker import Workers

ORIGINAL = """import os
import time

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.spent = 0.0

    def forward(self, x: torch.Tensor):
        print("called")
        self.spent = time.perf_counter()
        return RESULT
"""
GUARDED = """        if not torch.compiler.is_compiling():
            print("called")
            self.spent = time.perf_counter()
        return RESULT
"""


@pytest.mark.parametrize(
    ("result", "rewritten", "status"),
    [("x * 2", "x * 2", Status.VERIFIED), ("x * 2", "x * 3", Status.DIFFERENT),
     ("x * os.getpid()", "x * os.getpid()", Status.DIFFERENT)],
)  # fmt: skip
def test_a_clock_that_is_kept(tmp_path: Path, result: str, rewritten: str, status: Status) -> None:
    path = tmp_path / "m.py"
    path.write_text(ORIGINAL.replace("RESULT", result))
    head = ORIGINAL.partition('        print("called")')[0]
    after = (head + GUARDED).replace("RESULT", rewritten)
    target = of_file(path, "Net")
    sides = [Side(target, ((str(path), text),)) for text in (path.read_text(), after)]
    inputs = Inputs(expressions=("(torch.ones(2),)",), once=True)
    leeway = frozenset({Kind.EFFECT_DROPPED})
    options = Options("eager", leeway=leeway, both_dynamic=False, shrink_seconds=0)
    with Workers(1) as workers:
        verdict = verify_sides(workers, sides[0], sides[1], inputs, options)
    assert verdict.status is status, (verdict.reason, verdict.differences)
    if status is Status.VERIFIED:
        assert any(remark.place == "state self.spent" for remark in verdict.remarks)
