"""Output for pull requests and CI: SARIF, annotations, JSON lines, changed lines, baselines."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gbfix.cli.main import main

SCHEMA = Path(__file__).parent / "data" / "sarif-2.1.0-rtm.5.json"
MODEL = """import torch
from torch import nn


class Block(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("😀", x.max())
        if x.sum() > 1:
            x = x * 2
        return x
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "modèle.py").write_text(MODEL, encoding="utf-8")
    return tmp_path


def path(folder: Path) -> Path:
    return folder / "a b" / "modèle.py"


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["check", *arguments])
    return code, capsys.readouterr().out


def codes(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    _, out = check(capsys, *arguments, "--output-format", "json")
    return [finding["code"] for finding in json.loads(out)["findings"]]


# Formats


def sarif(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    _, out = check(capsys, *arguments, "--output-format", "sarif")
    log = json.loads(out)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(schema).validate(log)
    (run,) = log["runs"]
    return run


def test_sarif_is_valid_and_carries_fixes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sarif(capsys)
    assert [r["ruleId"] for r in run["results"]] == ["GBF201", "GBF101"]
    where = run["results"][0]["locations"][0]["physicalLocation"]
    assert where["artifactLocation"] == {"uri": "a%20b/mod%C3%A8le.py", "uriBaseId": "SRCROOT"}
    for result in run["results"]:
        rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        assert "is_compiling" in replaced(result["fixes"][0])


def replaced(fix: Any) -> str:
    """The model after a fix of the log."""
    lines = MODEL.splitlines(keepends=True)
    text = MODEL

    def at(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + column - 1

    for change in reversed(fix["artifactChanges"][0]["replacements"]):
        region = change["deletedRegion"]
        start = at(region["startLine"], region["startColumn"])
        end = at(region["endLine"], region["endColumn"])
        text = text[:start] + change["insertedContent"]["text"] + text[end:]
    compile(text, "model.py", "exec")
    return text


def test_sarif_tells_of_errors_and_of_clean_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path(folder).write_text("import torch\ndef (", encoding="utf-8")
    invocation = sarif(capsys)["invocations"][0]
    assert not invocation["executionSuccessful"]
    assert "not valid Python" in invocation["toolExecutionNotifications"][0]["message"]["text"]
    path(folder).write_text("import torch\n", encoding="utf-8")
    run = sarif(capsys)
    assert run["invocations"][0]["executionSuccessful"] and run["results"] == []


def test_fingerprints_do_not_depend_on_the_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [r["partialFingerprints"] for r in sarif(capsys)["results"]]
    path(folder).write_text("# moved\n" + MODEL.replace("1:\n", "1 :\n"), encoding="utf-8")
    assert [r["partialFingerprints"] for r in sarif(capsys)["results"]] == before


def test_github_annotations_are_escaped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path(folder).rename(folder / "a b" / "x,y%.py")
    code, out = check(capsys, "--output-format", "github")
    first = out.splitlines()[0]
    assert code == 1
    assert first.startswith("::warning file=a b/x%2Cy%25.py,line=7,endLine=7,col=9,endColumn=28,")
    assert "title=GBF201 print-call::" in first


def test_json_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out = check(capsys, "--output-format", "json-lines")
    entries = [json.loads(line) for line in out.splitlines()]
    assert [e["type"] for e in entries] == ["finding", "finding", "summary"]
    assert entries[0]["code"] == "GBF201" and entries[-1]["findings"] == 2


# Changed lines


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(folder: Path) -> Path:
    git(folder, "init")
    git(folder, "add", "-A")
    git(folder, "commit", "-m", "one")
    return folder


def test_only_changed_lines_are_reported(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert codes(capsys, "--diff-base", "HEAD") == []
    assert check(capsys, "--diff-base", "HEAD")[0] == 0
    path(repository).write_text(MODEL.replace("x.sum() > 1", "x.sum() > 2"), encoding="utf-8")
    assert codes(capsys, "--diff-base", "HEAD") == ["GBF101"]
    (repository / "new.py").write_text(MODEL, encoding="utf-8")
    assert len(codes(capsys, "--diff-base", "HEAD")) == 3


def test_a_new_name_changes_no_line(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = path(repository).relative_to(repository), Path("other", "namë.py")
    (repository / new.parent).mkdir()
    git(repository, "mv", str(old), str(new))
    assert codes(capsys, "--diff-base", "HEAD") == []
    text = MODEL.replace("x.sum() > 1", "x.sum() > 2")
    (repository / new).write_text(text, encoding="utf-8")
    assert codes(capsys, "--diff-base", "HEAD") == ["GBF101"]
    git(repository, "commit", "-am", "two")
    assert codes(capsys, "--diff-base", "HEAD~1") == ["GBF101"]


def test_the_base_is_where_the_branch_left(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(repository, "branch", "work")
    path(repository).write_text(MODEL.replace("print(", "print(0, "), encoding="utf-8")
    git(repository, "commit", "-am", "upstream")
    git(repository, "checkout", "work")
    path(repository).write_text(MODEL.replace("> 1", "> 2"), encoding="utf-8")
    git(repository, "commit", "-am", "mine")
    assert codes(capsys, "--diff-base", "main") == ["GBF101"]


@pytest.mark.parametrize("revision", ["nothing", "-x"])
def test_a_revision_that_is_none(
    repository: Path, capsys: pytest.CaptureFixture[str], revision: str
) -> None:
    assert main(["check", f"--diff-base={revision}"]) == 2
    assert "is no revision" in capsys.readouterr().err


def test_outside_of_a_repository(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--diff-base", "HEAD"]) == 2
    assert "not a git repository" in capsys.readouterr().err


# Baselines

BASELINE = ("--baseline", "gbfix-baseline.json")


def test_an_old_code_base_starts_green_and_only_gets_better(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(capsys, *BASELINE, "--write-baseline")[0] == 0
    assert check(capsys, *BASELINE)[0] == 0

    # Moved and reformatted code is no news; one more of the same is.
    moved = "\n\n" + MODEL.replace("x.sum() > 1", "x.sum()  >  1")
    path(folder).write_text(moved, encoding="utf-8")
    assert check(capsys, *BASELINE)[0] == 0
    twice = moved.replace("        return", '        print("😀", x.max())\n        return')
    path(folder).write_text(twice, encoding="utf-8")
    assert codes(capsys, *BASELINE) == ["GBF201"]

    # Writing it again takes out what was fixed, and lets nothing new in.
    path(folder).write_text(MODEL.replace('print("😀", x.max())', "print(1)"), encoding="utf-8")
    assert check(capsys, *BASELINE, "--write-baseline")[0] == 1
    path(folder).write_text(MODEL, encoding="utf-8")
    assert codes(capsys, *BASELINE) == ["GBF201"]


def test_what_is_gone_is_mentioned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", *BASELINE, "--write-baseline"])
    path(folder).write_text("import torch\n", encoding="utf-8")
    capsys.readouterr()
    assert main(["check", *BASELINE]) == 0
    assert "2 of its findings are no more" in capsys.readouterr().err


def test_a_file_that_is_gone_leaves_the_baseline(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", *BASELINE, "--write-baseline"])
    path(folder).unlink()
    (folder / "rest.py").write_text("import torch\n", encoding="utf-8")
    assert main(["check", *BASELINE, "--write-baseline"]) == 0
    capsys.readouterr()
    path(folder).write_text(MODEL, encoding="utf-8")
    assert codes(capsys, *BASELINE) == ["GBF201", "GBF101"]


def test_a_renamed_file_stays_known_and_a_copy_does_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", *BASELINE, "--write-baseline"])
    (folder / "copy.py").write_text(MODEL, encoding="utf-8")
    capsys.readouterr()
    _, out = check(capsys, *BASELINE, "--output-format", "json")
    assert {finding["path"] for finding in json.loads(out)["findings"]} == {"copy.py"}

    # The same file under another name, as well as its copy: only as much as there was is known.
    path(folder).rename(folder / "renamed.py")
    assert len(codes(capsys, *BASELINE)) == 2
    (folder / "copy.py").unlink()
    assert check(capsys, *BASELINE)[0] == 0
    changed = MODEL.replace("x = x * 2", "x = x * x.item()")
    (folder / "renamed.py").write_text(changed, encoding="utf-8")
    assert codes(capsys, *BASELINE) == ["GBF105"]

    # Written again, the baseline knows it by its new name, and nobody by the old one.
    main(["check", *BASELINE, "--write-baseline"])
    path(folder).write_text(MODEL, encoding="utf-8")
    capsys.readouterr()
    assert codes(capsys, *BASELINE) == ["GBF201", "GBF101", "GBF105"]


def test_a_line_like_one_that_is_gone_is_new_in_another_function(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", *BASELINE, "--write-baseline"])
    path(folder).unlink()
    (folder / "a.py").write_text(MODEL.replace("Block", "Other"), encoding="utf-8")
    capsys.readouterr()
    assert len(codes(capsys, *BASELINE)) == 2
    # Where a new file shares a line with the renamed one, that is not what makes the latter new.
    (folder / "a.py").write_text(MODEL.replace("if x.sum() > 1", "if x.all()"), encoding="utf-8")
    (folder / "b.py").write_text(MODEL, encoding="utf-8")
    _, out = check(capsys, *BASELINE, "--output-format", "json")
    assert {finding["path"] for finding in json.loads(out)["findings"]} == {"a.py"}


def test_a_baseline_of_the_first_version_is_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", *BASELINE, "--write-baseline"])
    file = folder / "gbfix-baseline.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    for name, counts in content["findings"].items():
        content["findings"][name] = {key.split()[0]: count for key, count in counts.items()}
    file.write_text(json.dumps(content | {"version": 1}), encoding="utf-8")
    assert main(["check", *BASELINE]) == 0
    path(folder).rename(folder / "renamed.py")
    assert main(["check", *BASELINE]) == 0


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1}', '{"version": 9, "findings": {}}'])
def test_a_file_that_is_no_baseline(
    folder: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (folder / "gbfix-baseline.json").write_text(content, encoding="utf-8")
    assert main(["check", *BASELINE]) == 2
    assert "gbfix-baseline.json" in capsys.readouterr().err


def test_a_baseline_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--write-baseline"]) == 2
    assert main(["check", *BASELINE]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_pre_commit_hooks_name_commands_that_exist() -> None:
    hooks = (Path(__file__).parent.parent / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert "entry: gbfix check\n" in hooks and "entry: gbfix apply\n" in hooks
