"""The process that imports torch once and forks a fresh child for every job.

It reads batches of jobs from its standard input and writes their outcomes to its standard output,
as pickles with their length in front. A child runs one job under a time and a memory limit, and
whatever it does to itself (crash, hang, exit, change directory, start threads) ends with it. The
server itself never runs the user's code, and has one thread, so that forking it is safe. What every
child would find out anew is found out in the server, before the fork.

Started as `python -m gbfix.verify.server`, and not through `multiprocessing`, which would import the
user's main module in every worker.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import pickle
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from gbfix.verify.bytecode import keep_in
from gbfix.verify.jobs import Job, Limits, Outcome, read_frame, write_frame
from gbfix.verify.loaded import Loaded, modules_before

# What a first run, a first compilation and a first comparison would import in each child anew.
PRELOAD = (
    "torch._dynamo",
    "torch._dynamo.backends.debugging",
    "torch._dynamo.backends.inductor",
    "torch._dynamo.dce_extra_outputs",
    "torch._dynamo.repro.after_dynamo",
    "torch._export.passes._node_metadata_hook",
    "torch._functorch._activation_checkpointing.remat_using_tags_for_fwd_loss_bwd_graph_pass",
    "torch._functorch._aot_autograd.subclass_codegen",
    "torch._higher_order_ops",
    "torch._higher_order_ops.passes.inline_invoke_subgraph",
    "torch._inductor.codegen.cpp",
    "torch._inductor.compile_fx",
    "torch._inductor.compiler_bisector",
    "torch._inductor.scheduler",
    "torch._subclasses.schema_check_mode",
    "torch.distributed.tensor.experimental._attention",
    "torch.export._unlift",
    "torch.fx.experimental.validator",
    "torch.profiler._cupti_monitor",
    "torch.utils.serialization",
    "multiprocessing.synchronize",
    "sympy.combinatorics.tensor_can",
    "sympy.tensor.tensor",
    "gbfix.verify.execute",
    "gbfix.verify.inputs",
    "gbfix.verify.judge",
    "gbfix.verify.measuring",
)


@dataclass
class _Child:
    """A job that is running: its process, the pipe it answers on, and what it has said so far."""

    job: Job
    number: int
    pid: int
    pipe: int
    deadline: float
    said: list[bytes] = field(default_factory=list)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer batches of jobs until the client goes away."""
    while True:
        frame = read_frame(source)
        if frame is None:
            return
        jobs, parallel = pickle.loads(frame)
        outcomes = _run_batch(jobs, parallel, source.fileno())
        if outcomes is None:
            return
        write_frame(sink, pickle.dumps(outcomes))


def _run_batch(jobs: Sequence[Job], parallel: int, client: int) -> list[Outcome] | None:
    """Run jobs, some at a time; None if the client went away meanwhile."""
    for job in jobs:
        if job.prepare is not None:
            _prepare(job.prepare)
    outcomes: dict[int, Outcome] = {}
    running: dict[int, _Child] = {}
    waiting = list(enumerate(jobs))
    while waiting or running:
        while waiting and len(running) < parallel:
            number, job = waiting.pop(0)
            if job.within:
                outcomes[number] = _done(job)
                continue
            child = _start(number, job)
            running[child.pipe] = child
        if not running:
            break
        nearest = min(child.deadline for child in running.values())
        ready, _, _ = select.select(
            [*running, client], [], [], max(0.0, nearest - time.monotonic())
        )
        if client in ready:  # it sends nothing while it waits, so this is the end of it
            for child in running.values():
                _kill(child)
            return None
        for pipe in ready:
            child = running[pipe]
            piece = os.read(pipe, 1 << 20)
            if piece:
                child.said.append(piece)
            else:
                outcomes[child.number] = _finished(running.pop(pipe))
        now = time.monotonic()
        for child in [child for child in running.values() if child.deadline <= now]:
            _kill(running.pop(child.pipe))
            outcomes[child.number] = _too_long(child.job)
    return [outcomes[number] for number in range(len(jobs))]


@functools.cache
def _prepare(function: str) -> None:
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)()
    _freeze()


def _freeze() -> None:
    """Keep children that collect garbage from writing to, and so copying, all that is there now."""
    gc.collect()
    gc.freeze()


def _start(number: int, job: Job) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(job, writing)
    os.close(writing)
    return _Child(job, number, pid, reading, time.monotonic() + job.limits.seconds)


def _child(job: Job, pipe: int) -> None:
    """Run a job and never return."""
    code, own = 1, os.getpid()
    # A process that the user's code forks must not hold the pipe open, nor answer on it.
    os.register_at_fork(after_in_child=lambda: os.close(pipe))
    loaded = Loaded()
    try:
        os.setsid()
        _limit(job.limits)
        module, _, name = job.function.partition(":")
        result = getattr(importlib.import_module(module), name)(*pickle.loads(job.arguments))
        outcome = Outcome(pickle.dumps(result))
        code = 0
    except BaseException as error:
        outcome = _raised(error)
    if os.getpid() != own:
        os._exit(0)
    try:
        with open(pipe, "wb", closefd=False) as stream:
            stream.write(pickle.dumps(replace(outcome, loaded=loaded.files())))
    finally:
        # Threads that the user's code has started must not keep the process.
        os._exit(code)


def _done(job: Job) -> Outcome:
    """Run a job in this process, which has only what gbfix does to fear."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, job.limits.seconds)
    try:
        module, _, name = job.function.partition(":")
        result = getattr(importlib.import_module(module), name)(*pickle.loads(job.arguments))
        return Outcome(pickle.dumps(result), loaded=frozenset())
    except TimeoutError:
        return replace(_too_long(job), loaded=frozenset())
    except Exception as error:
        return replace(_raised(error), loaded=frozenset())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _raised(error: BaseException) -> Outcome:
    text = "".join(traceback.format_exception(error)).encode(errors="replace").decode()
    if isinstance(error, MemoryError):
        return Outcome(failure="it ran out of memory", exhausted=True, detail=text)
    sentence = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
    return Outcome(failure=sentence.splitlines()[0], detail=text)


def _too_long(job: Job) -> Outcome:
    sentence = f"it ran for more than {job.limits.seconds:g} seconds"
    return Outcome(failure=sentence, exhausted=True)


def _limit(limits: Limits) -> None:
    # If the server is killed outright, nobody else is left to end a hanging child.
    signal.alarm(int(limits.seconds) + 10)
    if limits.memory is not None:
        most = _memory_in_use() + limits.memory
        with contextlib.suppress(ValueError, OSError):  # an outer limit may be lower
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _memory_in_use() -> int:
    """The size of the address space; known on Linux only, elsewhere the limit is that much lower."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _finished(child: _Child) -> Outcome:
    os.close(child.pipe)
    _, status = os.waitpid(child.pid, 0)
    _kill_group(child.pid)
    with contextlib.suppress(pickle.UnpicklingError, EOFError):
        outcome: Outcome = pickle.loads(b"".join(child.said))
        if outcome.failure is not None or (os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0):
            return outcome
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(ValueError):
            return Outcome(failure=f"it crashed with {signal.Signals(number).name}")
        return Outcome(failure=f"it was ended by signal {number}")
    return Outcome(failure=f"it ended its process with exit code {os.WEXITSTATUS(status)}")


def _kill(child: _Child) -> None:
    _kill_group(child.pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child.pid, 0)
    os.close(child.pipe)


def _kill_group(pid: int) -> None:
    """End what a child has started; its group has the child's own number."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def main() -> None:
    """Take the standard streams for the protocol, load what jobs need, and serve."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2) if not os.environ.get("GBFIX_TRACEBACK") else (0, 1):
        os.dup2(null, descriptor)
    # Found by `-m`; a user's `random.py` in the current folder must not be taken for Python's.
    sys.path[:] = [folder for folder in sys.path if folder not in ("", str(Path.cwd()))] + [
        str(Path(__file__).parent.parent.parent)
    ]
    import torch

    # One thread: sums come out the same each time, and a fork finds no pool half alive.
    torch.set_num_threads(1)
    for name in PRELOAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from gbfix.dynamo import warming
    from gbfix.verify.listening import set_levels

    warming.warm_up()
    set_levels()
    modules_before()
    with tempfile.TemporaryDirectory(prefix="gbfix-") as folder:
        keep_in(folder)
        _freeze()
        serve(source, sink)


if __name__ == "__main__":
    main()
