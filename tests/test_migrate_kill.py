"""A migration that is ended at any step goes on when it is run again, as if nothing had happened.

Each try forks a child that dies at the n-th step it makes on the disk: at an opening, a rename, a write
(of which a part may still get through), or before or after a sync. Steps are counted by an audit hook
and two patched functions, so that the code that is tested knows nothing of it.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gbfix import engine
from gbfix.errors import UserError
from gbfix.findings import RunResult
from gbfix.migrate import run
from gbfix.migrate.journal import Interrupted, Journal
from gbfix.migrate.outcome import Checked, Outcome, Policy, State
from gbfix.settings import Settings
from gbfix.source.loading import load

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="it needs children to kill")

KILLED = 77
EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "os.chmod", "os.utime")
MODULE = """import torch
from torch import nn

class Block{n}(nn.Module):
    def forward(self, x):
        print("block", {n})
        if x.sum() > {n}:
            x = x * 2
        return x
"""


def _creates(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & os.O_CREAT)


class _Killer:
    """Counts the steps on the disk, and acts at one of them."""

    def __init__(self, at: int, act: Callable[[], None], part: float = 0.5) -> None:
        self.count, self.at, self.act, self.part = 0, at, act, part
        self.write, self.fsync = os.write, os.fsync

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.act()

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and any(".py" in str(a) or ".gbfix" in str(a) for a in arguments):
            # Reading needs no room on the disk.
            if self.act is die or event == "os.mkdir" or (event == "open" and _creates(arguments)):
                self.step()

    def writing(self, descriptor: int, content: Any) -> int:
        self.count += 1
        if self.count == self.at:
            self.write(descriptor, bytes(content)[: int(len(content) * self.part)])
            self.act()
        return self.write(descriptor, content)

    def syncing(self, descriptor: int) -> None:
        self.step()
        self.fsync(descriptor)
        self.step()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small codebase of two packages."""
    root = tmp_path_factory.mktemp("project")
    for package in ("one", "two"):
        (root / package).mkdir()
        (root / package / "__init__.py").write_text("")
        for number in range(3):
            text = MODULE.replace("{n}", str(number))
            (root / package / f"m{number}.py").write_text(text, newline="\r\n" if number else "\n")
    return root


def wanted(root: Path) -> run.Migration:
    return run.Migration(root, Policy("review", True))


def plan(root: Path) -> Callable[[], RunResult]:
    """A plan that is made once for each state of the files, so that a try is fast."""

    def made() -> RunResult:
        sources = load(sorted(root.glob("*/*.py"))).sources
        key = tuple((s.path.relative_to(root), s.text) for s in sources)
        if key not in _PLANS:
            _PLANS[key] = [
                (f.path.relative_to(root), f.after, f.findings)
                for f in engine.run(sources, Settings()).files
            ]
        files = []
        for source, (_, after, findings) in zip(sources, _PLANS[key], strict=True):
            files.append(engine.FileResult(source.path, source, after, findings))
        return RunResult(tuple(files))

    return made


_PLANS: dict[Any, Any] = {}


def verify(made: RunResult, journal: Journal) -> tuple[RunResult, tuple[Checked, ...]]:
    """Stands in for running the code, but keeps what it finds as the real one does."""
    known = {record["key"] for record in journal.of("tried")}
    for file in made.files:
        if file.changed and file.path.name not in known:
            journal.append("tried", key=file.path.name, result=journal.keep(file.after.encode()))
    checked = tuple(
        Checked(f"one/{f.path.name}", f"one/{f.path.name}", "Block", False, "verified", True, "")
        for f in made.files
        if f.changed
    )
    return made, checked


def contents(root: Path) -> dict[str, bytes]:
    """All files but those of the journal; temporary files that are left over would show."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".gbfix" not in path.relative_to(root).parts
    }


def told(outcome: Outcome) -> object:
    files = [(f.path, f.state, f.diff, f.sites, f.verdict) for f in outcome.files]
    return files, outcome.checked, outcome.errors, outcome.totals.fixed


def in_child(at: int, act: Callable[[], None], action: Callable[[], object], part: float) -> int:
    """Do something in a child that acts at a step; gives its exit code, 0 if it came to its end."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        killer = _Killer(at, act, part)
        os.write, os.fsync = killer.writing, killer.syncing  # type: ignore[assignment]
        sys.addaudithook(killer.audit)
        action()
        code = 0
    except Interrupted:
        code = 2
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def die() -> None:
    os._exit(KILLED)


def fill_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(scope="module")
def undisturbed(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, bytes], object]:
    """What the files are, and what is said, after a migration that nothing happens to."""
    root = tmp_path_factory.mktemp("undisturbed") / "copy"
    shutil.copytree(project, root)
    outcome = run.migrate(wanted(root), plan(root), verify)
    assert outcome.totals.written == 6 and contents(root) != contents(project)
    return contents(root), told(outcome)


def steps(project: Path, folder: Path, action: Callable[[Path], object]) -> int:
    """How many steps something makes."""
    low, high = 1, 5000
    while low < high:
        root = folder / f"count{low}-{high}"
        shutil.copytree(project, root, symlinks=True)
        middle = (low + high) // 2
        if in_child(middle, die, lambda root=root: action(root), 0) == KILLED:
            low = middle + 1
        else:
            high = middle
        shutil.rmtree(root)
    return low - 1


@pytest.mark.parametrize("act", [die, fill_disk], ids=["killed", "disk full"])
def test_a_migration_that_is_ended_anywhere_goes_on(
    project: Path,
    undisturbed: tuple[dict[str, bytes], object],
    tmp_path: Path,
    act: Callable[[], None],
) -> None:
    chance = random.Random(6)
    plan(project)()
    last = steps(project, tmp_path, lambda root: run.migrate(wanted(root), plan(root), verify))
    assert last > 100
    tries = 220 if act is die else 60
    for number in range(tries):
        root = tmp_path / str(number)
        shutil.copytree(project, root)
        code = KILLED
        # Some are ended again while they go on.
        for _ in range(chance.choice((1, 1, 2, 3))):
            at = chance.randint(1, last)
            again = lambda root=root: run.migrate(wanted(root), plan(root), verify)  # noqa: E731
            code = in_child(at, act, again, chance.random())
            assert code in (0, KILLED, 2), (number, at)
            whole = contents(project), undisturbed[0]
            for path, content in contents(root).items():
                if not path.endswith(".tmp"):
                    assert content in (whole[0][path], whole[1][path]), (number, at, path)
            if code == 0:
                break
        if code != 0:
            outcome = run.migrate(wanted(root), plan(root), verify)
            # It may have been complete, but for the last words.
            if outcome.totals.fixed:
                assert told(outcome) == undisturbed[1], number
        assert contents(root) == undisturbed[0], number
        assert run.unfinished(root) is None
        _, restored, left = run.undo(root)
        assert contents(root) == contents(project) and len(restored) == 6 and not left
        shutil.rmtree(root)


def test_an_undo_that_is_ended_anywhere_goes_on(project: Path, tmp_path: Path) -> None:
    chance = random.Random(7)
    migrated = tmp_path / "migrated"
    shutil.copytree(project, migrated)
    run.migrate(wanted(migrated), plan(migrated), verify)
    last = steps(migrated, tmp_path, run.undo)
    assert last > 30
    for number in range(60):
        root = tmp_path / str(number)
        shutil.copytree(migrated, root)
        act = chance.choice((die, fill_disk))
        code = in_child(chance.randint(1, last), act, lambda root=root: run.undo(root), 0.5)
        if code != 0:
            try:
                run.undo(root)
            except UserError as error:  # it was complete
                assert "no migration to undo" in str(error)
        assert contents(root) == contents(project), number
        shutil.rmtree(root)


def test_a_file_changed_between_plan_and_write_is_left_and_named(
    project: Path, tmp_path: Path, undisturbed: tuple[dict[str, bytes], object]
) -> None:
    root = tmp_path / "copy"
    shutil.copytree(project, root)

    def meanwhile(made: RunResult, journal: Journal) -> tuple[RunResult, tuple[Checked, ...]]:
        (root / "one" / "m1.py").write_text("import torch  # mine\n")
        return made, ()

    outcome = run.migrate(wanted(root), plan(root), meanwhile)
    (left,) = [file for file in outcome.files if file.state is State.NOT_WRITTEN]
    assert left.path == "one/m1.py" and "changed" in left.reason
    assert all(site.fix is None and site.refusals for site in left.sites)
    assert [error.path for error in outcome.errors] == ["one/m1.py"]
    expected = {**undisturbed[0], "one/m1.py": b"import torch  # mine\n"}
    assert contents(root) == expected
    run.undo(root)
    assert contents(root) == {**contents(project), "one/m1.py": b"import torch  # mine\n"}


def test_undo_refuses_files_that_changed_since(project: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(project, root)
    run.migrate(wanted(root), plan(root), verify)
    after = contents(root)
    (root / "two" / "m0.py").write_text("mine\n")
    (root / "two" / "m2.py").unlink()
    with pytest.raises(UserError, match=r"two/m0\.py, two/m2\.py changed since"):
        run.undo(root)
    assert contents(root)["one/m0.py"] == after["one/m0.py"]
    run.undo(root, force=True)
    assert contents(root) == contents(project)
