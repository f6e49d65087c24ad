"""Which operators run inside captured graphs, and which are left out and run in between.

Operators inside are counted by the graphs: each time a graph runs, its nodes count (all but inputs and
outputs). Operators outside are counted by the profiler: an operator counts if no other operator and no
graph called it, so that what `aten.linear` calls does not count again. What runs while Dynamo compiles
is nobody's. One node mostly is one such operator, so that the two may be set side by side; both are
counted in one round of calls, after every graph has been compiled.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd import profiler

from gbfix.dynamo.records import Operators

_GRAPH = "gbfix: graph"
_COMPILING = "gbfix: compiling"


class OperatorCounter:
    """Counts between `counting` and its end; graphs have to be wrapped when they are compiled."""

    def __init__(self) -> None:
        self._captured: int | None = None

    def wrapped(self, compiled: Callable[..., Any], operators: int) -> Callable[..., Any]:
        """A compiled graph that is counted when it runs."""

        def run(*arguments: Any) -> Any:
            if self._captured is None:
                return compiled(*arguments)
            self._captured += operators
            with profiler.record_function(_GRAPH):
                return compiled(*arguments)

        return run

    def count(self, calls: Callable[[], object]) -> Operators:
        """Make calls and say what ran; `calls` does not raise."""
        self._captured = 0
        try:
            # A cycle of the profiler would need a schedule; this is the plain recording of one block.
            with _marking_compilation(), profiler.profile(use_cpu=True) as recorded:
                calls()
            outside = Counter(
                str(event.name) for event in recorded.function_events or () if _is_outside(event)
            )
            return Operators(self._captured, tuple(sorted(outside.items())))
        finally:
            self._captured = None


def _is_outside(event: Any) -> bool:
    """Whether an event is an operator that no operator, graph or compilation has called.

    Operators have names such as `aten::add`: seen on torch 2.11 and 2.13.
    """
    if not _is_operator(event.name):
        return False
    parent = event.cpu_parent
    while parent is not None:
        if _is_operator(parent.name) or parent.name in (_GRAPH, _COMPILING):
            return False
        parent = parent.cpu_parent
    return True


def _is_operator(name: str) -> bool:
    return "::" in name and not name.startswith("autograd::")


@contextlib.contextmanager
def _marking_compilation() -> Iterator[None]:
    """Mark what runs while Dynamo compiles.

    `torch._dynamo.callback.callback_handler`, whose callbacks are not nested: seen on torch 2.13.
    """
    from torch._dynamo.callback import callback_handler

    running: list[Any] = []

    def start(_: object) -> None:
        running.append(torch.autograd.profiler.record_function(_COMPILING))
        running[-1].__enter__()

    def end(_: object) -> None:
        if running:
            running.pop().__exit__(None, None, None)

    callback_handler.register_start_callback(start)
    callback_handler.register_end_callback(end)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            callback_handler.remove_start_callback(start)
            callback_handler.remove_end_callback(end)
