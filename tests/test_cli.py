"""The command line as a user meets it: output, exit codes, files on disk, bad input."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gbfix.cli.main import main

BROKEN = b"""import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("norm", x.norm())
        return x + 1
"""
GUARD = b"if not torch.compiler.is_compiling():"
CLEAN = b"import torch\n\n\ndef double(x):\n    return 2 * x\n"
# No fix can be made: the loop depends on data, and is left and entered again.
STUCK = b"""import torch
from torch import nn


class Loop(nn.Module):
    def forward(self, x: torch.Tensor):
        while x.sum() > 0:
            x = torch.cat([x, -x])
            yield x
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: bytes
    err: str


class Cli:
    """Runs `gbfix` in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capture: pytest.CaptureFixture[bytes],
    ) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capture = capture
        monkeypatch.chdir(folder)

    def write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Outcome:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(arguments)
        captured = self._capture.readouterr()
        return Outcome(code, captured.out, captured.err.decode())


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Cli:
    return Cli(tmp_path, monkeypatch, capfdbinary)


def one_sentence(outcome: Outcome, *parts: str) -> None:
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    for part in parts:
        assert part in outcome.err


def git_apply(folder: Path, patch: bytes) -> None:
    done = subprocess.run(["git", "apply"], cwd=folder, input=patch, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_check_lists_sites_with_the_fixes_on_offer(cli: Cli) -> None:
    cli.write("b.py", BROKEN)
    cli.write("a/stuck.py", STUCK)
    cli.write("clean.py", CLEAN)
    result = cli("check")
    lines = result.out.decode().splitlines()
    assert result.code == 1
    assert result.err == ""
    assert lines[0].startswith("a/stuck.py:7:")
    assert "GBF104 tensor-loop" in lines[0]
    assert lines[1].startswith("    ")
    assert any(line.startswith("b.py:7:9: GBF201 print-call") for line in lines)
    assert any("[fixable: guard (" in line for line in lines)
    assert lines[-1] == "Found 2 break sites in 2 files; 1 fixable, 1 not."


def test_check_without_findings(cli: Cli) -> None:
    cli.write("clean.py", CLEAN)
    result = cli("check", "clean.py")
    assert (result.code, result.out) == (0, b"No break sites found in 1 file.\n")


def test_apply_writes_and_says_what_is_left(cli: Cli) -> None:
    broken, stuck = cli.write("b.py", BROKEN), cli.write("s.py", STUCK)
    broken.chmod(0o755)
    result = cli("apply", ".")
    assert result.code == 0
    assert GUARD in broken.read_bytes()
    assert broken.stat().st_mode & 0o777 == 0o755
    assert stuck.read_bytes() == STUCK
    report = result.out.decode()
    assert "b.py:7:9: GBF201 print-call fixed by guard (" in report
    assert "Not fixed:\ns.py:7:" in report
    assert report.endswith("Fixed 1 of 2 break sites in 1 file; 1 left as it is.\n")


def test_applying_twice_changes_nothing_more(cli: Cli) -> None:
    path = cli.write("b.py", BROKEN)
    cli("apply", "b.py")
    once = path.read_bytes()
    assert cli("apply", "b.py").code == 0
    assert path.read_bytes() == once
    assert cli("check", "b.py").code == 0
    assert cli("apply", "--diff", "b.py").out == b""


@pytest.mark.parametrize("name", ["m.py", "with space.py", "sub/é.py"])
@pytest.mark.parametrize(
    "content",
    [
        BROKEN,
        BROKEN.replace(b"\n", b"\r\n"),
        BROKEN.rstrip(b"\n"),
        b"\xef\xbb\xbf" + BROKEN,
        b"# coding: latin-1\n# \xe9\n" + BROKEN,
    ],
    ids=["lf", "crlf", "no-final-newline", "bom", "latin-1"],
)
def test_diff_goes_into_git_apply(cli: Cli, name: str, content: bytes) -> None:
    path = cli.write(name, content)
    subprocess.run(["git", "init", "-q"], cwd=cli.folder, check=True)
    result = cli("apply", "--diff", ".")
    assert result.code == 1
    assert path.read_bytes() == content
    assert "would be fixed by guard" in result.err
    git_apply(cli.folder, result.out)
    patched = path.read_bytes()
    assert GUARD in patched
    path.write_bytes(content)
    assert cli("apply", ".").code == 0
    assert path.read_bytes() == patched


def test_diff_from_a_sub_folder(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q"], cwd=cli.folder, check=True)
    below = cli.write("sub/deep/m.py", BROKEN)
    above = cli.write("top.py", BROKEN)
    monkeypatch.chdir(cli.folder / "sub")
    result = cli("apply", "--diff", "deep")
    assert b"--- a/sub/deep/m.py\n" in result.out
    git_apply(cli.folder / "sub", result.out)
    assert GUARD in below.read_bytes()
    result = cli("apply", "--diff", "../top.py")
    assert f"git -C {cli.folder} apply" in result.err
    git_apply(cli.folder, result.out)
    assert GUARD in above.read_bytes()


def test_an_empty_diff_exits_with_0(cli: Cli) -> None:
    cli.write("s.py", STUCK)
    result = cli("apply", "--diff", "s.py")
    assert (result.code, result.out) == (0, b"")
    assert "Not fixed:" in result.err


def test_standard_input(cli: Cli) -> None:
    crlf = BROKEN.replace(b"\n", b"\r\n")
    result = cli("apply", "-", "--stdin-filename", "pkg/m.py", stdin=crlf)
    assert result.code == 0
    assert GUARD in result.out
    assert result.out.count(b"\n") == result.out.count(b"\r\n")
    assert result.err.startswith("pkg/m.py:7:9: GBF201")
    assert not (cli.folder / "pkg").exists()
    diff = cli("apply", "-", "--diff", "--stdin-filename", "pkg/m.py", stdin=BROKEN)
    assert diff.code == 1
    assert diff.out.startswith(b"--- a/pkg/m.py\n")
    assert cli("check", "-", stdin=BROKEN).out.startswith(b"-:7:9: GBF201")
    assert cli("apply", "-", stdin=CLEAN).out == CLEAN


def test_standard_input_that_is_wrong_prints_no_source(cli: Cli) -> None:
    for stdin in (b"def (:\n", b"\xff\n"):
        result = cli("apply", "-", "--stdin-filename", "m.py", stdin=stdin)
        assert (result.code, result.out) == (2, b"")
        assert result.err.startswith("gbfix: m.py:")


def test_json(cli: Cli) -> None:
    cli.write("b.py", BROKEN)
    cli.write("s.py", STUCK)
    cli.write("bad.py", b"import torch\ndef (:\n")
    checked = cli("check", "--output-format", "json")
    document = json.loads(checked.out)
    assert checked.code == 2
    assert (document["version"], document["command"]) == (1, "check")
    assert [finding["path"] for finding in document["findings"]] == ["b.py", "s.py"]
    assert document["findings"][0]["offers"][0]["transform"] == "guard"
    assert document["findings"][1]["refusals"][0]["code"]
    assert [error["path"] for error in document["errors"]] == ["bad.py"]
    assert document["fixes"] == []
    shown = json.loads(cli("apply", "--diff", "--output-format", "json").out)
    assert shown["files"][0]["diff"].startswith("--- a/b.py\n")
    assert shown["files"][0]["written"] is False
    assert shown["summary"]["fixed"] == 1
    piped = json.loads(cli("apply", "-", "--output-format", "json", stdin=BROKEN).out)
    assert GUARD.decode() in piped["files"][0]["source"]
    written = json.loads(cli("apply", "--output-format", "json").out)
    assert written["files"][0]["written"] is True
    assert written["fixes"][0]["transform"] == "guard"


def test_select_and_ignore(cli: Cli) -> None:
    cli.write("b.py", BROKEN)
    for selector in ("GBF201", "gbf2", "print-call", "guard", "GBF101,GBF201"):
        assert cli("check", "--select", selector).code == 1
        assert cli("check", "--select", "GBF", "--ignore", selector).code == (selector == "guard")
    assert cli("check", "--select", "GBF101").code == 0
    assert cli("check", "--select", "GBF101", "--select", "GBF201").code == 1


def test_names_may_be_spelled_with_underscores(cli: Cli) -> None:
    cli.write("b.py", BROKEN)
    assert cli("check", "--select", "print_call").code == 1
    assert cli("check", "--select", "empty_gate").code == 0
    assert cli("check", "--select", "GBF", "--ignore", "print_call,masked_slice").code == 0
    assert cli("apply", "--diff", "--fix-with", "custom_op").code == 1
    assert b"Fix: masked-slice" in cli("explain", "masked_slice").out
    assert b"print-call" in cli("explain", "print_call").out
    cli.write("pyproject.toml", b'[tool.gbfix]\nselect = ["empty_gate"]\n')
    assert cli("check").code == 0
    assert "`no_such`" in cli("check", "--select", "no_such").err


def test_configuration_and_its_override(cli: Cli) -> None:
    cli.write("b.py", BROKEN)
    cli.write("gen/b.py", BROKEN)
    cli.write("pyproject.toml", b'[tool.gbfix]\nignore = ["GBF201"]\nexclude = ["gen"]\n')
    assert cli("check").code == 0
    result = cli("check", "--ignore", "GBF101")
    assert b"Found 1 break site in 1 file" in result.out


def test_suppression(cli: Cli) -> None:
    silenced = BROKEN.replace(b"x.norm())", b"x.norm())  # gbfix: ignore[GBF201] wanted")
    path = cli.write("b.py", silenced)
    assert cli("check").code == 0
    assert cli("apply").code == 0
    assert path.read_bytes() == silenced
    cli.write("b.py", CLEAN.replace(b"2 * x", b"2 * x  # gbfix: ignore[GBF201]"))
    result = cli("check")
    assert result.code == 0
    assert "b.py:5: unused suppression `GBF201`" in result.err


def test_at_one_site(cli: Cli) -> None:
    two = BROKEN + b"\n    def extra(self, x):\n        return x\n"
    two = two.replace(
        b"        return x + 1", b"        x = x + 1\n        print(x)\n        return x"
    )
    path = cli.write("b.py", two)
    assert cli("apply", "b.py", "--at", "9:9").code == 0
    after = path.read_bytes()
    assert after.count(GUARD) == 1
    assert after.index(b"norm") < after.index(GUARD)
    one_sentence(cli("apply", "b.py", "--at", "2"), "b.py:2: no break site here")
    one_sentence(cli("apply", "b.py", "--at", "x"), "LINE")
    one_sentence(cli("apply", "b.py", "--at", "0"), "LINE")
    one_sentence(cli("apply", ".", "--at", "7"), "one file")


def test_errors_in_some_files_do_not_stop_the_others(cli: Cli) -> None:
    good = cli.write("good.py", BROKEN)
    cli.write("syntax.py", b"import torch\nif x\n")
    cli.write("prose.txt", b"This is not Python.\n")
    cli.write("bytes.py", b"torch = '\xff'\n")
    cli.write("null.py", b"import torch\x00\n")
    cli.write("none/readme.md", b"")
    read_only = cli.write("locked.py", BROKEN)
    read_only.chmod(0o444)
    given = [
        "good.py",
        "syntax.py",
        "prose.txt",
        "bytes.py",
        "null.py",
        "none",
        "locked.py",
        "gone.py",
    ]
    result = cli("apply", *given)
    assert result.code == 2
    assert GUARD in good.read_bytes()
    assert read_only.read_bytes() == BROKEN
    lines = result.err.splitlines()
    assert len(lines) == len(given) - 1
    for name in given[1:]:
        assert sum(f"gbfix: {name}:" in line for line in lines) == 1, (name, result.err)
    assert "locked.py:7:9: GBF201" in result.out.decode().split("Not fixed:")[1]
    assert not list(cli.folder.glob(".gbfix-*"))


def test_a_link_is_not_replaced(cli: Cli) -> None:
    real = cli.write("real/m.py", BROKEN)
    link = cli.folder / "link.py"
    link.symlink_to("real/m.py")
    assert cli("apply", "link.py").code == 0
    assert link.is_symlink()
    assert GUARD in real.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("check", "--select", "GBF999"), "unknown selector `GBF999`; `gbfix rules`"),
        (("check", "--select", "tensor-brunch"), "did you mean `tensor-branch`?"),
        (("check", "--ignore", "nothing"), "`nothing`"),
        (("apply", "--fix-with", "gaurd"), "did you mean `guard`?"),
        (("check", "--no-such-option"), "--no-such-option"),
        (("check", "--region", "moon"), "'--region': 'moon' is not one of 'auto', 'compile'"),
        (("apply", "--safe-only", "--unsafe"), "contradict"),
        (("apply", "-", "b.py"), "`-`"),
        (("check", "--stdin-filename", "m.py"), "--stdin-filename"),
        (("check", "missing"), "missing: no such file or folder"),
        (("explain", "GBF999"), "GBF999"),
        (("no-such-command",), "no-such-command"),
    ],
)
def test_mistakes_are_one_sentence(cli: Cli, arguments: tuple[str, ...], part: str) -> None:
    cli.write("clean.py", CLEAN)
    one_sentence(cli(*arguments), part)


def test_a_broken_pyproject_is_one_sentence(cli: Cli) -> None:
    path = cli.write("m.py", BROKEN)
    cli.write("pyproject.toml", b"[tool.gbfix\n")
    one_sentence(cli("apply"), "pyproject.toml", "TOML")
    assert path.read_bytes() == BROKEN


def test_a_wrong_selector_in_a_file_names_the_file(cli: Cli) -> None:
    cli.write("m.py", BROKEN)
    cli.write("pyproject.toml", b"[tool.gbfix]\nignore = ['print-cull']\n")
    one_sentence(cli("check"), "pyproject.toml", "`ignore`", "did you mean `print-call`?")


@pytest.mark.parametrize(
    "arguments", [("verify", "m.py"), ("apply", "--verify", "m.py"), ("migrate", ".")]
)
def test_running_code_without_torch_is_one_sentence(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    import gbfix.dynamo.installed

    monkeypatch.setattr(gbfix.dynamo.installed, "torch_folder", lambda: None)
    path = cli.write("m.py", BROKEN)
    one_sentence(cli(*arguments), "PyTorch", "pip install 'gbfix[verify]'")
    assert path.read_bytes() == BROKEN and not (cli.folder / ".gbfix").exists()


def test_rules_and_explain(cli: Cli) -> None:
    rules = cli("rules").out.decode()
    assert "GBF101  tensor-branch" in rules
    assert "guard" in rules
    for name in ("GBF201", "print-call", "guard"):
        explained = cli("explain", name)
        assert explained.code == 0
        assert b"Fix: guard" in explained.out


def test_version(cli: Cli) -> None:
    assert cli("--version").out.startswith(b"gbfix 0.")


def test_a_failure_of_gbfix_itself_is_a_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import gbfix.batch

    def run(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("oh")

    cli.write("m.py", BROKEN)
    monkeypatch.delenv("GBFIX_TRACEBACK", raising=False)
    monkeypatch.setattr(gbfix.batch, "check", run)
    one_sentence(cli("check"), "internal error", "ZeroDivisionError")


def test_static_commands_never_import_torch(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_bytes(BROKEN)
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    for command in (["check"], ["apply", "--diff"], ["rules"]):
        done = subprocess.run(
            [sys.executable, "-m", "gbfix", *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            check=False,
        )
        assert b"torch was imported" not in done.stderr
        assert done.returncode in (0, 1), done.stderr


def test_a_pipe_that_closes_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_bytes(BROKEN)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "gbfix", "check"],
        cwd=tmp_path,
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert done.stderr == b""


READS = b"""import torch


@torch.compile
def head(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return x[: int(count.sum())]
"""


def test_a_setting_is_shown_and_made_only_when_asked_for(cli: Cli) -> None:
    path = cli.write("head.py", READS)
    shown = cli("apply", "head.py")
    assert path.read_bytes() == READS
    assert b"--config makes the setting `torch._dynamo.config.capture_scalar_outputs" in shown.out
    assert b"capture (review) with --config" in cli("check", "head.py").out
    cli("apply", "head.py", "--config")
    assert b"@torch._dynamo.config.patch(capture_scalar_outputs=True)\n" in path.read_bytes()
    again = path.read_bytes()
    cli("apply", "head.py", "--config")
    assert path.read_bytes() == again


def test_a_setting_can_be_asked_for_in_the_configuration(cli: Cli) -> None:
    path = cli.write("head.py", READS)
    cli.write("pyproject.toml", b"[tool.gbfix]\nconfig = true\n")
    cli("apply", "head.py", "--no-config")
    assert path.read_bytes() == READS
    cli("apply", "head.py")
    assert path.read_bytes() != READS
