"""`apply --tune`: which candidate is chosen for given measurements, and one search from end to end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gbfix.engine import run
from gbfix.findings import RunResult, Safety
from gbfix.report.spans import plain
from gbfix.report.tuning import lines
from gbfix.settings import Choice, Settings
from gbfix.source.text import SourceFile
from gbfix.verify import tuning
from gbfix.verify.choosing import Candidate, choose, slower_than_original
from gbfix.verify.jobs import Limits
from gbfix.verify.latency import Latency, Ratio, Timing
from gbfix.verify.messages import RunSpec
from gbfix.verify.options import Options
from gbfix.verify.recipes import CallRecipe, Inputs, TensorRecipe
from gbfix.verify.targets import Side
from gbfix.verify.tuning import How, tuned
from gbfix.verify.verdict import Status, Verdict
from gbfix.verify.worker import Workers

GOOD = Verdict("f", Status.VERIFIED, "")
BAD = Verdict("f", Status.DIFFERENT, "")
ORIGINAL = Candidate(None, original=True)


def fix(name: str, ratio: Ratio | None, verdict: Verdict = GOOD) -> Candidate:
    return Candidate(name, verdict=verdict, ratio=ratio)


WHERE = fix("where", Ratio(0.5, 0.48, 0.55))
COND = fix("cond", Ratio(0.8, 0.75, 0.9))
COND_ALIKE = fix("cond", Ratio(0.54, 0.47, 0.6))
SLOW = fix("cond", Ratio(1.3, 1.2, 1.4))
NOISY = fix("cond", Ratio(1.05, 0.9, 1.4))
UNMEASURED = fix("cond", None)


@pytest.mark.parametrize(
    ("candidates", "wanted"),
    [
        ([COND, WHERE, ORIGINAL], "where"),
        ([COND_ALIKE, WHERE, ORIGINAL], "cond"),
        ([fix("where", Ratio(0.1, 0.1, 0.1), BAD), COND, ORIGINAL], "cond"),
        ([SLOW, ORIGINAL], None),
        ([SLOW, WHERE, ORIGINAL], "where"),
        ([NOISY, ORIGINAL], "cond"),
        ([UNMEASURED, ORIGINAL], "cond"),
        ([fix("cond", None, BAD), ORIGINAL], None),
    ],
    ids=[
        "the fastest",
        "the preferred of two that are alike",
        "none that is different",
        "none that is slower than the original",
        "the one that is not slower",
        "one that may be slower, but by less than the spread",
        "one that could not be measured",
        "nothing that is verified",
    ],
)
def test_the_choice_follows_the_measurements(
    candidates: list[Candidate], wanted: str | None
) -> None:
    found = choose(candidates)
    assert found is not None and found.transform == wanted


def test_what_is_left_for_being_slower_is_said() -> None:
    why = slower_than_original([SLOW, ORIGINAL], ORIGINAL)
    assert why == (
        "`cond` is verified, but takes 1.30 (1.20 to 1.40) times as long as the original"
    )
    assert not slower_than_original([fix("cond", None, BAD), ORIGINAL], ORIGINAL)
    assert not slower_than_original([COND, ORIGINAL], COND)


INPUTS = Inputs(
    recipes=tuple(CallRecipe((TensorRecipe((3,), scale=scale),)) for scale in (1.0, -1.0))
)
TEXT = """\
import torch


@torch.compile(backend="eager")
def f(x: torch.Tensor):
    h = x.sin()
    if h.sum() > 0:
        h = h * 2
    else:
        h = h + 1
    print(h.sum())
    return h
"""


def test_a_site_whose_fixes_are_all_slower_is_left_and_others_are_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.py"
    path.write_text(TEXT)
    source = SourceFile.decode(path, path.read_bytes())
    settings = Settings(verifying=True)
    seconds = {"where": 3.0, "cond": 2.0}

    def timings(workers: Workers, spec: RunSpec, sides: list[Side], *_: Any, **__: Any) -> Any:
        """The time depends on the form of the branch alone."""
        found = []
        for side in sides:
            ((_, text),) = side.texts
            form = "where" if "torch.where" in text else "cond" if "torch.cond" in text else ""
            latency = Latency(1.0, seconds.get(form, 1.0))
            found.append(Timing((Latency(1.0, 1.0),) * 3, (latency,) * 3))
        return found

    monkeypatch.setattr(tuning, "timings", timings)

    def chosen(choices: tuple[Choice, ...]) -> RunResult:
        return run([source], replace(settings, choices=choices))

    how = How(
        Options(backend="eager", limits=Limits(60), gradients=False, both_dynamic=False),
        lambda offer: offer.safety >= Safety.REVIEW and offer.setting is None,
        chosen,
        lambda file, left_out: None,
        lambda pair: [(pair, INPUTS)],
    )
    with Workers() as workers:
        found = tuned(workers, run([source], settings), how)
    (file,) = found.result.files
    branch, output = found.tried
    assert [c.name for c in branch.candidates] == ["where", "cond", "as it is"]
    assert all(c.sound for c in branch.candidates)
    assert branch.chosen is not None and branch.chosen.transform is None
    assert output.chosen is not None and output.chosen.transform == "guard"
    assert "if h.sum() > 0:" in file.after and "is_compiling()" in file.after
    assert len(found.verdicts) == 1 and found.verdicts[0].verified
    (refusal,) = [r for f in file.findings for r in f.refusals if r.code == "slower"]
    assert "`cond` is verified, but takes 2.00 (2.00 to 2.00) times" in refusal.sentence
    table = plain(lines(found.tried, "eager", "cpu"))
    assert "where      verified" in table and "3.00 (3.00 to 3.00)" in table
    assert "left as it is: `cond` is verified" in table
