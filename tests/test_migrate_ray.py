"""`gbfix migrate --executor ray`: the same outcome as in a local pool, also when a worker dies."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gbfix.cli.main import main
from gbfix.migrate.outcome import Outcome, from_json
from gbfix.migrate.pools import LocalPool, Shared
from gbfix.migrate.ray_pool import RayPool
from gbfix.verify.worker import Workers

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.xdist_group("ray")

MODEL = """import torch
from torch import nn

class {name}(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x * 2
        else:
            x = x * 3
        return x
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[RayPool]:
    made = RayPool(None, 2)
    yield made
    made.close()


@dataclass(frozen=True)
class _Sum:
    numbers: Shared[list[int]]
    more: int

    def __call__(self, workers: Workers) -> int:
        return sum(self.numbers.get()) + self.more


@dataclass(frozen=True)
class _DiesOnce:
    mark: Path

    def __call__(self, workers: Workers) -> str:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"


@dataclass(frozen=True)
class _DiesThere:
    here: int

    def __call__(self, workers: Workers) -> int:
        if os.getpid() != self.here:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.here


@dataclass(frozen=True)
class _Fails:
    def __call__(self, workers: Workers) -> None:
        raise ValueError("no such thing")


def test_print_stays_what_it_was(pool: RayPool) -> None:
    assert pool.submit(_Sum(pool.share([1]), 1)).result(60) == 2
    assert type(print) is type(len)


def test_tasks_share_a_value(pool: RayPool) -> None:
    for one in (pool, LocalPool(2)):
        numbers = one.share([1, 2, 3])
        assert [one.submit(_Sum(numbers, n)).result(60) for n in (1, 2)] == [7, 8]


def test_a_task_whose_process_dies_is_run_again(pool: RayPool, tmp_path: Path) -> None:
    assert pool.submit(_DiesOnce(tmp_path / "mark")).result(120) == "done"


def test_what_the_cluster_cannot_run_is_run_here(pool: RayPool) -> None:
    assert pool.submit(_DiesThere(os.getpid())).result(240) == os.getpid()


def test_a_failure_of_the_task_itself_is_told(pool: RayPool) -> None:
    with pytest.raises(ValueError, match="no such thing"):
        pool.submit(_Fails()).result(60)


def test_the_outcome_is_that_of_the_local_pool(pool: RayPool, tmp_path: Path) -> None:
    for name in ("One", "Two"):
        (tmp_path / "ray" / name.lower()).mkdir(parents=True)
        (tmp_path / "ray" / name.lower() / "m.py").write_text(MODEL.format(name=name))
    shutil.copytree(tmp_path / "ray", tmp_path / "local")
    outcomes = [_migrated(tmp_path / where, where) for where in ("local", "ray")]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].totals.by_verdict == {"verified": 2}
    for name in ("one/m.py", "two/m.py"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


def _migrated(root: Path, executor: str) -> Outcome:
    """What a migration comes to, without its name and its times."""
    output = root.with_suffix(".json")
    assert main(["migrate", str(root), "--executor", executor, "-j", "2", "-o", str(output)]) == 0
    found = from_json(output.read_text())
    return replace(
        found,
        id="",
        root="",
        started="",
        finished="",
        totals=replace(found.totals, seconds={}),
        checked=tuple(
            replace(run, seconds=0.0) for run in sorted(found.checked, key=lambda run: run.id)
        ),
    )
