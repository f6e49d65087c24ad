"""Runs jobs in worker processes, from any process, with or without torch.

One server is started at the first job and used until the end; see `gbfix.verify.server`. What a job
does is not known here.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from gbfix.errors import UserError
from gbfix.verify.jobs import Job, Outcome, read_frame, write_frame


class Workers:
    """A server and the means to send it jobs; closes it at the end of a `with`.

    `loaded` are the files that all jobs so far have loaded, or None if one of them could not tell; who
    wants to know it of some jobs sets it to nothing before them.
    """

    def __init__(self, parallel: int | None = None) -> None:
        self.parallel = parallel or max(1, min(4, os.cpu_count() or 1))
        self.loaded: frozenset[str] | None = frozenset()
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run jobs, a few at a time, and give back their outcomes in the same order."""
        outcomes = self._run(jobs)
        for outcome in outcomes:
            if self.loaded is None or outcome.loaded is None:
                self.loaded = None
            else:
                self.loaded |= outcome.loaded
        return outcomes

    def _run(self, jobs: Sequence[Job]) -> list[Outcome]:
        if not jobs:
            return []
        for attempt in (1, 2):
            server = self._started()
            assert server.stdin is not None and server.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                write_frame(server.stdin, pickle.dumps((list(jobs), self.parallel)))
                answer = read_frame(server.stdout)
                if answer is not None:
                    outcomes: list[Outcome] = pickle.loads(answer)
                    return outcomes
            # A job may have ended the server, which is its parent.
            code = self._ended()
            if attempt == 2:
                failure = f"the worker process ended with exit code {code}"
                return [Outcome(failure=failure) for _ in jobs]
        raise AssertionError

    def close(self) -> None:
        """End the server, and with it what it runs."""
        if self._server is not None:
            self._ended()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._server is None:
            if not hasattr(os, "fork"):
                raise UserError("verifying needs a system that can fork processes.")
            environment = {
                **os.environ,
                "PYTHONPATH": _python_path(),
                # Asking the driver for devices would keep the server's children from using them.
                "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            }
            self._server = subprocess.Popen(
                [sys.executable, "-m", "gbfix.verify.server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                # An interrupt is the client's to handle, which then closes the pipe.
                start_new_session=True,
            )
        return self._server

    def _ended(self) -> int:
        server = self._server
        assert server is not None and server.stdin is not None and server.stdout is not None
        self._server = None
        with contextlib.suppress(BrokenPipeError):
            server.stdin.close()
        try:
            code = server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            code = server.wait()
        server.stdout.close()
        return code


def _python_path() -> str:
    """The path on which a worker finds this gbfix, whatever the current folder is."""
    own = str(Path(__file__).resolve().parent.parent.parent)
    given = os.environ.get("PYTHONPATH")
    return f"{given}{os.pathsep}{own}" if given else own
