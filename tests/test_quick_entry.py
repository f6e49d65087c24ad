"""A plain `quickfix` is read without the library of the command line, and means the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from gbfix.cli import entry
from gbfix.cli.main import app
from gbfix.cli.quickfixing import Asked, QuickfixFormat
from gbfix.registry import transforms, treating
from gbfix.settings import Branch

MODEL = """import torch

@torch.compile
def f(x):
    if x.sum() > 0:
        x = x + 1
    return x
"""


def test_its_options_are_those_of_the_command() -> None:
    command = typer.main.get_command(app).commands["quickfix"]  # type: ignore[attr-defined]
    spelled = {name: p.name for p in command.params for name in p.opts if name.startswith("--")}
    known = {name: field for name, (field, _) in entry.OPTIONS.items()} | entry.REPEATED
    assert known == spelled


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["m.py:3"], Asked("m.py:3")),
        (["-:3", "--stdin-filename", "m.py"], Asked("-:3", stdin_filename=Path("m.py"))),
        (["--format=json", "m.py:3"], Asked("m.py:3", QuickfixFormat.JSON)),
        (
            ["m.py:3", "--select", "A", "--select", "B", "--branch", "cond", "--apply", "2"],
            Asked("m.py:3", apply=2, select=("A", "B"), branch=Branch.COND),
        ),
    ],
)
def test_plain_words_are_read(arguments: list[str], asked: Asked) -> None:
    assert entry.plain(arguments) == asked


@pytest.mark.parametrize(
    "arguments",
    [[], ["a:1", "b:2"], ["-h"], ["a:1", "--form", "json"], ["a:1", "--apply", "0"], ["a:1", "--apply"],
     ["a:1", "--format", "xml"], ["a:1", "--branch", "--apply"]],
)  # fmt: skip
def test_whatever_else_is_left_to_the_command(arguments: list[str]) -> None:
    assert entry.plain(arguments) is None


def test_an_answer_loads_no_command_line_library(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    script = (
        "import sys; from gbfix.cli.entry import main; code = main();"
        "assert not {'typer', 'rich', 'torch', 'gbfix.cli.check'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "quickfix", f"{path}:5"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "tensor-branch" in done.stdout or "GBF101" in done.stdout


def test_every_transform_is_found_by_what_it_treats() -> None:
    for transform in transforms():
        for code in transform.codes:
            assert transform in treating(code)
