"""An assumption that only running can check is made by `apply --verify`, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from gbfix.cli.main import main

SHORTCUTS = """import torch


def spread(x: torch.Tensor):
    for step in (1, 2):
        fresh = x == 0
        if not fresh.any():
            break
        x = torch.where(fresh, x.roll(step), x)
    return x


def count(x: torch.Tensor):
    for step in (1, 2):
        fresh = x == 0
        if not fresh.any():
            break
        x = torch.where(fresh, x.roll(step), x) + 1
    return x
"""
BYPASSED = "if not torch.compiler.is_compiling() and not fresh.any():"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gbfix.verify.session.default_backend", lambda: "eager")
    path = tmp_path / "m.py"
    path.write_text(SHORTCUTS)
    return path


def test_it_takes_more_than_asking_for_fixes(file: Path) -> None:
    assert main(["apply", "m.py"]) == 0
    assert file.read_text() == SHORTCUTS


def test_only_the_shortcut_that_changes_nothing_is_passed_by(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", "--verify", "m.py"]) == 0
    spread, count = file.read_text().split("def count")
    said = capsys.readouterr()
    assert BYPASSED in spread, said.out + said.err
    assert BYPASSED not in count
    assert "m.py:count: different" in said.err


def test_safe_only_makes_no_assumption(file: Path) -> None:
    assert main(["apply", "--verify", "--safe-only", "m.py"]) == 0
    assert file.read_text() == SHORTCUTS
