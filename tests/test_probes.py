"""Every diagnosis carries a probe, a tiny program that breaks on the installed torch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from gbfix.diagnoses import DIAGNOSES
from gbfix.dynamo.probing import measure


def test_every_diagnosis_has_a_probe() -> None:
    """A new diagnosis has to say by which program one sees that it still breaks."""
    assert [code for code, diagnosis in DIAGNOSES.items() if not diagnosis.probe] == []


def test_every_probe_breaks_here() -> None:
    found = measure({code: diagnosis.probe for code, diagnosis in DIAGNOSES.items()})
    assert [code for code, breaks in found.items() if not breaks] == []


def test_what_is_captured_whole_does_not_break() -> None:
    whole = "def probe(x):\n    if x.shape[0] > 1:\n        x = x + 1\n    return x * 3\n"
    failing = "def probe(x):\n    return missing(x)\n"
    assert measure({"whole": whole, "failing": failing}) == {"whole": False, "failing": True}
