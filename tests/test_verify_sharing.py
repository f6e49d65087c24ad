"""Runs that share a process: which do, what ends it, and that no run makes up for another."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gbfix.verify import sharing
from gbfix.verify.api import verify
from gbfix.verify.jobs import Job, Limits
from gbfix.verify.messages import RunSpec
from gbfix.verify.options import Options
from gbfix.verify.probing import job, record_of
from gbfix.verify.recipes import CallRecipe, Inputs, TensorRecipe
from gbfix.verify.targets import Side, of_file
from gbfix.verify.verdict import Status
from gbfix.verify.worker import Workers

OPTIONS = Options(backend="aot_eager", shrink_seconds=0, both_dynamic=False)
INPUTS = Inputs((CallRecipe((TensorRecipe((3,), "float32"),)),))
TOGETHER = "gbfix.verify.consecutive:run_each"


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(1) as found:
        yield found


def spec(folder: Path, text: str, **how: object) -> RunSpec:
    path = folder / "code.py"
    path.write_text(text)
    side = Side(of_file(path, "target"), ((str(path.resolve()), text),))
    return RunSpec(side, INPUTS, **how)  # type: ignore[arg-type]


def made_together(workers: Workers, *specs: RunSpec) -> list[bytes]:
    (outcome,) = workers.run([job(TOGETHER, Limits(), *specs)])
    assert outcome.result is not None, outcome
    return list(pickle.loads(outcome.result))


def test_the_same_run_as_one_graph_follows(tmp_path: Path) -> None:
    text = "def target(x):\n    return x\n"
    ways = [
        spec(tmp_path, text, backend="aot_eager"),
        spec(tmp_path, text, backend="aot_eager", gradients=True),
        spec(tmp_path, text, backend="eager", fullgraph=True),
        spec(tmp_path, text),
        spec(tmp_path, text, watch=True),
    ]
    assert sharing._groups(ways) == [[0, 2], [1], [3], [4]]
    assert sharing._groups(ways[::-1]) == [[0], [1], [4, 2], [3]]
    assert sharing._groups(ways[2:3] * 2 + ways[:1]) == [[2, 0], [1]]
    other = spec(tmp_path, text, backend="eager", fullgraph=True, dynamic=False)
    assert sharing._groups([ways[0], other]) == [[0], [1]]


def test_what_is_not_built_anew_or_is_on_a_device_is_run_alone(tmp_path: Path) -> None:
    text = "def target(x):\n    return x\n"
    plain = spec(tmp_path, text, backend="aot_eager")
    more = (*plain.side.texts, (str(tmp_path / "other.py"), ""))
    for changed in (
        replace(plain, device="cuda"),
        replace(plain, inputs=Inputs(factory="code:inputs")),
        replace(plain, side=replace(plain.side, texts=more)),
        replace(plain, side=Side(replace(plain.side.target, init="code:made"), plain.side.texts)),
        replace(plain, side=Side(replace(plain.side.target, pickled=b"."), plain.side.texts)),
    ):
        whole = replace(changed, backend="eager", fullgraph=True)
        assert sharing._groups([changed, whole]) == [[0], [1]]


def test_each_run_finds_its_file_as_it_was(tmp_path: Path, workers: Workers) -> None:
    text = (
        "import torch\n\nseen = []\n\n\nclass Count:\n    calls = 0\n\n\n"
        "def target(x):\n    Count.calls += 1\n    seen.append(Count.calls)\n    return x * len(seen)\n"
    )
    first, second = made_together(workers, *[spec(tmp_path, text)] * 2)
    assert first == second


@pytest.mark.parametrize(
    "left",
    [
        "os.environ['LEFT'] = 'yes'",
        "os.chdir('/')",
        "import beside",
        "torch.use_deterministic_algorithms(True)",
        "torch.set_grad_enabled(False)",
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    ],
)
def test_what_a_run_leaves_ends_its_process(left: str, tmp_path: Path, workers: Workers) -> None:
    (tmp_path / "beside.py").write_text("state = []\n")
    head = "import os\nimport threading\nimport time\nimport torch\n\n\n"
    text = f"{head}def target(x):\n    {left}\n    return x\n"
    assert len(made_together(workers, *[spec(tmp_path, text)] * 2)) == 1


def test_a_run_that_ends_the_process_takes_no_other_with_it(
    tmp_path: Path, workers: Workers
) -> None:
    mark = tmp_path / "mark"
    mark.write_text("")
    text = (
        "import os\nfrom pathlib import Path\n\n"
        f"mark = Path({str(mark)!r})\nimports = mark.read_text()\nmark.write_text(imports + '.')\n"
        "if imports == '.':\n    os.abort()\n\n\ndef target(x):\n    return x\n"
    )
    plain = spec(tmp_path, text, backend="eager")
    whole = spec(tmp_path, text, backend="eager", fullgraph=True)
    outcomes = sharing.make_runs(workers, [plain, whole], Limits())
    assert [record_of(outcome).failure for outcome in outcomes] == [None, None]
    assert mark.read_text() == "...."  # two of them together, and then each alone


SETS = {
    "attribute of a class of torch": ("torch.nn.Linear.left = 2.0", "torch.nn.Linear.left"),
    "attribute of a class, by another name": ("kind.left = 2.0", "kind.left"),
    "attribute of the class of a tensor": ("type(x).left = 2.0", "type(x).left"),
    "setattr": ("setattr(torch, 'left', 2.0)", "torch.left"),
    "attribute of a logger": ("logger.left = 2.0", "logger.left"),
    "element of what a module has": ("vars(math)['left'] = 2.0", "math.left"),
    "default dtype": ("torch.set_default_dtype(torch.float64)", "torch.get_default_dtype()"),
    "level of a logger": ("logger.setLevel(logging.ERROR)", "logger.isEnabledFor(20)"),
}


@pytest.mark.parametrize("name", SETS)
def test_no_run_makes_up_for_what_another_loses(
    name: str, tmp_path: Path, workers: Workers
) -> None:
    """Set in plain calls and lost with gradients: only a process of its own shows it."""
    sets, reads = SETS[name]
    head = (
        "import logging\nimport math\nimport torch\n\nkind = torch.nn.Linear\n"
        "logger = logging.getLogger('user')\n\n\n"
    )
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    body = f"    scale = torch.tensor(1.0, dtype={reads}) if {'dtype' in reads} else {reads}\n"
    before.write_text(
        f"{head}def target(x):\n    {sets}\n{body}"
        "    if x.sum() > 0:\n        return x * scale\n    return -x * scale\n"
    )
    after.write_text(
        f"{head}def target(x):\n    if not x.requires_grad:\n        {sets}\n{body}"
        "    return torch.where(x.sum() > 0, x, -x) * scale\n"
    )
    verdict = verify(f"{before}:target", f"{after}:target", options=OPTIONS, workers=workers)
    assert verdict.status is Status.DIFFERENT, verdict


def test_jobs_within_the_server_end_in_time_and_do_not_end_it(workers: Workers) -> None:
    (before,) = workers.run([Job("os:getppid", pickle.dumps(()))])
    slow = Job("time:sleep", pickle.dumps((60,)), Limits(0.2), within=True)
    wrong = Job("time:sleep", pickle.dumps(("x",)), within=True)
    own = Job("os:getpid", pickle.dumps(()), within=True)
    late, failed, server = workers.run([slow, wrong, own])
    assert late.exhausted and late.failure == "it ran for more than 0.2 seconds"
    assert failed.failure is not None and failed.failure.startswith("TypeError")
    assert before.result == server.result
