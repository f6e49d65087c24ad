"""The documentation is what the code says, and every example in it does what the text claims.

An example is a `Before:` and an `After:` block of a transform's docstring, or an example file of
the README. It is rewritten by the tool, compared as text, and run by the equivalence checker: it breaks
the graph before, does not after, and does the same.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from gbfix import config, engine
from gbfix.cli.main import app
from gbfix.cli.verification import Running
from gbfix.fixes import Transform
from gbfix.registry import transforms
from gbfix.settings import CheckStyle, Settings, SideEffects
from gbfix.source.text import SourceFile
from gbfix.verify.checker import verify_sides
from gbfix.verify.options import Options
from gbfix.verify.recipes import Inputs
from gbfix.verify.targets import Side, of_file
from gbfix.verify.verdict import Status
from gbfix.verify.worker import Workers
from scripts import generate_docs
from scripts.reasons import reasons
from tests.fixture_run import STUBS

README = generate_docs.README.read_text(encoding="utf-8")
IMPORTS = "import torch\nfrom torch import nn\n\n"
LINE_LENGTH = 100
"""That of this repository, in which the examples of the docstrings stand."""
SCALES = (0.01, -0.01, 100.0, -100.0)
"""Inputs small and large, of both signs, so that either side of a test has a chance to run."""

by_name = pytest.mark.parametrize("transform", transforms(), ids=lambda t: t.name)


# Examples


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """Workers for all examples."""
    with Workers(1 if "PYTEST_XDIST_WORKER" in os.environ else None) as started:
        yield started


def labelled(transform: Transform, label: str) -> str:
    """The code block below `Before:` or `After:`."""
    found = generate_docs.blocks(generate_docs.docstring_of(transform))
    places = [index for index, block in enumerate(found) if block.text == f"{label}:"]
    assert places, f"no `{label}:` in the docstring"
    return found[places[0] + 1].text + "\n"


def whole(snippet: str) -> str:
    """A file around a snippet: imports, and a class with what `self` needs where it is a method."""
    function = ast.parse(snippet).body[-1]
    if not (isinstance(function, ast.FunctionDef) and function.args.args[0].arg == "self"):
        return IMPORTS + snippet
    init = "".join(f"        {line}\n" for line in _attributes(function))
    return (
        f"{IMPORTS}class Example(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"{init}\n{textwrap.indent(snippet, '    ')}"
    )


def _attributes(function: ast.FunctionDef) -> list[str]:
    """Attributes that a method reads: layers if they are called, else numbers."""
    called = {n.func for n in ast.walk(function) if isinstance(n, ast.Call)}
    found = {
        node.attr: f"self.{node.attr} = {'nn.Linear(4, 4)' if node in called else '1.0'}"
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    }
    return [found[name] for name in sorted(found)]


POLICIES = dict.fromkeys(("keep", "keep-log", "move-out"), SideEffects.KEEP) | {
    "reorder": SideEffects.CONFIG
}


def rewrite(text: str, **settings: Any) -> tuple[str, set[str]]:
    """What the tool makes of a file, and the transforms that it used."""
    source = SourceFile.decode(Path("example.py"), text.encode())
    result = engine.run([source], Settings(**settings))
    assert not result.errors, result.errors
    (file,) = result.files
    return file.after, {f.applied.transform for f in file.findings if f.applied}


def check_runs(
    before: str, after: str, folder: Path, workers: Workers, *, lessens: bool = False
) -> None:
    """The checker passes it, and it is one graph afterwards; or breaks less often, if it `lessens`."""
    path = folder / "example.py"
    path.write_text(before, encoding="utf-8")
    tree = ast.parse(before)
    own = [n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))]
    compiled = [n for n in tree.body if isinstance(n, ast.Assign) and "compile(" in ast.unparse(n)]
    name = ast.unparse(compiled[-1].targets[0]) if compiled else own[-1].name
    target = of_file(path, name)
    target = replace(target, folders=(*target.folders, str(STUBS)))
    sides = [Side(target, ((os.path.realpath(path), text),)) for text in (before, after)]
    tensor = "torch.linspace(-0.5, 1.0, 16).reshape(4, 4)"
    expressions = [f"({f'{tensor} * {scale}, ' * _parameters(own[-1])})" for scale in SCALES]
    inputs = Inputs(expressions=tuple(expressions), once=True)
    options = Options("eager", fullgraph_before=False, both_dynamic=False, shrink_seconds=0)
    verdict = verify_sides(workers, *sides, inputs, options)
    assert verdict.status in (Status.VERIFIED, Status.PARTLY_VERIFIED), verdict
    found = verdict.evidence.after
    if lessens:
        was = verdict.evidence.before
        assert found is not None and was is not None and len(found.breaks) < len(was.breaks)
        return
    assert found is not None and found.fullgraph and found.whole and found.graphs


def _parameters(definition: ast.ClassDef | ast.FunctionDef) -> int:
    """How many arguments the example is called with."""
    if isinstance(definition, ast.ClassDef):
        (definition,) = (
            n for n in definition.body if isinstance(n, ast.FunctionDef) and n.name != "__init__"
        )
        return len(definition.args.args) - 1
    return len(definition.args.args)


@by_name
def test_the_before_block_becomes_the_after_block(transform: Transform) -> None:
    before, after = (whole(labelled(transform, label)) for label in ("Before", "After"))
    policy = POLICIES.get(transform.name, SideEffects.DROP)
    options = {"config": True, "verifying": True, "side_effects": policy}
    options |= {"fix_with": (transform.name,)} if transform.on_request else {}
    text, used = rewrite(before, line_length=LINE_LENGTH, **options)
    assert text == after
    assert transform.name in used
    assert rewrite(after, line_length=LINE_LENGTH, **options)[0] == after


@by_name
def test_the_example_runs(transform: Transform, tmp_path: Path, workers: Workers) -> None:
    before, after = (whole(labelled(transform, label)) for label in ("Before", "After"))
    check_runs(before, after, tmp_path, workers, lessens=transform.lessens)


def test_the_other_idiom_of_check() -> None:
    (check,) = [transform for transform in transforms() if transform.name == "check"]
    code = [b for b in generate_docs.blocks(generate_docs.docstring_of(check)) if b.is_code]
    text, _ = rewrite(whole(labelled(check, "Before")), check=CheckStyle.SKIP)
    assert textwrap.indent(code[-1].text, " " * 8) in text


# README


def readme_file(kind: str, name: str) -> str:
    found = re.search(rf"<!-- {kind}: {name} -->\n```python\n(.*?)```\n", README, re.S)
    assert found is not None
    return found[1]


def test_the_example_of_the_readme(tmp_path: Path, workers: Workers) -> None:
    before, after = readme_file("file", "model.py"), readme_file("after", "model.py")
    assert rewrite(before)[0] == after
    sized = [re.sub(r"size: int(?=\))", "size: int = 4", text) for text in (before, after)]
    check_runs(*sized, tmp_path, workers)


def test_the_readme_opens_with_a_before_and_an_after() -> None:
    opening = README.partition("\n## ")[0]
    assert re.findall(r"<!-- (\w+): ", opening) == ["file", "after"]


def _flags(command: str) -> set[str]:
    group = typer.main.get_command(app)
    given = group.commands[command].params  # type: ignore[attr-defined]
    names = {name for option in given for name in (*option.opts, *option.secondary_opts)}
    return {name for name in names if name.startswith("--")} - {"--help"}


def test_the_options_of_the_readme_are_those_of_the_commands() -> None:
    section = README.partition("### Options")[2].partition("###")[0]
    shared, check, apply = re.split(r"`check` has these|`apply` has these", section)
    flags = [
        set(re.findall(r"`(--[a-z-]+)`", " ".join(re.findall(r"^\| (.*?) \|", part, re.M))))
        for part in (shared, check, apply)
    ]
    assert flags[0] | flags[1] == _flags("check")
    # How code is run is told once, on the page of `verify`.
    running = {f"--{name.replace('_', '-')}" for name in Running.__dataclass_fields__}
    assert flags[0] | flags[2] | running == _flags("apply")
    page = (generate_docs.ROOT / "docs" / "verify.md").read_text(encoding="utf-8")
    assert running <= set(re.findall(r"`(--[a-z-]+)", page))


def test_the_commands_of_the_readme_exist() -> None:
    group = typer.main.get_command(app)
    used = set(re.findall(r"gbfix (check|apply|[a-z]+)(?= -| \w+\.py| src| cond|\s+#)", README))
    assert used and used <= set(group.commands)  # type: ignore[attr-defined]
    help_text = subprocess.run(
        [sys.executable, "-m", "gbfix", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert all(command in help_text for command in used)


def test_the_keys_of_the_configuration() -> None:
    found = re.search(r"```toml\n\[tool.gbfix\]\n(.*?)```", README, re.S)
    assert found is not None
    assert sorted(re.findall(r"^([a-z-]+) =", found[1], re.M)) == sorted(config._KEYS)


def test_the_configuration_of_the_readme_is_valid(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.*?)```", README, re.S)
    assert found is not None
    (tmp_path / "pyproject.toml").write_text(found[1], encoding="utf-8")
    assert config.load_config(tmp_path).settings.select == ("GBF1", "GBF2")


def test_the_reason_codes_of_the_readme_exist() -> None:
    section = README.partition("## What is refused")[2].partition("\n## ")[0]
    cells = " ".join(re.findall(r"^\| (`.*?) \|", section, re.M))
    assert set(re.findall(r"`([a-z-]+)`", cells)) <= {r.code for r in reasons()}


def test_every_reason_code_says_something() -> None:
    assert [reason.code for reason in reasons() if reason.is_bare] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (generate_docs.ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in links if not (generate_docs.ROOT / link).exists()] == []


def test_the_generated_pages_are_up_to_date() -> None:
    command = [sys.executable, generate_docs.__file__, "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run `python scripts/generate_docs.py`:\n{done.stderr}"
