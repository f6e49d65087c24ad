"""What a CUDA machine confirms, in one table: outputs, gradients, breaks, waiting, graphs, latency.

Runs the examples, the models of the break table and the fixtures, original against rewritten, on the
device, within a budget of time. What does not run is shown with the reason. The rewritten examples
and fixtures are those of the repository, so that torch is all the machine needs: neither gbfix nor
numpy has to be installed. The models need transformers, and gbfix with its dependencies.

    python benchmarks/gpu_check.py > table.md              # under five minutes
    python benchmarks/gpu_check.py --device cpu --only examples
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]

import gbfix  # noqa: E402

if importlib.util.find_spec("gbfix.transforms") is None:
    # An installation has the transforms inside of the package, a checkout beside it.
    gbfix.__path__.append(str(ROOT))

from gbfix.dynamo.backends import default_backend  # noqa: E402
from gbfix.dynamo.records import Capture  # noqa: E402
from gbfix.errors import UserError  # noqa: E402
from gbfix.verify.checker import inputs_for, measured, verify_sides  # noqa: E402
from gbfix.verify.jobs import Limits  # noqa: E402
from gbfix.verify.messages import Measured  # noqa: E402
from gbfix.verify.options import Options  # noqa: E402
from gbfix.verify.recipes import Inputs  # noqa: E402
from gbfix.verify.targets import Side, Target, of_file  # noqa: E402
from gbfix.verify.verdict import Status, Verdict  # noqa: E402
from gbfix.verify.worker import Workers  # noqa: E402
from tests import fixture_run  # noqa: E402
from tests.fixture_case import all_cases  # noqa: E402

EXAMPLES = ROOT / "tests" / "examples"
CACHE = ROOT / ".cache" / "gpu_check"
GROUPS = ("examples", "models", "fixtures")
HEADER = (
    "row", "verdict", "outputs", "gradients", "breaks", "host syncs a call", "CUDA graphs a call",
    "first call, ms", "batch-1 call, µs",
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One row to come: what is compared, how, and in which way it is measured."""

    name: str
    original: Side
    rewritten: Side
    inputs: Inputs | None
    options: Options
    mode: str | None
    backend: str | None


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be had, and why."""

    name: str
    reason: str


# What there is to check


def examples(device: str, limits: Limits) -> Iterator[Task | Skipped]:
    """The small programs that people write, with generated inputs."""
    compiled = default_backend() if device == "cuda" else "aot_eager"
    for path in sorted(EXAMPLES.glob("*.py")):
        text, after = path.read_text("utf-8"), (EXAMPLES / "after" / path.name).read_text("utf-8")
        target = of_file(path, _target_of(text))
        place = os.path.realpath(path)
        yield Task(
            path.stem,
            Side(target, ((place, text),)),
            Side(target, ((place, after),)),
            None,
            _options(device, limits, compiled),
            "reduce-overhead" if device == "cuda" else None,
            None if device == "cuda" else compiled,
        )


def _target_of(text: str) -> str:
    """The function that is compiled, or the module, of an example."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("@torch.compile"):
            return lines[number + 1].removeprefix("def ").partition("(")[0]
    return next(x for x in lines if x.startswith("class ")).removeprefix("class ").partition("(")[0]


def fixtures(device: str, limits: Limits) -> Iterator[Task | Skipped]:
    """The fixtures that are rewritten; without Inductor, of which there is no time for so many."""
    for case in all_cases():
        if not case.after.exists() or not case.rewritten:
            continue
        options = _options(device, limits, "aot_eager")
        yield Task(
            case.name,
            fixture_run.side(case, case.before),
            fixture_run.side(case, case.after),
            fixture_run.inputs(case),
            replace(options, leeway=fixture_run.leeway(case)),
            None,
            "cudagraphs" if device == "cuda" else "aot_eager",
        )


def models(device: str, limits: Limits) -> Iterator[Task | Skipped]:
    """The rows of the break table, on stock and on rewritten transformers."""
    missing = [
        name for name in ("transformers", "libcst") if importlib.util.find_spec(name) is None
    ]
    import models as table
    import trees

    rows = list(table.ROWS)
    if missing:
        reason = f"{' and '.join(missing)} not installed"
        yield from (Skipped(row, reason) for row in rows)
        return
    try:
        arguments = ["--region", "forward", "--no-respect-gitignore"]
        package = trees.rewrite(CACHE, rows, True, arguments)
    except (trees.TreeError, OSError) as error:
        yield from (Skipped(row, str(error).splitlines()[0]) for row in rows)
        return
    for row in rows:
        built = f"build({row!r})"
        sides = [
            Side(
                Target(
                    "models",
                    "build",
                    str(HERE / "models.py"),
                    (*folders, str(HERE)),
                    expression=f"{built}.model",
                )
            )
            for folders in ((), (str(package.parent),))
        ]
        calls = 3 if row.startswith("phi3") else 1
        inputs = Inputs(expressions=tuple(f"{built}.calls[{n}]" for n in range(calls)))
        half = row.endswith("fp16") and device == "cpu"
        yield Task(
            row,
            sides[0],
            sides[1],
            inputs,
            replace(_options(device, limits, "aot_eager"), gradients=not half),
            "reduce-overhead" if device == "cuda" else None,
            None if device == "cuda" else "aot_eager",
        )


def _options(device: str, limits: Limits, backend: str) -> Options:
    return Options(
        backend,
        device=device,
        limits=limits,
        fullgraph_before=False,
        both_dynamic=False,
        launches=False,
        search_seconds=10,
        shrink_seconds=0,
    )


# Rows


def row(task: Task, workers: Workers, lock: str) -> list[str]:
    """Verify one task, measure both sides, and put it into words."""
    try:
        inputs = task.inputs or inputs_for(workers, task.original, task.rewritten, task.options)
    except UserError as error:
        return _skipped(task.name, str(error))
    verdict = verify_sides(workers, task.original, task.rewritten, inputs, task.options)
    raising = verdict.evidence.raising
    running = tuple(n for n in range(len(verdict.evidence.inputs)) if n not in raising)
    if not running:
        return _row(task.name, verdict, None)
    inputs = replace(inputs, only=running)
    options = replace(task.options, backend=task.backend)
    before, after = (
        measured(workers, side, inputs, options, mode=task.mode, lock=lock)
        for side in (task.original, task.rewritten)
    )
    return _row(task.name, verdict, (before, after))


def _row(name: str, verdict: Verdict, found: tuple[Measured, Measured] | None) -> list[str]:
    evidence = verdict.evidence
    good = verdict.status in (Status.VERIFIED, Status.PARTLY_VERIFIED)
    says = verdict.status.value if good else f"{verdict.status.value}: {verdict.reason[:120]}"
    gradients = "equal" if good and evidence.gradients else "none" if good else "-"
    cells = [name, says, "equal" if good else "-", gradients]
    cells.append(_arrow(_breaks(evidence.before), _breaks(evidence.after)))
    if found is None or any(one.launches is None for one in found):
        failures = [one.failure for one in found or () if one.failure is not None]
        return [*cells, *["-"] * 3, f"not measured: {(failures or ['no call runs'])[0][:120]}"]
    before, after = found
    first, second = before.launches, after.launches
    assert first is not None and second is not None
    cells.append(_arrow(f"{first.syncs_a_call:.3g}", f"{second.syncs_a_call:.3g}"))
    cells.append(_arrow(f"{first.graphs_a_call:.3g}", f"{second.graphs_a_call:.3g}"))
    cells.append(_arrow(f"{before.first * 1e3:.0f}", f"{after.first * 1e3:.0f}"))
    cells.append(_arrow(f"{before.steady * 1e6:.0f}", f"{after.steady * 1e6:.0f}"))
    return cells


def _breaks(capture: Capture | None) -> str:
    return "-" if capture is None else str(len(capture.breaks))


def _arrow(before: str, after: str) -> str:
    return f"{before} → {after}"


def _skipped(name: str, reason: str) -> list[str]:
    return [name, f"skipped: {reason}", *["-"] * (len(HEADER) - 2)]


def check(tasks: list[Task | Skipped], jobs: int, deadline: float) -> list[list[str]]:
    """All rows, in the order of the tasks; several at once, each with a worker of its own."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(tasks)):
        waiting.put(number)
    rows: dict[int, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        lock = str(Path(folder) / "lock")

        def work() -> None:
            with Workers(1) as workers:
                while True:
                    try:
                        number = waiting.get_nowait()
                    except queue.Empty:
                        return
                    rows[number] = one(tasks[number], workers)

        def one(task: Task | Skipped, workers: Workers) -> list[str]:
            if isinstance(task, Skipped):
                return _skipped(task.name, task.reason)
            left = deadline - time.monotonic()
            if left < 10:
                return _skipped(task.name, "the time budget is spent")
            limits = replace(task.options.limits, seconds=min(task.options.limits.seconds, left))
            try:
                return row(
                    replace(task, options=replace(task.options, limits=limits)), workers, lock
                )
            except Exception as error:  # one row's failure must not cost the table
                return _skipped(task.name, f"{type(error).__name__}: {error}"[:200])

        threads = [threading.Thread(target=work) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [rows[number] for number in range(len(tasks))]


# The report


def describe(device: str) -> str:
    """The device and what runs on it."""
    import torch

    parts = [f"torch {torch.__version__}", f"Python {platform.python_version()}"]
    for name in ("transformers", "triton", "gbfix"):
        try:
            parts.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            parts.append(f"no {name}")
    name = platform.processor() or platform.machine()
    if device == "cuda":
        name = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    return f"gbfix on {name} ({', '.join(parts)})"


def table(rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [list(HEADER), ["---"] * len(HEADER), *rows]
    texts = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in texts)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--names", nargs="+", help="only rows with one of these in their name")
    parser.add_argument("--budget", type=float, default=270, help="seconds (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)), help="rows at once"
    )
    return parser.parse_args()


def main() -> int:
    options = parse()
    start = time.monotonic()
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print("there is no CUDA device; --device cpu runs the same without one.", file=sys.stderr)
        return 2
    # A CUDA context maps more address space than a limit on memory would allow.
    limits = Limits(90.0, None if options.device == "cuda" else 8 << 30)
    makers: dict[str, Callable[[str, Limits], Iterator[Task | Skipped]]] = {
        "examples": examples,
        "models": models,
        "fixtures": fixtures,
    }
    tasks: list[Task | Skipped] = []
    for group in options.only:
        tasks += makers[group](options.device, limits)
    if options.names:
        tasks = [task for task in tasks if any(part in task.name for part in options.names)]
    rows = check(tasks, options.jobs, start + options.budget)
    good = sum(row[2] == "equal" for row in rows)
    print(f"# {describe(options.device)}\n")
    print(table(rows))
    print(
        f"\n{good} of {len(rows)} rows equal in {time.monotonic() - start:.0f} s. Examples and models "
        'are measured with `mode="reduce-overhead"` on CUDA, fixtures with the backend `cudagraphs`; '
        "without CUDA all with `aot_eager`. A first call compiles; several rows run at once, and later "
        "calls are timed alone. Calls that raise are compared in eager only on CUDA, where a failing "
        "check ends the process's context."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
