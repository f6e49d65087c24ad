"""Reads traces wherever they come from: `gbfix trace`, a `TORCH_TRACE` folder, a `TORCH_LOGS` text.

It tells the three apart and merges them; what is in each is known to the modules that read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gbfix.errors import UserError
from gbfix.trace import store
from gbfix.trace.model import Trace, merge


def read(*paths: str | Path) -> Trace:
    """The trace in a file or folder; of several, what they say together.

    Raises:
        UserError: if one cannot be read, or is not a trace.
    """
    return merge(_read(Path(path)) for path in paths)


def read_all(paths: Sequence[Path]) -> Trace:
    """The same for a list of paths.

    Raises:
        UserError: as above.
    """
    return read(*paths)


def _read(path: Path) -> Trace:
    from gbfix.trace import structured, textlog

    if path.is_dir():
        if store.exists(path / "trace.json"):
            return store.load(path / "trace.json")
        logs = structured.files_of(path)
        if not logs:
            raise UserError(
                f"{path}: neither `trace.json` nor a log of TORCH_TRACE is in this folder."
            )
        return structured.load(logs)
    if not path.exists():
        if store.exists(path):
            return store.load(path)
        raise UserError(f"{path}: there is no such file or folder.")
    start = _start(path)
    if start.lstrip().startswith("{"):
        return store.load(path)
    if structured.is_structured(start):
        return structured.load([path])
    trace = textlog.load(path)
    if not (trace.breaks or trace.recompiles or trace.skips) and not textlog.is_log(start):
        raise UserError(
            f"{path}: this is neither a trace of gbfix, nor a log of TORCH_TRACE or TORCH_LOGS."
        )
    return trace


def _start(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
