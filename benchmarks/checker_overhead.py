"""What the checker costs beyond the compilations and calls that it makes.

The examples are verified with one worker that is reused; every run that the checker makes is then made
again by a plain loop in one process, without keeping or comparing anything. What is bare are importing
the file, building the target, making the arguments, resetting Dynamo before a run as each has to begin
without what others compiled, compiling, calling, and going backward. What the checker adds is all else:
the processes, warming them up, seeds, copies of what is seen, counting what runs outside of graphs,
comparing, and what the client does itself.

Processor seconds of both are compared, since they depend less on what else the machine does. What
happens once a process, before the first target, is told apart on both sides: importing torch and the
compiler, and a first run of a loop, or what a server does while it starts. The search for inputs is not
measured.

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
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from gpu_check import EXAMPLES, examples  # noqa: E402

from gbfix.verify.checker import inputs_for, verify_sides  # noqa: E402
from gbfix.verify.jobs import Job, Limits, Outcome  # noqa: E402
from gbfix.verify.messages import RunSpec  # noqa: E402
from gbfix.verify.options import Options  # noqa: E402
from gbfix.verify.worker import Workers  # noqa: E402

RESULTS = HERE / "results" / "checker_overhead.json"
RUN = "gbfix.verify.execute:run"


class Recording(Workers):
    """Workers that remember the runs they were asked for."""

    def __init__(self) -> None:
        super().__init__(1)
        self.specs: list[RunSpec] = []

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run jobs as always."""
        self.specs += [pickle.loads(job.arguments)[0] for job in jobs if job.function == RUN]
        return super().run(jobs)


def children() -> float:
    """Processor seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def checked(backend: str, names: list[str]) -> tuple[list[RunSpec], float, float, float]:
    """Verify the examples: the runs, their processor and wall seconds, and those of the start."""
    tasks = [t for t in examples("cpu", Limits()) if not names or t.name in names]
    options = Options(backend, both_dynamic=False, shrink_seconds=0)
    inputs = []
    with Workers(1) as workers:
        for task in tasks:
            inputs.append(inputs_for(workers, task.original, task.rewritten, options))  # type: ignore[union-attr]
    start = children()
    with Workers(1) as workers:
        workers.run([Job("os:getpid", pickle.dumps(()))])
    idle = children() - start
    start = children()
    workers = Recording()
    with workers:
        workers.run([Job("os:getpid", pickle.dumps(()))])
        began, own = time.perf_counter(), time.process_time()
        for task, given in zip(tasks, inputs, strict=True):
            verdict = verify_sides(workers, task.original, task.rewritten, given, options)  # type: ignore[union-attr]
            print(f"{task.name}: {verdict.status.value}", file=sys.stderr)
        wall, own = time.perf_counter() - began, time.process_time() - own
    return workers.specs, children() - start - idle + own, wall, idle


def bare(specs: list[RunSpec]) -> tuple[float, float, float]:
    """Make the same runs in this process, and nothing else.

    Returns:
        Processor and wall seconds, and the processor seconds of the start.
    """
    import torch
    from torch.utils import _pytree as pytree

    from gbfix.dynamo import control
    from gbfix.verify.recipes import Inputs

    torch.set_num_threads(1)

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

    with open(os.devnull, "w") as nothing:  # noqa: PTH123
        printed, sys.stdout = sys.stdout, nothing
        once(specs[0])  # what is loaded at the first run is loaded in a worker as well
        before, used, began = children(), time.process_time(), time.perf_counter()
        for spec in specs:
            once(spec)
        sys.stdout = printed
    processor = time.process_time() - used + children() - before
    return processor, time.perf_counter() - began, used


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--names", nargs="+", default=[], help=f"of the files in {EXAMPLES.name}/")
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--save", action="store_true", help=f"add to {RESULTS.name}")
    options = parser.parse_args()
    if options.bare is not None:
        print(json.dumps(bare(pickle.loads(options.bare.read_bytes()))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/checker"
        specs, processor, wall, start = checked(options.backend, options.names)
        path = Path(folder) / "specs"
        path.write_bytes(pickle.dumps(specs))
        command = [sys.executable, __file__, "--bare", str(path)]
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/bare"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    alone, alone_wall, alone_start = json.loads(done.stdout.splitlines()[-1])
    import torch

    result = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "backend": options.backend,
        "runs": len(specs),
        "checker_cpu_seconds": round(processor, 2),
        "bare_cpu_seconds": round(alone, 2),
        "added": round(processor / alone - 1, 3),
        "checker_wall_seconds": round(wall, 2),
        "bare_wall_seconds": round(alone_wall, 2),
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
