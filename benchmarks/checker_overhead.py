"""What the checker costs beyond the compilations and calls that it makes.

The examples are verified with one worker that is reused; every run that the checker makes is then made
again by a plain loop in one process, without keeping or comparing anything. What is bare are importing
the file, building the target, making the arguments, resetting Dynamo before a run as each has to begin
without what others compiled, compiling, calling, and going backward. What the checker adds is all else:
the processes, warming them up, seeds, copies of what is seen, counting what runs outside of graphs,
comparing, and what the client does itself.

Processor seconds of both are compared, since they depend less on what else the machine does, and the
two take turns, target by target, so that both meet the same machine. What
happens once a process, before the first target, is told apart on both sides: importing torch and the
compiler, and a first run of a loop, or what a server does while it starts. The client has loaded the
fixes before, since who verifies a rewrite has made it. The search for inputs is not measured.

    python benchmarks/checker_overhead.py --backend aot_eager --save
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from gpu_check import EXAMPLES, examples  # noqa: E402

from gbfix import engine  # noqa: E402
from gbfix.settings import Region, Settings  # noqa: E402
from gbfix.source.text import SourceFile  # noqa: E402
from gbfix.verify.checker import inputs_for, verify_sides  # noqa: E402
from gbfix.verify.jobs import Job, Limits, Outcome, read_frame, write_frame  # noqa: E402
from gbfix.verify.messages import RunSpec  # noqa: E402
from gbfix.verify.options import Options  # noqa: E402
from gbfix.verify.worker import Workers  # noqa: E402

RESULTS = HERE / "results" / "checker_overhead.json"
RUNS = ("gbfix.verify.execute:run", "gbfix.verify.consecutive:run_each")
# A text for the client to load its fixes for.
BRANCH = b"import torch\n\n\ndef f(x):\n    if x.sum() > 0:\n        x = x + 1\n    return x\n"


class Recording(Workers):
    """Workers that remember the runs they were asked for."""

    def __init__(self) -> None:
        super().__init__(1)
        self.specs: list[RunSpec] = []

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run jobs as always; a run that a job was to make and did not is none."""
        outcomes = super().run(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.function in RUNS:
                made = 1 if job.function == RUNS[0] else _made(outcome)
                self.specs += pickle.loads(job.arguments)[:made]
        return outcomes


def _made(outcome: Outcome) -> int:
    return len(pickle.loads(outcome.result)) if outcome.result is not None else 0


def children() -> float:
    """Processor seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def spent(process: int) -> float:
    """Processor seconds of a process that runs, and of its children that have ended; Linux only."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Processor and wall seconds."""

    processor: float = 0.0
    wall: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.processor + other.processor, self.wall + other.wall)


def checked(backend: str, names: list[str], bare: Bare) -> tuple[int, Cost, Cost, float]:
    """Verify the examples, each in turn with a plain loop over its runs.

    Returns:
        The number of runs, the checker's cost, the loop's, and the processor seconds of a start.
    """
    tasks = [t for t in examples("cpu", Limits()) if not names or t.name in names]
    options = Options(backend, both_dynamic=False, shrink_seconds=0)
    inputs = []
    with Workers(1) as workers:
        for task in tasks:
            inputs.append(inputs_for(workers, task.original, task.rewritten, options))  # type: ignore[union-attr]
    engine.run([SourceFile.decode(Path("branch.py"), BRANCH)], Settings(region=Region.ALL))
    before, own, wall = children(), 0.0, 0.0
    alone = Cost()
    runs = 0
    with Recording() as workers:
        (outcome,) = workers.run([Job("os:getppid", pickle.dumps(()))])
        start = spent(pickle.loads(outcome.result or b""))
        for task, given in zip(tasks, inputs, strict=True):
            began, used = time.perf_counter(), time.process_time()
            verdict = verify_sides(workers, task.original, task.rewritten, given, options)  # type: ignore[union-attr]
            wall += time.perf_counter() - began
            own += time.process_time() - used
            alone += bare.run(workers.specs)
            runs += len(workers.specs)
            workers.specs.clear()
            print(f"{task.name}: {verdict.status.value}", file=sys.stderr)
    # The loop's process has not ended yet, so that it is none of these.
    return runs, Cost(children() - before - start + own, wall), alone, start


class Bare:
    """A process that makes runs, and nothing else, when it is told to."""

    def __init__(self, environment: dict[str, str]) -> None:
        command = [sys.executable, __file__, "--bare"]
        self._loop = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def run(self, specs: list[RunSpec]) -> Cost:
        """Make runs, and say what they cost."""
        assert self._loop.stdin is not None and self._loop.stdout is not None
        write_frame(self._loop.stdin, pickle.dumps(specs))
        found: Cost = pickle.loads(read_frame(self._loop.stdout) or b"")
        return found

    def close(self) -> float:
        """End the process; the processor seconds of its start."""
        assert self._loop.stdin is not None and self._loop.stdout is not None
        self._loop.stdin.close()
        start: float = pickle.loads(read_frame(self._loop.stdout) or b"")
        self._loop.wait()
        return start


def make_bare_runs(source: BinaryIO, sink: BinaryIO) -> None:
    """Make runs in this process as they are asked for, and nothing else."""
    import torch
    from torch.utils import _pytree as pytree

    from gbfix.dynamo import control
    from gbfix.verify.recipes import Inputs

    torch.set_num_threads(1)
    start: float | None = None

    def once(spec: RunSpec) -> None:
        torch._dynamo.reset()
        namespace: dict[str, Any] = {"__name__": "target"}
        ((path, text),) = spec.side.texts
        source = compile(text, path, "exec")
        backend = spec.backend

        def run() -> None:
            exec(source, namespace)
            target = namespace[spec.side.target.name]
            target = target() if isinstance(target, type) else target
            if spec.reference and isinstance(target, torch.nn.Module):
                target.double()
            if backend is not None and not control.is_compiled(target):
                target = torch.compile(target)
            inputs: Inputs = spec.inputs
            for number in inputs.order(len(inputs.recipes)):
                args, kwargs = inputs.recipes[number].make()
                if spec.gradients or spec.reference:
                    args = pytree.tree_map(lambda value: _given(value, spec), args)
                try:
                    result = target(*args, **kwargs)
                    if spec.gradients:
                        leaves = [t for t in pytree.tree_leaves(result) if _differentiable(t)]
                        sum(t.double().sum() for t in leaves).backward()  # type: ignore[union-attr]
                except Exception:
                    pass

        if backend is None:
            with control.never_compile():
                run()
        else:
            found = control.lookup(backend)
            with (
                control.comparable(),
                control.compile_with(found, fullgraph=spec.fullgraph, dynamic=spec.dynamic),
            ):
                run()

    def _differentiable(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.requires_grad

    def _given(value: Any, spec: RunSpec) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        value = value.double() if spec.reference else value
        return value.detach().requires_grad_(True).clone() if spec.gradients else value

    while (frame := read_frame(source)) is not None:
        specs: list[RunSpec] = pickle.loads(frame)
        if start is None:
            once(specs[0])  # what is loaded at the first run is loaded in a worker as well
            start = time.process_time()
        before, used, began = children(), time.process_time(), time.perf_counter()
        for spec in specs:
            once(spec)
        used = time.process_time() - used + children() - before
        write_frame(sink, pickle.dumps(Cost(used, time.perf_counter() - began)))
    write_frame(sink, pickle.dumps(start))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--names", nargs="+", default=[], help=f"of the files in {EXAMPLES.name}/")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--save", action="store_true", help=f"add to {RESULTS.name}")
    options = parser.parse_args()
    if options.bare:
        sink = os.fdopen(os.dup(1), "wb")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the examples print
        make_bare_runs(sys.stdin.buffer, sink)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/checker"
        loop = Bare({**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/bare"})
        runs, checker, alone, start = checked(options.backend, options.names, loop)
        alone_start = loop.close()
    import torch

    result = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "backend": options.backend,
        "runs": runs,
        "checker_cpu_seconds": round(checker.processor, 2),
        "bare_cpu_seconds": round(alone.processor, 2),
        "added": round(checker.processor / alone.processor - 1, 3),
        "checker_wall_seconds": round(checker.wall, 2),
        "bare_wall_seconds": round(alone.wall, 2),
        "checker_start_cpu_seconds": round(start, 2),
        "bare_start_cpu_seconds": round(alone_start, 2),
    }
    print(json.dumps(result, indent=1))
    if options.save:
        known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        RESULTS.write_text(json.dumps({**known, options.backend: result}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
