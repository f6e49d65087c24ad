"""Runs that share a process: which do, what ends it, and that no run makes up for another."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gbfix.verify import sharing
from gbfix.verify.api import verify
from gbfix.verify.jobs import Job, Limits, Outcome
from gbfix.verify.leftovers import leaves_nothing
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


def test_one_side_shares_a_process_if_its_text_leaves_nothing(tmp_path: Path) -> None:
    text = "def target(x):\n    return x\n"
    ways = [
        spec(tmp_path, text, watch=True),
        spec(tmp_path, text),
        spec(tmp_path, text, gradients=True),
        spec(tmp_path, text, backend="aot_eager"),
        spec(tmp_path, text, backend="aot_eager", gradients=True),
        spec(tmp_path, text, backend="eager", fullgraph=True),
    ]
    assert sharing._by_side(ways, sharing._groups(ways)) == [[0, 1, 2], [3, 5, 4]]
    other = replace(ways[1], side=replace(ways[1].side, texts=((str(tmp_path / "x.py"), text),)))
    assert sharing._by_side([ways[0], other, ways[2]], [[0], [1], [2]]) == [[0, 2], [1]]
    leaving = "import os\n\n\ndef target(x):\n    return x\n"
    ways = [spec(tmp_path, leaving), spec(tmp_path, leaving, gradients=True)]
    assert sharing._by_side(ways, sharing._groups(ways)) == [[0], [1]]


def test_runs_share_a_process_only_where_there_are_more_than_workers(tmp_path: Path) -> None:
    class Counting(Workers):
        jobs = 0

        def run(self, jobs: Sequence[Job]) -> list[Outcome]:
            self.jobs += len(jobs)
            return [Outcome(pickle.dumps((b"", b""))) for _ in jobs]

    text = "def target(x):\n    return x\n"
    ways = [spec(tmp_path, text), spec(tmp_path, text, gradients=True)]
    for parallel, jobs in ((1, 1), (2, 2)):
        counting = Counting(parallel)
        sharing.make_runs(counting, ways, Limits())
        assert counting.jobs == jobs


LEAVING = [
    "import os\n",
    "import mine\n",
    "from . import beside\n",
    "from torch import *\n",
    "from torch import set_grad_enabled\n",
    "import torch\ntorch.set_default_dtype(torch.float64)\n",
    "import torch\ntorch.nn.Linear.left = 2.0\n",
    "import torch\nkind = torch.nn.Linear\nkind.left = 2.0\n",
    "import torch\ndef target(x):\n    kind = torch.nn\n    kind = kind.Linear\n    del kind.left\n",
    "def target(x):\n    type(x).left = 2.0\n",
    "def target(x):\n    x.kept = 2.0\n",
    "import math\nvars(math)['left'] = 2.0\n",
    "import torch\nsetattr(torch, 'left', 2.0)\n",
    "import torch\ntorch.left['x'] += 2.0\n",
    "import torch\ntorch.backends.cudnn.benchmark = True\n",
    "from torch import nn\nnn.modules.module.register_module_forward_hook(print)\n",
    "import torch\n@torch.library.custom_op('a::b', mutates_args=())\ndef f(x): ...\n",
    "import functools\nfunctools.left = 2.0\n",
    "import math\nmath.names.append(2.0)\n",
    "class Kept:\n    def __del__(self):\n        print('gone')\n",
    "class M:\n    def f(self):\n        self.part.__class__.left = 2\n",
    "def target(:\n",
]
FUNCTIONS = """
seen = []


class Count:
    calls = 0


def target(x):
    global seen
    seen.append(x)
    seen[0] = 2
    Count.calls += 1
    x[0] += 1
    x[:, 1] = 0
"""
LAYER = """
import torch
from torch import nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        nn.init.zeros_(self.linear.weight)
        self.register_buffer("count", torch.zeros(2))
        self.cache: dict[str, torch.Tensor] = {}

    def forward(self, x):
        self.cache["x"] = x
        self.linear.weight.data[0] = 0
        with torch.no_grad():
            print(F.relu(x))
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
"""


@pytest.mark.parametrize("text", LEAVING)
def test_a_text_that_may_leave_something_does_not_pass(text: str) -> None:
    assert not leaves_nothing(text)


@pytest.mark.parametrize("text", [FUNCTIONS, LAYER])
def test_a_text_that_stores_in_its_own_passes(text: str) -> None:
    assert leaves_nothing(text)


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
        "warnings.warn('once')",
        "bytearray(1 << 30).count(1)",
        "time.sleep(2.5)",
    ],
)
def test_what_a_run_leaves_ends_its_process(left: str, tmp_path: Path, workers: Workers) -> None:
    (tmp_path / "beside.py").write_text("state = []\n")
    head = "import os\nimport threading\nimport time\nimport torch\nimport warnings\n\n\n"
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
