"""Where the runs of a migration take place: here, in threads that each have workers of their own.

A task is told its workers when it is run, so that it can as well be sent elsewhere
(`gbfix.migrate.ray_pool`). What a task runs, and what follows from it, is not known here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gbfix.verify.worker import Workers

Result = TypeVar("Result")
Value = TypeVar("Value")
ValueOut = TypeVar("ValueOut", covariant=True)

Task = Callable[[Workers], Result]
"""What is run. It has to be picklable, and so does what it gives."""


class Shared(Protocol[ValueOut]):
    """A value that many tasks need; sent to where they run once, not with each of them."""

    def get(self) -> ValueOut:
        """The value, there."""


class Pool(Protocol):
    """Runs tasks, some of them at a time."""

    def submit(self, task: Task[Result]) -> Future[Result]:
        """Run a task as soon as there is room."""

    def share(self, value: Value) -> Shared[Value]:
        """A value for many tasks."""

    def close(self) -> None:
        """End what runs; what has not begun does not begin."""


MakePool = Callable[[], Pool]


@dataclass(frozen=True)
class Held(Generic[Value]):
    """A value in the memory of the process that needs it."""

    value: Value

    def get(self) -> Value:
        """The value."""
        return self.value


class LocalPool:
    """Runs tasks on this machine, `jobs` processes at a time."""

    def __init__(self, jobs: int) -> None:
        self._executor = ThreadPoolExecutor(max(1, jobs // 2))
        self._parallel = min(2, jobs)
        self._local = threading.local()
        self._all: list[Workers] = []

    def submit(self, task: Task[Result]) -> Future[Result]:
        """Run a task in the next free thread."""
        return self._executor.submit(lambda: task(self._workers))

    def share(self, value: Value) -> Held[Value]:
        """The value as it is: all threads see it."""
        return Held(value)

    def close(self) -> None:
        """End the workers of all threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        for workers in self._all:
            workers.close()

    @property
    def _workers(self) -> Workers:
        """The workers of the thread that asks."""
        if not hasattr(self._local, "workers"):
            self._local.workers = Workers(self._parallel)
            self._all.append(self._local.workers)
        found: Workers = self._local.workers
        return found
