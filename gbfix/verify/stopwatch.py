"""Measures the latency of compiled calls, in a worker that is thrown away afterwards.

Caches of compiled code on the disk are not used unless that is asked for, so that a first call compiles
all that it needs.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from gbfix.dynamo import control
from gbfix.verify.calls import CallOptions, convert, converted
from gbfix.verify.execute import ready, seed
from gbfix.verify.latency import Latency
from gbfix.verify.listening import Listener
from gbfix.verify.loading import LoadError
from gbfix.verify.messages import RunSpec
from gbfix.verify.recipes import Arguments

_WARM_CALLS = 3
_MOST_CALLS = 200
_SECONDS = 1.0


def measure(spec: RunSpec, cached: bool = False) -> Latency | None:
    """Time the first call with the first arguments, and then calls with the same until it is enough.

    Gradients are not asked for. None if the call raises. `cached` lets caches on the disk be used,
    which changes the first call only.
    """
    seed()
    backend = control.lookup(spec.backend or "eager")
    with (
        control.comparable(),
        contextlib.nullcontext() if cached else control.without_caches(),
        control.compile_with(backend, fullgraph=False, dynamic=spec.dynamic),
    ):
        try:
            module, target, made = ready(spec)
        except LoadError:
            return None
        convert(target, module, spec.dtype, spec.device)
        options = CallOptions(False, spec.dtype, spec.device)
        function = target if control.is_compiled(target) else torch.compile(target)
        arguments = [converted(one, options) for one in made[:1]]
        with Listener().listening(), contextlib.suppress(Exception):
            first = _seconds(function, arguments[0], spec.device)
            for _ in range(_WARM_CALLS):
                _seconds(function, arguments[0], spec.device)
            later: list[float] = []
            end = time.perf_counter() + _SECONDS
            while len(later) < _MOST_CALLS and (len(later) < 5 or time.perf_counter() < end):
                later.append(_seconds(function, arguments[0], spec.device))
            return Latency(first, statistics.median(later))
    return None


def _seconds(function: Callable[..., Any], arguments: Arguments, device: str) -> float:
    args, kwargs = arguments
    _synchronize(device)
    start = time.perf_counter()
    function(*args, **kwargs)
    _synchronize(device)
    return time.perf_counter() - start


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
