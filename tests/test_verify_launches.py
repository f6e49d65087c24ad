"""Host syncs and CUDA-graph launches: counted in profiles, and measured where there is a device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gbfix.verify.api import verify
from gbfix.verify.checker import measured
from gbfix.verify.jobs import Limits
from gbfix.verify.launches import Event, count
from gbfix.verify.options import Options
from gbfix.verify.recipes import Inputs
from gbfix.verify.targets import Side, resolve
from gbfix.verify.verdict import Status
from gbfix.verify.worker import Workers

BEFORE = """
import torch

def f(x):
    if x.sum() > 0:
        return x + 1
    return x - 1
"""
AFTER = """
import torch

def f(x):
    if torch.compiler.is_compiling():
        return torch.where(x.sum() > 0, x + 1, x - 1)
    if x.sum() > 0:
        return x + 1
    return x - 1
"""


def test_only_what_starts_inside_a_call_counts() -> None:
    """The profiler's own waiting, before and after, is not the code's."""
    events = [
        Event("cudaDeviceSynchronize", 0, 5),
        Event("call", 10, 50),
        Event("aten::item", 12, 20),
        Event("cudaMemcpyAsync", 13, 14),
        Event("cudaStreamSynchronize", 14, 19),
        Event("cudaGraphLaunch", 30, 31),
        Event("cudaDeviceSynchronize", 60, 70),
        Event("call", 100, 150),
        Event("cudaGraphLaunch", 110, 111),
        Event("cudaLaunchKernel", 120, 121),
    ]
    found = count(events, "call")
    assert (found.calls, found.syncs, found.graphs) == (2, 1, 2)
    assert (found.syncs_a_call, found.graphs_a_call) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaEventSynchronize", True),
        ("cudaMemcpy", True),
        ("hipStreamSynchronize", True),
        ("cuCtxSynchronize", True),
        ("cudaStreamWaitEvent", False),
        ("cudaMemcpyAsync", False),
        ("cudaStreamIsCapturing", False),
    ],
)
def test_names_of_waits(name: str, waits: bool) -> None:
    """What the runtime, the driver and ROCm call it."""
    assert count([Event("call", 0, 9), Event(name, 1, 2)], "call").syncs == int(waits)


def test_no_call_is_no_division() -> None:
    assert count([], "call").syncs_a_call == 0.0


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(1) as started:
        yield started


def test_measured_without_a_device(tmp_path: Path, workers: Workers) -> None:
    """Latencies are there, and nothing waits for a device."""
    path = tmp_path / "target.py"
    path.write_text(BEFORE)
    side = Side(resolve(f"{path}:f"), ((str(path.resolve()), BEFORE),))
    inputs = Inputs(expressions=("(torch.ones(3),)", "(-torch.ones(3),)"))
    found = measured(workers, side, inputs, Options("eager"))
    assert found.failure is None
    assert found.first > found.steady > 0
    assert found.launches is not None
    assert (found.launches.calls, found.launches.syncs, found.launches.graphs) == (2, 0, 0)


def test_a_failure_is_told(tmp_path: Path, workers: Workers) -> None:
    path = tmp_path / "target.py"
    text = BEFORE + "\ndef broken(x):\n    raise ValueError('no')\n"
    path.write_text(text)
    side = Side(resolve(f"{path}:broken"), ((str(path.resolve()), text),))
    found = measured(workers, side, Inputs(expressions=("(1,)",)), Options("eager"))
    assert found.failure == "ValueError: no"


def test_only_some_inputs() -> None:
    """On a device, calls that raise are left out of compiled runs."""
    assert [a[0] for a, _ in Inputs(only=(0, 2)).make(lambda: [(1,), (2,), (3,)])] == [1, 3]


def test_counted_on_the_device(tmp_path: Path, workers: Workers) -> None:
    """The branch reads its test on the host; the rewrite does not, and is one CUDA graph."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(BEFORE)
    after.write_text(AFTER)
    options = Options(device="cuda", limits=Limits(120, None))
    found = verify(f"{before}:f", f"{after}:f", options=options, workers=workers)
    assert found.status is Status.VERIFIED, found
    first, second = found.evidence.launches_before, found.evidence.launches_after
    assert first is not None and second is not None
    assert first.syncs_a_call >= 1 and second.syncs_a_call == 0
    assert second.graphs_a_call == 1
