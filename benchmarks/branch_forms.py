"""Which form of a data-dependent branch is fastest: `torch.where`, `torch.cond`, or a graph break.

The rule for gbfix's default form is set from this. Steady-state latency of a function with one
branch, in three forms, for arms of growing cost. The forms are timed in alternation, on the CPU by
the thread's own clock, so that other work on the machine counts little; a ratio is the median over
rounds with its quartiles.

    python benchmarks/branch_forms.py --save
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"
ARMS = ("cheap 1", "cheap 2", "cheap 4", "cheap 8", "cheap 16", "clamp 1", "tanh 1", "tanh 4")
ARMS_WITH_GRADIENTS = ("cheap 1", "cheap 4", "cheap 16", "clamp 1", "tanh 1", "tanh 4")
SIZES = (8, 256, 1024)
BACKENDS = ("inductor", "aot_eager")
ROUNDS = 25
ROUND_SECONDS = 0.004

Arm = Callable[[torch.Tensor], torch.Tensor]
Form = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Ratio:
    """A median and its quartiles over rounds."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


@dataclass(frozen=True)
class Cell:
    """One setting, measured: the time of `where` and the others' ratio to it."""

    backend: str
    gradients: bool
    size: int
    arm: str
    taken: bool
    where_us: float
    cond: Ratio
    broken: Ratio


OPERATIONS: dict[str, list[Arm]] = {
    "cheap": [lambda x: x * 0.99, lambda x: x + 0.1],
    "clamp": [lambda x: torch.clamp(x, -0.5, 0.5)],
    "tanh": [torch.tanh],
}


def make_arm(name: str, size: int, device: str) -> Arm:
    """An arm of so many elementwise operations of a sort, or of one matrix product."""
    if name == "matmul":
        weight = torch.randn(size, size, device=device) / size**0.5
        return lambda x: x @ weight
    sort, count = name.split()
    operations = itertools.islice(itertools.cycle(OPERATIONS[sort]), int(count))
    return lambda x, chosen=tuple(operations): functools.reduce(lambda h, f: f(h), chosen, x)


def forms(arm: Arm) -> dict[str, Form]:
    """The same function three times, with one operation before the branch and one after."""

    def where(x: torch.Tensor) -> torch.Tensor:
        h = x * 1.5
        h = torch.where(h.amax() > 100, arm(h), h)
        return h + 1

    def cond(x: torch.Tensor) -> torch.Tensor:
        h = x * 1.5
        h = torch.cond(h.amax() > 100, lambda: arm(h), lambda: h.clone())
        return h + 1

    def broken(x: torch.Tensor) -> torch.Tensor:
        h = x * 1.5
        if h.amax() > 100:
            h = arm(h)
        return h + 1

    return {"where": where, "cond": cond, "broken": broken}


def step(form: Form, x: torch.Tensor) -> Callable[[], None]:
    """One thing to time: a call, and its backward pass where gradients are on."""

    def forward() -> None:
        with torch.no_grad():
            form(x)

    def forward_backward() -> None:
        x.grad = None
        form(x).sum().backward()

    return forward_backward if x.requires_grad else forward


def timed(function: Callable[[], None], repeats: int) -> float:
    on_gpu = torch.cuda.is_initialized()
    clock = time.perf_counter if on_gpu else time.thread_time
    start = clock()
    for _ in range(repeats):
        function()
    if on_gpu:
        torch.cuda.synchronize()
    return (clock() - start) / repeats


def alternate(steps: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
    """Time per call of each step in each round, the steps taking turns."""
    repeats = {}
    for name, function in steps.items():
        timed(function, 5)
        repeats[name] = max(1, int(ROUND_SECONDS / timed(function, 5)))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, function in steps.items():
            times[name].append(timed(function, repeats[name]))
    return times


def ratio(times: list[float], base: list[float]) -> Ratio:
    return Ratio(*statistics.quantiles([t / b for t, b in zip(times, base, strict=True)], n=4))


def example(size: int, gradients: bool, taken: bool, device: str) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(size, size, device=device)
    x[0, 0] = 1000.0 if taken else 0.0
    return x.requires_grad_(gradients)


def check(compiled: dict[str, Form], x: torch.Tensor) -> None:
    """Times of forms that compute different things would mean nothing."""
    results = {}
    for name, form in compiled.items():
        step(form, x)()
        results[name] = (form(x).detach(), x.grad)
    for name in ("cond", "broken"):
        torch.testing.assert_close(results[name], results["where"])


def cells(backend: str, gradients: bool, size: int, arm: str, device: str) -> Iterator[Cell]:
    """Compile the three forms once, and time them with the branch taken and not."""
    torch._dynamo.reset()
    function = make_arm(arm, size, device)
    compiled = {
        name: torch.compile(form, backend=backend, dynamic=False, fullgraph=name != "broken")
        for name, form in forms(function).items()
    }
    for taken in (True, False):
        x = example(size, gradients, taken, device)
        with torch.set_grad_enabled(gradients):
            check(compiled, x)
        times = alternate({name: step(form, x) for name, form in compiled.items()})
        yield Cell(
            backend,
            gradients,
            size,
            arm,
            taken,
            statistics.median(times["where"]) * 1e6,
            ratio(times["cond"], times["where"]),
            ratio(times["broken"], times["where"]),
        )


def measure(device: str, backends: list[str]) -> list[Cell]:
    found: list[Cell] = []
    for backend, gradients, size in itertools.product(backends, (False, True), SIZES):
        for arm in (*(ARMS_WITH_GRADIENTS if gradients else ARMS), "matmul"):
            start = time.monotonic()
            found += cells(backend, gradients, size, arm, device)
            print(
                f"{backend} gradients={gradients} {size} {arm}: {time.monotonic() - start:.0f} s",
                file=sys.stderr,
            )
    return found


def mode(cell: Cell) -> str:
    return f"{cell.backend}, {'forward and backward' if cell.gradients else 'forward, no_grad'}"


def pairs(found: list[Cell]) -> list[tuple[Cell, Cell]]:
    """Each setting with its branch taken and not taken."""
    return list(zip(found[::2], found[1::2], strict=True))


def even(taken: Cell, other: Cell) -> float:
    """`cond` against `where`, for a branch that is taken half of the time."""
    cond = sum(c.where_us * c.cond.median for c in (taken, other))
    return cond / (taken.where_us + other.where_us)


def summary(found: list[Cell]) -> str:
    """One figure for each arm and size: above 1, `where` is the better default."""
    modes = list(dict.fromkeys(mode(c) for c in found))
    figures = {(mode(a), a.arm, a.size): even(a, b) for a, b in pairs(found)}
    lines = [
        "## cond / where, the branch taken half of the time",
        "",
        "| arm | " + " | ".join(f"{m}: {'; '.join(map(str, SIZES))}" for m in modes) + " |",
        "|---" * (len(modes) + 1) + "|",
    ]
    for arm in dict.fromkeys(c.arm for c in found):
        cells_of_arm = [
            "; ".join(f"{figures[m, arm, s]:.2f}" for s in SIZES if (m, arm, s) in figures)
            for m in modes
        ]
        lines.append(f"| {arm} | " + " | ".join(cells_of_arm) + " |")
    return "\n".join(lines)


def markdown(found: list[Cell]) -> str:
    """The summary, and all ratios with their spread."""
    parts = [summary(found)]
    for name, group in itertools.groupby(pairs(found), key=lambda pair: mode(pair[0])):
        lines = [
            f"## {name}",
            "",
            "| size | arm | where, us | cond / where, taken | not taken "
            "| broken / where, taken | not taken |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {a.size} | {a.arm} | {a.where_us:.0f} "
            f"| {a.cond} | {b.cond} | {a.broken} | {b.broken} |"
            for a, b in group
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def heading(device: str) -> str:
    return (
        f"# Forms of a branch: torch {torch.__version__}, Python {platform.python_version()}, "
        f"{device}, float32, one thread\n\n"
        "`where(pred, f(x), x)` against `cond(pred, f, clone)` and a plain `if` that breaks the "
        "graph,\nthe predicate a reduction of x. An arm is so many operations: cheap is multiply "
        "and add. Tensors are\nsize x size. Ratios are medians over rounds with quartiles; above "
        "1, `where` is faster.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--save", action="store_true", help="write results/branch_forms.*")
    options = parser.parse_args()

    torch.set_num_threads(1)
    found = measure(options.device, options.backends)
    text = f"{heading(options.device)}\n{markdown(found)}\n"
    print(text)
    if options.save:
        suffix = "" if options.device == "cpu" else f"_{options.device}"
        data = {
            "torch": torch.__version__,
            "device": options.device,
            "rounds": ROUNDS,
            "cells": [asdict(c) for c in found],
        }
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"branch_forms{suffix}.json").write_text(json.dumps(data, indent=1) + "\n")
        (RESULTS / f"branch_forms{suffix}.md").write_text(text)


if __name__ == "__main__":
    main()
