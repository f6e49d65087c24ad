"""Latencies of original and rewritten, in alternation."""

from __future__ import annotations

from pathlib import Path

from gbfix.verify.jobs import Limits
from gbfix.verify.latency import Latency, Timing
from gbfix.verify.messages import RunSpec
from gbfix.verify.recipes import CallRecipe, Inputs, TensorRecipe
from gbfix.verify.report import lines
from gbfix.verify.targets import Side, of_file
from gbfix.verify.timing import timing
from gbfix.verify.verdict import Evidence, Status, Verdict
from gbfix.verify.worker import Workers

INPUTS = Inputs(recipes=(CallRecipe((TensorRecipe((4,)),)),))


def test_ratios_are_of_pairs() -> None:
    found = Timing(
        (Latency(1.0, 0.1), Latency(2.0, 0.1), Latency(4.0, 0.1)),
        (Latency(2.0, 0.1), Latency(2.0, 0.05), Latency(2.0, 0.2)),
    )
    assert (found.first.median, found.first.least, found.first.most) == (1.0, 0.5, 2.0)
    assert str(found.steady) == "1.00 (0.50 to 2.00)"
    verdict = Verdict("f", Status.VERIFIED, "", evidence=Evidence(timing=found))
    text = "\n".join("".join(span.text for span in line) for line in lines([verdict]))
    assert (
        "first call: 1.00 (0.50 to 2.00) times the original's, median and range of 3 pairs" in text
    )


def test_processes_are_measured_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    text = "import time\n\n\ndef f(x):\n    time.sleep({})\n    return x + 1\n"
    file.write_text(text.format(0))
    target = of_file(file, "f")
    slow, fast = (Side(target, ((str(file), text.format(s)),)) for s in (0.02, 0.0))
    with Workers() as workers:
        found = timing(workers, RunSpec(slow, INPUTS, backend="eager"), fast, Limits(60), rounds=2)
        assert found is not None and len(found.before) == len(found.after) == 2
        assert found.steady.most < 1 and all(x.steady >= 0.02 for x in found.before)
        assert all(x.first > x.steady for x in (*found.before, *found.after))
        broken = Side(target, ((str(file), "def f(x):\n    raise ValueError\n"),))
        assert timing(workers, RunSpec(slow, INPUTS, backend="eager"), broken, Limits(60)) is None
