"""What a later migration runs again: what has loaded a file that changed, and nothing else."""

from __future__ import annotations

import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gbfix import engine
from gbfix.findings import RunResult
from gbfix.migrate import checking, run
from gbfix.migrate.journal import Interrupted
from gbfix.migrate.meanwhile import Turns
from gbfix.migrate.outcome import Outcome, Policy
from gbfix.migrate.pools import LocalPool
from gbfix.migrate.verifying import Verification
from gbfix.settings import Settings
from gbfix.source.loading import load
from gbfix.verify.messages import RunSpec
from gbfix.verify.options import Options
from gbfix.verify.probing import job
from gbfix.verify.recipes import Inputs
from gbfix.verify.targets import Side
from gbfix.verify.verdict import Status, Verdict
from gbfix.verify.worker import Workers

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="it needs worker processes")

MODEL = """import torch
{imports}

def {name}(x):
{lazily}
    if x.sum() > 0:
        x = x * 2
    else:
        x = x * 3
    return x
"""


def model(name: str, imports: str = "", lazily: str = "pass") -> str:
    return MODEL.format(name=name, imports=imports, lazily=f"    {lazily}")


@dataclass
class Project:
    """A folder that is migrated again and again; nothing is written, as it were, since it is undone."""

    root: Path
    pool: LocalPool
    ran: list[str] = field(default_factory=list)
    targets: tuple[str, ...] = ()
    verdicts: dict[str, Status] = field(default_factory=dict)
    interrupted: str = ""

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def migrate(self) -> Outcome:
        """Migrate, and take it back; `ran` is then what was run."""
        self.ran.clear()
        targets = tuple(str(self.root / target) for target in self.targets)
        wanted = run.Migration(self.root, Policy("review", True, targets))
        verify = Verification(
            wanted, Settings(), Options(backend="eager"), lambda: _Kept(self.pool), run.silent
        )
        outcome = run.migrate(wanted, self.plan, verify)
        run.undo(self.root)
        return outcome

    def plan(self) -> RunResult:
        return engine.run(load(sorted(self.root.rglob("*.py"))).sources, Settings())


class _Kept(LocalPool):
    """A pool whose workers stay for the next migration."""

    def __init__(self, pool: LocalPool) -> None:
        self.submit, self.share = pool.submit, pool.share  # type: ignore[method-assign]

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    made = LocalPool(2)
    yield made
    made.close()


@pytest.fixture
def project(tmp_path: Path, pool: LocalPool, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose code is run in eager only, once for each side."""
    made = Project(tmp_path / "project", pool)
    made.root.mkdir()

    def verifying(workers: Workers, options: Options) -> Callable[..., Verdict]:
        def verify(original: Side, rewritten: Side, inputs: Inputs | None) -> Verdict:
            made.ran.append(original.target.name)
            if made.interrupted == original.target.name:
                raise Interrupted("no more")
            ones = Inputs(expressions=("((torch.ones(2),), {})",))
            specs = [RunSpec(side, ones) for side in (original, rewritten)]
            outcomes = workers.run(
                [job("gbfix.verify.execute:run", options.limits, s) for s in specs]
            )
            failures = [outcome.failure for outcome in outcomes if outcome.result is None]
            status = made.verdicts.get(original.target.name, Status.VERIFIED)
            status = Status.NOT_RUN if failures else status
            return Verdict(original.target.title, status, str(failures))

        return verify

    monkeypatch.setattr(checking, "verifying", verifying)
    monkeypatch.setattr("gbfix.verify.applying.verifying", verifying)
    return made


def test_only_what_loads_a_changed_file_is_run_again(project: Project) -> None:
    project.write("pkg/__init__.py", "")
    project.write("pkg/top.py", "A = 1\n")
    project.write("pkg/late.py", "from pkg import later\n")
    project.write("pkg/later.py", "B = 1\n")
    project.write("pkg/never.py", "raise ValueError\n")
    project.write("pkg/read.txt", "1\n")
    project.write("pkg/one.py", model("one", "from pkg import top"))
    project.write("pkg/two.py", model("two", lazily="import pkg.late"))
    unused = "def unused():\n    import pkg.never"
    reading = "open(__file__.replace('three.py', 'read.txt')).read()"
    project.write("pkg/three.py", model("three", f"{reading}\n{unused}"))
    project.migrate()
    assert sorted(project.ran) == ["one", "three", "two"]
    first = project.migrate()
    assert project.ran == [] and first.totals.by_verdict == {"verified": 3}
    for file, again in (
        ("pkg/never.py", []),
        ("pkg/top.py", ["one"]),
        ("pkg/late.py", ["two"]),
        ("pkg/later.py", ["two"]),
        ("pkg/read.txt", ["three"]),
        ("pkg/two.py", ["two"]),
        ("pkg/__init__.py", ["one", "three", "two"]),
    ):
        before = (project.root / file).read_text()
        project.write(file, before + "# more\n")
        outcome = project.migrate()
        assert sorted(project.ran) == again, file
        assert outcome.totals.by_verdict == {"verified": 3}
        # What was found of the text as it was before is still known.
        project.write(file, before)
        project.migrate()
        assert project.ran == [], file


def test_a_new_file_can_hide_another(project: Project) -> None:
    project.write("one.py", model("one", "import json"))
    project.write("two.py", model("two"))
    project.migrate()
    project.write("json.py", "")
    project.migrate()
    assert sorted(project.ran) == ["one", "two"]
    (project.root / "json.py").unlink()
    project.migrate()
    assert project.ran == []


def test_code_that_leaves_no_module_behind_is_loaded_all_the_same(project: Project) -> None:
    here = "__file__.rpartition('/')[0]"
    executed = f"import runpy; runpy.run_path({here} + '/plain.py')"
    project.write("one.py", model("one", executed))
    removed = "import sys, gone; del sys.modules['gone']"
    project.write("two.py", model("two", removed))
    project.write("plain.py", "A = 1\n")
    project.write("gone.py", "A = 1\n")
    project.migrate()
    for name, file in (("one", "plain.py"), ("two", "gone.py")):
        project.write(file, "A = 2\n")
        project.migrate()
        assert project.ran == [name]


def test_a_link_stands_for_the_file_that_it_leads_to(project: Project) -> None:
    project.write("first.py", "A = 1\n")
    project.write("second.py", "A = 1\n")
    (project.root / "link.py").symlink_to("first.py")
    project.write("one.py", model("one", "import link"))
    project.migrate()
    project.write("second.py", "A = 2\n")
    project.migrate()
    assert project.ran == []
    project.write("first.py", "A = 2\n")
    project.migrate()
    assert project.ran == ["one"]
    (project.root / "link.py").unlink()
    (project.root / "link.py").symlink_to("second.py")
    project.migrate()
    assert project.ran == ["one"]


@pytest.mark.parametrize("how", ["os._exit(0)", "subprocess.run([sys.executable, '-c', ''])"])
def test_what_cannot_tell_what_it_loads_depends_on_all_files(
    project: Project, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    project.write("other.py", "")
    project.write("one.py", model("one", "import os, subprocess, sys", how))
    monkeypatch.setattr("gbfix.migrate.verifying._lasts", lambda run: True)
    project.migrate()
    assert project.ran == ["one"]
    project.migrate()
    assert project.ran == []
    project.write("other.py", "# more\n")
    project.migrate()
    assert project.ran == ["one"]


def test_a_file_that_changes_meanwhile_is_run_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("top.py", "A = 1\n")
    project.write("one.py", model("one", "import top"))
    task = checking.FileTask.__call__

    def edited(self: checking.FileTask, workers: Workers) -> checking.TriedFile:
        done = task(self, workers)
        project.write("top.py", "A = 2\n")
        return done

    with monkeypatch.context() as context:
        context.setattr(checking.FileTask, "__call__", edited)
        project.migrate()
    project.migrate()
    assert project.ran == ["one"]


def test_of_a_file_only_what_was_not_run_is_tried_again(project: Project) -> None:
    second = model("second", lazily="import os; os._exit(1)").split("\n", 2)[2]
    project.write("one.py", model("first") + second)
    project.migrate()
    assert project.ran == ["first", "second"]
    project.migrate()
    assert project.ran == ["second"]


def test_what_did_not_pass_is_chosen_again_from_the_same_runs(project: Project) -> None:
    project.verdicts["second"] = Status.NO_FEWER_BREAKS
    project.write("one.py", model("first") + model("second").split("\n", 2)[2])
    project.write("other.py", "")
    first = project.migrate()
    assert project.ran == ["first", "second"]  # and not what does not use it
    project.write("other.py", "# more\n")
    again = project.migrate()
    assert project.ran == [] and again.files == first.files and again.checked == first.checked


def test_what_is_loaded_from_outside_of_the_folder_counts_as_well(project: Project) -> None:
    outside = project.root.parent / "outside.py"
    outside.write_text("A = 1\n")
    os.utime(outside, (1e9, 1e9))
    project.verdicts["second"] = Status.NO_FEWER_BREAKS
    found = f"import sys; sys.path.append({str(outside.parent)!r}); import outside"
    project.write("one.py", model("second", found))
    project.write("two.py", model("two"))
    project.migrate()
    assert sorted(project.ran) == ["second", "two"]
    project.migrate()
    assert project.ran == []
    outside.write_text("A = 2\n")
    os.utime(outside, (1e9 + 1, 1e9 + 1))
    project.migrate()
    assert project.ran == ["second"]


def test_what_was_run_before_an_interruption_is_not_run_again(project: Project) -> None:
    project.write("one.py", model("first") + model("second").split("\n", 2)[2])
    project.interrupted = "second"
    with pytest.raises(Interrupted):
        project.migrate()
    assert project.ran == ["first", "second"]
    project.interrupted = ""
    project.migrate()
    assert project.ran == ["second"]


def test_an_entry_depends_on_the_rewrites_that_it_loads(project: Project) -> None:
    project.write("used.py", model("used"))
    project.write("entry.py", model("entry", "from used import used"))
    project.write("apart.py", model("apart"))
    project.targets = ("entry.py:entry",)
    project.migrate()
    assert sorted(project.ran) == ["apart", "entry", "entry", "used"]
    project.migrate()
    assert project.ran == []
    project.write("apart.py", model("apart").replace("x * 3", "x * 4"))
    project.migrate()
    assert project.ran == ["apart"]
    project.write("used.py", model("used").replace("x * 3", "x * 4"))
    outcome = project.migrate()
    assert sorted(project.ran) == ["entry", "entry", "used"]
    assert outcome.checked[0].entry


@pytest.mark.parametrize("seed", range(8))
def test_what_is_run_again_is_what_can_see_the_change(project: Project, seed: int) -> None:
    """Modules import earlier ones at their top, in the call, or in a function that is not called."""
    chance = random.Random(seed)
    loads: dict[
        str, set[str]
    ] = {}  # with a module; what a call imports is seen by its own run only
    seen: dict[str, set[str]] = {}
    for number in range(7):
        name = f"m{number}"
        kinds = {other: chance.choice(("top", "called", "not", "", "")) for other in sorted(loads)}
        lines = [f"import {other}" for other, kind in kinds.items() if kind == "top"]
        lines += ["def unused():", "    return 0"]
        lines += [f"    import {other}" for other, kind in kinds.items() if kind == "not"]
        called = [other for other, kind in kinds.items() if kind == "called"]
        lazily = "; ".join(f"import {other}" for other in called) or "pass"
        project.write(f"{name}.py", model(name, "\n".join(lines), lazily))
        tops = [loads[other] for other, kind in kinds.items() if kind == "top"]
        loads[name] = {name}.union(*tops)
        seen[name] = loads[name].union(*(loads[other] for other in called))
    project.migrate()
    assert sorted(project.ran) == sorted(loads)
    for _ in range(4):
        changed = set(chance.sample(sorted(loads), chance.randint(0, 2)))
        for name in changed:
            with (project.root / f"{name}.py").open("a") as stream:
                stream.write(f"# {chance.random()}\n")
        project.migrate()
        assert set(project.ran) == {name for name in seen if seen[name] & changed}, changed


def test_a_project_that_is_elsewhere_is_run_anew(project: Project, tmp_path: Path) -> None:
    project.write("one.py", model("one"))
    project.migrate()
    shutil.move(project.root, tmp_path / "moved")
    project.root = tmp_path / "moved"
    project.migrate()
    assert project.ran == ["one"]


def test_a_bar_moves_with_each_definition() -> None:
    told: list[tuple[str, int]] = []
    turns = Turns(Path("m.py"), "m.py", ("A", "B", "C"), lambda what, by=1: told.append((what, by)))
    for name in ("A", "B", "A", "helper"):
        turns.begin(name)
    turns.end()
    assert told == [("m.py:A", 0), ("m.py:B", 1), ("m.py:A", 0), ("m.py:helper", 0), ("m.py", 2)]
    again = pickle.loads(pickle.dumps(checking.Meanwhile(turns.begin)))
    again.begun("C")
    assert len(told) == 5
