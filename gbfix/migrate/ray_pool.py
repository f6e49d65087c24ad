"""Runs the tasks of a migration on a Ray cluster, or on a Ray that is started here for them.

One task takes one CPU. The processes that Ray runs tasks in are used again, and so are their workers.
A task whose process or machine dies is run again by Ray, elsewhere if need be; what the cluster cannot
run at all is run here. Every machine needs the code, gbfix and torch at the same paths.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from gbfix.errors import UserError
from gbfix.migrate.pools import LocalPool, Result, Task, Value
from gbfix.verify.worker import Workers

_RETRIES = 3
_here: Workers | None = None


class RayPool:
    """Runs tasks on the cluster at `address`, or on `jobs` CPUs of this machine if there is none.

    Raises:
        UserError: if Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(self, address: str | None, jobs: int) -> None:
        try:
            import ray
        except ImportError:
            raise UserError(
                "`--executor ray` needs Ray; install it with `pip install 'gbfix[ray]'`."
            ) from None
        self._ray = ray
        self._mine = not ray.is_initialized()
        self._local = LocalPool(jobs)
        if self._mine:
            _connect(ray, address, jobs)
        self._remote: Any = ray.remote(num_cpus=1, max_retries=_RETRIES)(_run)

    def submit(self, task: Task[Result]) -> Future[Result]:
        """Run a task where Ray has room."""
        result: Future[Result] = Future()
        done = self._remote.remote(Path.cwd(), task).future()
        done.add_done_callback(lambda found: self._settle(task, found, result))
        return result

    def share(self, value: Value) -> Stored[Value]:
        """The value in Ray's object store."""
        return Stored(self._ray.put(value))

    def close(self) -> None:
        """Leave the cluster; one that was started for this pool ends."""
        self._local.close()
        if self._mine:
            self._ray.shutdown()

    def _settle(self, task: Task[Result], found: Future[Result], result: Future[Result]) -> None:
        error = found.exception()
        if error is None:
            result.set_result(found.result())
        elif isinstance(error, self._ray.exceptions.RayTaskError):
            # The task's own failure, which it would meet here too.
            result.set_exception(getattr(error, "cause", None) or error)
        else:
            threading.Thread(target=_pass_on, args=(self._local.submit(task), result)).start()


@dataclass(frozen=True)
class Stored(Generic[Value]):
    """A value in Ray's object store."""

    reference: Any

    def get(self) -> Value:
        """The value, read from the store of the machine that asks."""
        import ray

        value: Value = ray.get(self.reference)
        return value


def _pass_on(found: Future[Result], result: Future[Result]) -> None:
    error = found.exception()
    if error is None:
        result.set_result(found.result())
    else:
        result.set_exception(error)


def _connect(ray: Any, address: str | None, jobs: int) -> None:
    # Ray would otherwise report its use to its makers, and say so on standard error.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # It would replace `print`, for progress bars that nothing here shows.
    os.environ["RAY_TQDM_PATCH_PRINT"] = "0"
    size = {} if address or os.environ.get("RAY_ADDRESS") else {"num_cpus": jobs}
    try:
        ray.init(
            address=address,
            include_dashboard=False if size else None,
            logging_level="error",
            log_to_driver=False,
            **size,
        )
    except Exception as error:
        where = address or os.environ.get("RAY_ADDRESS") or "this machine"
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"Ray cannot be used at {where}: {line}") from None


def _run(folder: Path, task: Task[Result]) -> Result:
    """Run a task in a process of Ray, with the workers of that process."""
    global _here
    # Paths may be relative to where the migration was started; a process of Ray starts elsewhere.
    os.chdir(folder)
    if _here is None:
        _here = Workers(1)
    return task(_here)
