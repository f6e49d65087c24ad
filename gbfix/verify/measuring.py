"""Measures one side in a worker: its latency, and what it asks of the device in each call.

The code runs as it would in use, with CUDA graphs where there are any; whether its results are right is
asked elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from gbfix.dynamo import control
from gbfix.verify.calls import CallOptions, convert, converted
from gbfix.verify.execute import Maker, seed
from gbfix.verify.launches import Event, Launches, count
from gbfix.verify.loading import LoadError, build, load
from gbfix.verify.messages import Measured, MeasureSpec
from gbfix.verify.recipes import Arguments

_LABEL = "gbfix call"
# CUDA graphs are recorded at the second call with one shape, and replayed from the third on.
_WARM = 3


def measure(spec: MeasureSpec) -> Measured:
    """Compile a side, warm it up, time it and profile it."""
    seed()
    try:
        with control.compile_in_use(spec.backend, spec.mode):
            module = load(spec.side)
            seed()
            target = build(spec.side.target, module)
            maker = Maker.of(spec.inputs, module)
            convert(target, module, spec.dtype, spec.device)
            function = target if control.is_compiled(target) else torch.compile(target)
            with torch.no_grad():
                return _measured(spec, function, lambda: _arguments(spec, maker))
    except LoadError as error:
        return Measured(failure=str(error))


def _arguments(spec: MeasureSpec, maker: Maker) -> list[Arguments]:
    options = CallOptions(dtype=spec.dtype, device=spec.device)
    return [converted(arguments, options) for arguments in maker.make()]


def _measured(
    spec: MeasureSpec, function: Callable[..., Any], make: Callable[[], list[Arguments]]
) -> Measured:
    try:
        first = _timed(function, make()[0])
        for _ in range(_WARM):
            for arguments in make():
                _timed(function, arguments)
        with _alone(spec.lock):
            seconds = [_timed(function, make()[0]) for _ in range(spec.repeats)]
            launches = _profiled(function, make())
    except Exception as error:
        return Measured(failure=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    return Measured(first, statistics.median(seconds), launches)


def _timed(function: Callable[..., Any], arguments: Arguments) -> float:
    _settle()
    start = time.perf_counter()
    function(*arguments[0], **arguments[1])
    _settle()
    return time.perf_counter() - start


def _profiled(function: Callable[..., Any], calls: list[Arguments]) -> Launches:
    """Profile each call; the profiler's own waiting is outside of what is counted."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        for arguments in calls:
            _settle()
            with record_function(_LABEL):
                function(*arguments[0], **arguments[1])
            _settle()
    # A range shows once more on the device's own line, where nothing of the host is.
    events = [
        Event(event.name, event.time_range.start, event.time_range.end)
        for event in profiler.events() or ()
        if str(event.device_type).endswith("CPU")
    ]
    return count(events, _LABEL)


def _settle() -> None:
    """Wait for the device, and let CUDA graphs reuse the memory of the last call's results."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _alone(lock: str | None) -> Iterator[None]:
    """Have the machine to oneself, as far as other measurements with the same lock go."""
    if lock is None:
        yield
        return
    with Path(lock).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
