"""`gbfix migrate` as a user runs it: policies, git, undo, and being killed for real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gbfix.cli.main import main
from gbfix.migrate.checking import FileTask
from gbfix.migrate.outcome import State, from_json
from gbfix.migrate.pools import LocalPool

SAFE = """import torch
from torch import nn

class Safe(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x * 2
        else:
            x = x * 3
        return x
"""
REVIEW = """import torch
from torch import nn

class Review(nn.Module):
    def forward(self, x):
        print("x")
        if x.sum() > 0:
            raise ValueError("x")
        return x
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    for package, text in (("one", SAFE), ("two", REVIEW)):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("")
        (root / package / "m.py").write_text(text)
    monkeypatch.chdir(root)
    return root


def git(*arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", *identity, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "t")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "t@example.org")
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "start")
    return project


def migrate(*arguments: str) -> int:
    return main(["migrate", ".", "--no-verify", *arguments])


def test_what_is_written_is_what_is_required(project: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    assert migrate("-o", str(output)) == 0
    safe = from_json(output.read_text())
    assert safe.policy.require == "safe"
    assert {site.fix.safety for f in safe.files for site in f.sites if site.fix} <= {"safe"}
    assert (project / "two/m.py").read_text() == REVIEW
    assert migrate("--require", "review", "-o", str(output)) == 0
    assert "review" in from_json(output.read_text()).totals.by_safety
    assert main(["check", "."]) == 0
    assert main(["migrate", "--undo"]) == 0
    assert (project / "one/m.py").read_text() == SAFE
    assert (project / "two/m.py").read_text() == REVIEW
    assert main(["migrate", "--undo"]) == 2


def test_a_dry_run_writes_nothing(project: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    assert migrate("--require", "review", "--dry-run", "-o", str(output)) == 0
    outcome = from_json(output.read_text())
    assert {file.state for file in outcome.files} == {State.PLANNED}
    assert "+" in outcome.files[0].diff and not (project / ".gbfix").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--require", "verified"),
        ("--commit-by", "package"),
        ("--branch", "new"),
        ("--targets", "none"),
    ],
)
def test_mistakes_are_one_sentence(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert migrate(*arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (project / "one/m.py").read_text() == SAFE


def test_uncommitted_changes_are_not_written_over(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = REVIEW + "# mine\n"
    (repository / "two/m.py").write_text(changed)
    assert migrate("--require", "review") == 2
    assert "two/m.py has uncommitted changes" in capsys.readouterr().err
    assert (repository / "two/m.py").read_text() == changed
    assert migrate("--require", "review", "--force") == 0
    assert (repository / "two/m.py").read_text() != changed
    assert main(["migrate", "--undo"]) == 0
    assert (repository / "two/m.py").read_text() == changed


@pytest.mark.parametrize(
    ("by", "subjects"),
    [
        ((), ["Remove graph breaks"]),
        (
            ("--commit-by", "package"),
            ["Remove graph breaks in one", "Remove graph breaks in two"],
        ),
        (("--commit-by", "diagnosis"), None),
    ],
)
def test_a_branch_with_its_commits(
    repository: Path, tmp_path: Path, by: tuple[str, ...], subjects: list[str] | None
) -> None:
    output = tmp_path / "out.json"
    arguments = ("--require", "review", "--branch", "fullgraph", *by, "-o", str(output))
    assert migrate(*arguments) == 0
    outcome = from_json(output.read_text())
    assert git("symbolic-ref", "--short", "HEAD") == "fullgraph" == outcome.branch
    assert git("status", "--porcelain") == ""
    made = git("log", "--reverse", "--format=%s", "main..HEAD").splitlines()
    assert made == [commit.subject for commit in outcome.commits]
    if subjects is not None:
        assert made == subjects
    else:
        assert len(made) > 1 and all(subject.startswith("GBF") for subject in made)
        for commit in outcome.commits:  # each of them is Python
            for path in commit.files:
                compile(git("show", f"{commit.hash}:{path}"), path, "exec")
    assert main(["migrate", "--undo"]) == 0
    assert git("symbolic-ref", "--short", "HEAD") == "main"
    assert git("status", "--porcelain") == ""


# A git that is killed with gbfix while it holds a lock, as when the machine loses its power.
DYING_GIT = """#!/bin/sh
case "$*" in
  *"DYING"*) touch "LOCK"; kill -9 $PPID $$;;
esac
exec REAL "$@"
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
@pytest.mark.parametrize(
    ("dying", "lock"),
    [
        ("update-ref refs/heads", ".git/refs/heads/fullgraph.lock"),
        ("symbolic-ref HEAD", ".git/HEAD.lock"),
        ("reset --quiet", ".git/index.gbfix.lock"),
    ],
)
def test_a_git_that_is_killed_leaves_nothing_that_stops_the_next(
    repository: Path, tmp_path: Path, dying: str, lock: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    real = shutil.which("git")
    assert real is not None
    text = DYING_GIT.replace("DYING", dying).replace("LOCK", str(repository / lock))
    (programs / "git").write_text(text.replace("REAL", real))
    (programs / "git").chmod(0o755)
    arguments = ("--no-verify", "--require", "review", "--branch", "fullgraph")
    command = [sys.executable, "-m", "gbfix", "migrate", ".", *arguments]
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    killed = subprocess.run(command, env={**os.environ, "PATH": path}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (repository / lock).exists()
    assert migrate(*arguments[1:]) == 0
    assert git("symbolic-ref", "--short", "HEAD") == "fullgraph"
    assert git("log", "--format=%s", "main..HEAD") == "Remove graph breaks"
    assert git("status", "--porcelain") == ""
    assert not list((repository / ".git").rglob("*gbfix*"))


def test_the_lock_of_another_git_is_left_alone(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = repository / ".git" / "index.lock"
    lock.touch()
    arguments = ("--require", "review", "--branch", "fullgraph")
    assert migrate(*arguments) == 2
    assert "another git is at work" in capsys.readouterr().err
    assert lock.exists()
    lock.unlink()
    assert migrate(*arguments) == 0
    assert git("status", "--porcelain") == ""


def test_a_repository_that_git_does_not_read_is_not_taken_for_none(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert migrate("--require", "review") == 2
    assert "git could not be run" in capsys.readouterr().err
    assert (repository / "two/m.py").read_text() == REVIEW
    assert migrate("--require", "review", "--force") == 0


def test_a_plan_is_made_once(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import gbfix.engine

    assert migrate("--require", "review", "--dry-run") == 0
    with monkeypatch.context() as context:
        context.setattr(gbfix.engine, "run", lambda *a, **k: pytest.fail("planned again"))
        assert migrate("--require", "review") == 0
    assert (project / "two/m.py").read_text() != REVIEW
    assert migrate("--cache-dir", "one/m.py") == 2
    assert "`--cache-dir one/m.py` is not a folder." in capsys.readouterr().err


def test_what_is_said_names_files_and_commands_from_here(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "two" / "empty").mkdir()
    assert main(["migrate", "two/empty", "--no-verify"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "gbfix: two/empty: no Python files in this folder.\n"
    assert main(["migrate", "two", "--no-verify", "--require", "review"]) == 0
    assert "`gbfix migrate two --undo` takes it back." in capsys.readouterr().out
    assert main(["migrate", "two", "--undo"]) == 0


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
def test_killed_for_real_it_goes_on(project: Path, tmp_path: Path) -> None:
    for number in range(40):
        text = SAFE.replace("Safe", f"Safe{number}") + "\n" + REVIEW.split("\n", 2)[2]
        (project / "one" / f"n{number}.py").write_text(text)
    before = {path: path.read_bytes() for path in project.rglob("*.py")}
    command = [sys.executable, "-m", "gbfix", "migrate", ".", "--no-verify", "--require", "review"]
    killed = 0
    for _ in range(12):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        log = project / ".gbfix" / "migrate"
        # Once the plan is in the journal it writes; until then there is nothing to see.
        while running.poll() is None:
            logs = list(log.glob("*/journal.jsonl"))
            if any(b'"written"' in path.read_bytes() for path in logs):
                break
            time.sleep(0.002)
        time.sleep(0.02)
        if running.poll() is None:
            os.kill(running.pid, signal.SIGKILL)
            killed += 1
        running.wait()
        if running.returncode == 0:
            break
    else:
        subprocess.run(command, check=True, capture_output=True)
    assert killed
    after = {path: path.read_bytes() for path in project.rglob("*.py")}
    assert after.keys() == before.keys() and not list(project.rglob("*.tmp"))
    assert main(["check", "."]) == 0
    assert main(["migrate", "--undo"]) == 0
    assert {path: path.read_bytes() for path in project.rglob("*.py")} == before


def test_what_cannot_be_verified_is_not_written(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    (project / "two/m.py").write_text(REVIEW.replace("class Review", "MISSING\nclass Review"))
    targets = tmp_path / "targets"
    targets.write_text("one/m.py:Safe  # an entry\n")
    output = tmp_path / "out.json"
    assert main(["migrate", ".", "--targets", str(targets), "-o", str(output)]) == 0
    outcome = from_json(output.read_text())
    states = {file.path: file.state for file in outcome.files}
    assert states == {"one/m.py": State.WRITTEN, "two/m.py": State.WITHHELD}
    entry = outcome.checked[0]
    assert entry.entry and entry.verified and entry.id == "one/m.py:Safe"
    assert entry.before is not None and entry.after is not None
    after = [f.operators for f in entry.after.fragments if not f.again]
    assert after == [("sum", "gt", "cond", "getitem")]
    assert sum(not f.again for f in entry.before.fragments) > 1
    assert entry.before.fragments[0].cut_by == 0
    assert json.loads(output.read_text())["totals"]["by_verdict"]["verified"] == 2

    # After an undo only what could not be run is tried again.
    assert main(["migrate", "--undo"]) == 0
    submitted: list[str] = []
    run = LocalPool.submit

    def submit(pool: LocalPool, task: Any) -> Any:
        submitted.append(task.file.path.name if isinstance(task, FileTask) else task.entry.name)
        return run(pool, task)

    monkeypatch.setattr(LocalPool, "submit", submit)
    assert main(["migrate", ".", "--targets", str(targets), "-o", str(output)]) == 0
    again = from_json(output.read_text())
    assert again.checked[:2] == outcome.checked[:2] and again.files == outcome.files
    assert submitted == ["m.py"]  # of the second folder, which cannot be imported

    # Any other file may be what the code calls.
    assert main(["migrate", "--undo"]) == 0
    (project / "one/__init__.py").write_text("x = 1\n")
    assert main(["migrate", ".", "--targets", str(targets), "-o", str(output)]) == 0
    assert submitted.count("m.py") == 3 and "Safe" in submitted
