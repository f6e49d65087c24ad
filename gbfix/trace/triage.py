"""Whose failure it is when compiled code raises: the user's own, a graph break, or the compiler's.

PyTorch's guide asks first whether the code fails in eager too. The call is made again in eager in a
forked child, whose memory, output and random stream are its own, and which is given little time. It
does not know how failures are recorded.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any

from gbfix.trace.model import Verdict

_SECONDS = 20.0
_FORBIDDEN = "when torch.compile stance is 'fail_on_recompile'"  # as of torch 2.6 to 2.13
_UNTOLD = "fork-based multiprocessing"  # autograd's threads did not survive the fork


def judge(
    function: Any,
    args: Any,
    kwargs: Any,
    error: BaseException,
    *,
    rerun: bool,
    in_child: Callable[[], None],
) -> tuple[Verdict, str]:
    """Whose failure an exception of a compiled call is, and how that is known.

    `rerun` asks for the call to be made again; `in_child` is called in the child before it.
    """
    from gbfix.dynamo.capture import is_compile_error
    from gbfix.dynamo.ended import is_unsupported

    again = _in_eager(function, args, kwargs, in_child) if rerun else None
    if again is not None and again != "":
        return Verdict.USER_ERROR, f"in eager: {again}"
    worked = again == ""
    if is_unsupported(error):
        return Verdict.GRAPH_BREAK, "eager works" if worked else "it was not run again in eager"
    if _FORBIDDEN in str(error):
        return Verdict.RECOMPILE, "eager works" if worked else "it was not run again in eager"
    if worked:
        return Verdict.COMPILER_FAILURE, "eager works"
    if type(error).__name__ in ("BackendCompilerFailed", "InductorError"):
        return Verdict.COMPILER_FAILURE, "the backend raised; it was not run again in eager"
    if not is_compile_error(error) and not rerun:
        return Verdict.UNKNOWN, "it was not run again in eager"
    return Verdict.UNKNOWN, "it could not be run again in eager"


def _in_eager(function: Any, args: Any, kwargs: Any, in_child: Callable[[], None]) -> str | None:
    """The exception of the call in eager as text, "" if there is none, None if that is not known."""
    import torch

    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if not hasattr(os, "fork") or on_gpu:
        return None
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that do not survive
        pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(function, args, kwargs, in_child, writer)
    os.close(writer)
    try:
        return _answer(reader)
    finally:
        os.close(reader)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(pid, 0)


def _answer(reader: int) -> str | None:
    said = b""
    end = time.monotonic() + _SECONDS
    while (left := end - time.monotonic()) > 0:
        if not select.select([reader], [], [], left)[0]:
            return None
        piece = os.read(reader, 4096)
        if not piece:
            break
        said += piece
    if not said.startswith(b"=") or not said.endswith(b"\n"):
        return None
    text = said[1:-1].decode(errors="replace")
    return None if _UNTOLD in text else text


def _child(
    function: Any, args: Any, kwargs: Any, in_child: Callable[[], None], writer: int
) -> None:
    """Call and tell; never returns."""
    try:
        import torch

        from gbfix.dynamo.hooks import set_stance

        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        torch.set_num_threads(1)  # the threads of the pool did not survive the fork
        in_child()
        set_stance("force_eager")  # for what the function calls compiled
        said = ""
        try:
            function(*args, **kwargs)
        except BaseException as error:
            first = next(iter(str(error).strip().splitlines()), "")
            said = f"{type(error).__name__}: {first}"[:500]
        os.write(writer, f"={said}\n".encode())
    finally:
        os._exit(0)
