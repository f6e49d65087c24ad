"""gbfix's diagnosis beside the breaks that Dynamo reports."""

from __future__ import annotations

from gbfix.dynamo.records import Break, Capture
from gbfix.verify.diagnosing import diagnosed

TEXT = """\
import torch


def f(x):
    if x.sum() > 0:
        x = x + 1
    print(x)
    if (
        torch.isnan(x)
        .any()
    ):
        raise ValueError
    return x
"""


def codes(*breaks: tuple[str, int, str | None], texts: tuple[tuple[str, str], ...]) -> list[object]:
    found = tuple(Break(file, line, registry, "") for file, line, registry in breaks)
    return [b.diagnosis for b in diagnosed(Capture(1, 1, found, (), 0), texts).breaks]


def test_the_line_decides() -> None:
    breaks = [("/m.py", 5, "GB0170"), ("/m.py", 7, "GB0059"), ("/m.py", 10, "GB0170")]
    assert codes(*breaks, texts=(("/m.py", TEXT),)) == ["GBF101", "GBF201", "GBF102"]


def test_without_a_finding_only_a_registry_entry_of_one_diagnosis_decides() -> None:
    breaks = [("/other.py", 1, "GB0291"), ("/other.py", 1, "GB0170"), ("/m.py", 13, None)]
    assert codes(*breaks, texts=(("/m.py", TEXT),)) == ["GBF202", None, None]
