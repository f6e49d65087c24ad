"""What is shipped: every package, a command line that explains itself, pages that build."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gbfix.cli.examples import EXAMPLES, SUMMARIES
from gbfix.cli.main import app, main

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent


def project() -> dict[str, object]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8")))


def test_every_package_is_shipped() -> None:
    tools = project()["tool"]
    assert isinstance(tools, dict)
    listed = set(tools["setuptools"]["packages"])
    there = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "gbfix").rglob("__init__.py")
    }
    assert listed - {"gbfix.transforms"} == there


def test_the_base_install_is_small() -> None:
    table = project()["project"]
    assert isinstance(table, dict)
    names = {requirement.split(">")[0] for requirement in table["dependencies"]}
    assert not names & {"torch", "numpy", "hypothesis", "pygls", "ray"}
    assert {"docs", "lsp", "ray", "verify"} <= set(table["optional-dependencies"])


def test_every_command_has_examples_and_a_line_in_the_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import typer

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(commands) | {""} == set(EXAMPLES) == set(SUMMARIES) | {""}
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, summary in SUMMARIES.items():
        assert f"  {name.ljust(8)}  {summary}\n" in out


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_ends_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*filter(None, [command]), "--help"]) == 0
    out = capsys.readouterr().out
    for what, example in EXAMPLES[command]:
        assert f"{what}:" in out
        assert f"    {example}\n" in out
    # Names of Python's types say nothing to who reads a manual.
    assert not re.search(r"<(str|int|float|bool|[Pp]ath|list\[.*)>|range>", out)


@pytest.mark.parametrize(
    "example", [example for examples in EXAMPLES.values() for _, example in examples]
)
def test_examples_are_command_lines(example: str) -> None:
    import typer

    program, name, *arguments = shlex.split(example)
    assert program == "gbfix"
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    command.make_context(name, arguments)


def test_completion_can_be_shown(capfd: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gbfix", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        check=False,
        # Otherwise the shell is looked for among the parents of the process, and there may be none.
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert done.returncode == 0 and "_gbfix_completion" in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("gbfix explain tensor-br", "tensor-branch"),
        ("gbfix check --select GBF101,gua", "GBF101,guard"),
        ("gbfix apply --fix-with custom", "custom-op"),
        ("gbfix migrate --require ver", "verified"),
    ],
)
def test_values_are_completed(words: str, offered: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gbfix"],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "_GBFIX_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        },
    )
    assert done.stdout.split() == [offered], done.stderr


def test_the_pages_build_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "editors" / "index.html").is_file()
