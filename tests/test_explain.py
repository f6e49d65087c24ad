"""`gbfix explain` by each kind of name that a user may have in hand."""

from __future__ import annotations

import re

import pytest

from gbfix.cli.main import main
from gbfix.diagnoses import DIAGNOSES
from gbfix.dynamo import registry
from gbfix.registry import transforms


def page(capsys: pytest.CaptureFixture[str], name: str) -> str:
    assert main(["explain", name]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["GB0170", "gb0170", "GB170", " gb170"])
def test_an_entry_of_the_registry(capsys: pytest.CaptureFixture[str], name: str) -> None:
    text = page(capsys, name)
    assert text.startswith("GB0170: Data-dependent branching (registry of torch 2.")
    assert "- Use `torch.cond` to express dynamic control flow." in text
    assert "GBF101 tensor-branch" in text
    assert text.count("Fix: cond:") == 1
    assert "After:" in text


def test_an_entry_that_gbfix_has_no_diagnosis_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert "gbfix has no diagnosis for it." in page(capsys, "GB2922")


@pytest.mark.parametrize("name", ["GBF101", "gbf101", "tensor-branch"])
def test_a_diagnosis_names_its_entries(capsys: pytest.CaptureFixture[str], name: str) -> None:
    text = page(capsys, name)
    assert text.startswith("GBF101 tensor-branch: control flow depends")
    assert "  GB0170  Data-dependent branching" in text
    assert "Fix: cond:" in text


def test_all_names_are_spelled_in_one_way() -> None:
    names = [transform.name for transform in transforms()]
    names += [diagnosis.name for diagnosis in DIAGNOSES.values()]
    assert [name for name in names if not re.fullmatch(r"[a-z]+(-[a-z]+)*", name)] == []


def test_a_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert page(capsys, "Guard").startswith("Fix: guard:")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("GBF1O1", "the nearest there is is `GBF101`"),
        ("tensor-brnch", "the nearest there is is `tensor-branch`"),
        ("GB999", "is not in the registry of torch"),
        ("zzzz", "`gbfix rules` lists all names"),
    ],
)
def test_unknown_names(capsys: pytest.CaptureFixture[str], name: str, part: str) -> None:
    assert main(["explain", name]) == 2
    said = capsys.readouterr().err
    assert part in said
    assert said.count("\n") == 1


def test_every_name_is_explained() -> None:
    """All entries of the installed registry; diagnoses and fixes with an example."""
    from gbfix.cli.explain import _explained
    from gbfix.diagnoses import DIAGNOSES
    from gbfix.dynamo.registry import _registry
    from gbfix.registry import transforms

    assert all(any(True for _ in _explained(name)) for name in _registry())
    for name in (*DIAGNOSES, *(transform.name for transform in transforms())):
        text = "\n".join(str(line) for line in _explained(name))
        assert "Fix: " in text
        assert "Before:" in text


def test_without_torch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registry", dict)
    assert "not in the registry of the torch that is installed" in page(capsys, "GB0170")
    assert main(["explain", "GB2922"]) == 2
    assert "cannot be looked up" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words", "plain words"),
        ("_explanation", ""),
        ("'two ' 'pieces'", "two pieces"),
        ('"with " + more', "with"),
    ],
)
def test_pieces_of_source_in_the_registry_become_text(
    monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    entry = {"Gb_type": "Type", "Context": "", "Explanation": text, "Hints": []}
    monkeypatch.setattr(registry, "_registry", lambda: {"GB0001": [entry]})
    found = registry.entry("GB0001")
    assert found is not None
    assert found.explanation == shown
