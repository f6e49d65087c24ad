"""The library: text in, findings and text out; and the same behind libcst's own runner."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import libcst as cst
import pytest
from libcst.codemod import CodemodContext, SkipFile

import gbfix
from gbfix.codemod import FixGraphBreaks

MODEL = """import torch
from torch import nn


class Block(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print(x.max())   # kept
        return x
"""


def test_all_names_are_there_without_further_imports() -> None:
    code = (
        "import sys, gbfix\n"
        "assert {'check_source', 'fix_source', 'trace', 'verify'} <= set(dir(gbfix))\n"
        "gbfix.check_source, gbfix.fix_source, gbfix.trace.record, gbfix.trace.read\n"
        "assert callable(gbfix.verify) and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_check_source_finds() -> None:
    (finding,) = gbfix.check_source(MODEL)
    assert (finding.code, finding.line, finding.column) == ("GBF201", 7, 9)
    assert [offer.safety for offer in finding.offers] == [gbfix.Safety.REVIEW]
    assert finding.edits == ()


def test_an_option_tells_what_a_call_returns() -> None:
    text = """import torch

@torch.compile
def experts(mask: torch.Tensor):
    used = torch.nonzero(mask, as_tuple=True)[0].tolist()
    kinds, counts = torch.unique(mask, return_counts=True)
    return used, counts.tolist()
"""
    found = [(finding.line, finding.code) for finding in gbfix.check_source(text)]
    assert found == [(5, "GBF106"), (5, "GBF111"), (6, "GBF112"), (7, "GBF106")]


def test_check_source_gives_edits_if_asked() -> None:
    (finding,) = gbfix.check_source(MODEL, edits=True)
    (edits,) = finding.edits
    text = MODEL
    for edit in sorted(edits, key=lambda e: e.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    assert text == gbfix.fix_source(MODEL).source


def test_fix_source_fixes_once_and_for_all() -> None:
    fixed = gbfix.fix_source(MODEL)
    assert fixed.changed and "is_compiling" in fixed.source
    assert fixed.findings[0].applied is not None
    again = gbfix.fix_source(fixed.source)
    assert not again.changed and again.source == fixed.source and again.findings == ()


def test_settings_are_heeded() -> None:
    settings = gbfix.Settings(safety=gbfix.Safety.SAFE)
    assert gbfix.fix_source(MODEL, settings=settings).source == MODEL
    assert gbfix.check_source(MODEL, settings=gbfix.Settings(select=("GBF101",))) == ()
    with pytest.raises(gbfix.UserError, match="unknown selector"):
        gbfix.check_source(MODEL, settings=gbfix.Settings(select=("nothing",)))


@pytest.mark.parametrize("text", ["import torch\ndef (", "def (", "\0"])
def test_what_is_not_python_is_one_sentence(text: str) -> None:
    with pytest.raises(gbfix.UserError, match=r"model\.py: not valid Python"):
        gbfix.fix_source(text, "model.py")


def test_modules_of_the_package_are_followed(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tools.py").write_text("import torch\ndef pick(x):\n    return torch.sum(x)\n")
    text = (
        "import torch\nfrom package.tools import pick\n@torch.compile\ndef f(x):\n"
        "    if pick(x) > 0:\n        return x\n    return -x\n"
    )
    (finding,) = gbfix.check_source(text, package / "model.py")
    assert finding.code == "GBF101" and finding.certain


def test_nothing_of_torch_is_imported() -> None:
    code = (
        "import sys, gbfix\n"
        f"gbfix.fix_source({MODEL!r})\n"
        "assert not {'torch', 'typer', 'numpy', 'pygls'} & sys.modules.keys()\n"
        "assert {'check_source', 'verify'} <= set(dir(gbfix))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# libcst


def test_the_codemod_gives_what_fix_source_gives() -> None:
    tree = cst.parse_module(MODEL)
    after = FixGraphBreaks(CodemodContext(filename="model.py")).transform_module(tree)
    assert after.code == gbfix.fix_source(MODEL).source
    safe = FixGraphBreaks(CodemodContext(filename="model.py"), safe_only=True)
    assert safe.transform_module(tree).code == MODEL


def test_the_codemod_skips_what_it_cannot_read() -> None:
    class Odd:
        code = "def ("

    with pytest.raises(SkipFile):
        FixGraphBreaks(CodemodContext()).transform_module_impl(Odd())  # type: ignore[arg-type]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_codemod_under_the_runner_of_libcst(tmp_path: Path, newline: str) -> None:
    path = tmp_path / "model.py"
    text = MODEL.replace("\n", newline)
    path.write_bytes(text.encode())
    page = (Path(__file__).parent.parent / "docs" / "library.md").read_text(encoding="utf-8")
    (documented,) = (line for line in page.splitlines() if "libcst.tool" in line)
    python, *command = documented.replace("src/", path.name).split()
    assert python == "python"
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "PATH": ""},  # no black
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert path.read_bytes().decode() == gbfix.fix_source(text).source
