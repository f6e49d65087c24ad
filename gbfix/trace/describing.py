"""Functions, frames, names and the process of a running program as values of a trace.

Nothing of the program is called and no value of it is kept.
"""

from __future__ import annotations

import inspect
import linecache
import os
import platform
import sys
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbfix.trace.model import Code, Entry, Frame, Known, Process

if TYPE_CHECKING:
    import torch

_CALLS_OF_MODULES = frozenset({"__call__", "_wrapped_call_impl", "_call_impl", "forward"})


def entry_of(function: Any) -> Entry:
    """The entry that a compiled function is, or the module whose call it is."""
    kind = owner_of(function)
    if isinstance(kind, type):
        file, line = _place_of(kind)
        name, module = kind.__qualname__, kind.__module__
    else:
        file, line = _place_of_code(kind)
        name = getattr(function, "__qualname__", type(function).__name__)
        module = getattr(function, "__module__", None) or ""
    return Entry(f"{file}:{line}:{name}", name, module, file, line)


def _place_of(kind: type) -> tuple[str, int]:
    """Where a class calls its module; where the class itself is, if it inherits that."""
    forward = getattr(inspect.unwrap(kind.forward), "__code__", None)  # type: ignore[attr-defined]
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if "forward" in vars(kind) or file is None:
        return _place_of_code(forward)
    own = [
        code.co_firstlineno for f in vars(kind).values() if (code := getattr(f, "__code__", None))
    ]
    return file, vars(kind).get("__firstlineno__", min(own, default=1))


def _place_of_code(code: types.CodeType | None) -> tuple[str, int]:
    return (code.co_filename, code.co_firstlineno) if code else ("", 0)


def owner_of(function: Any) -> type | types.CodeType | None:
    """The class of the module whose call a function is, or else the function's own code."""
    module = module_of(function)
    if module is not None:
        return type(module)
    inner = _unwrapped(function)
    code: types.CodeType | None = getattr(getattr(inner, "__func__", inner), "__code__", None)
    return code


def module_of(function: Any) -> torch.nn.Module | None:
    """The module whose call a function is."""
    import torch

    inner = _unwrapped(function)
    owner = inner if isinstance(inner, torch.nn.Module) else getattr(inner, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        if owner is inner or inner.__name__ in _CALLS_OF_MODULES:
            return owner
    return None


def _unwrapped(function: Any) -> Any:
    return function if not hasattr(function, "__wrapped__") else inspect.unwrap(function)


def this_process() -> Process:
    """The process that runs."""
    import torch

    argv = tuple(getattr(sys, "argv", ()))
    version = str(torch.__version__)
    return Process(
        os.getpid(), argv, str(Path.cwd()), platform.python_version(), version, time.time()
    )


def code_of(code: types.CodeType) -> Code:
    """A code object as a value."""
    return Code(code.co_filename, code.co_firstlineno, code.co_name)


def known_of(names: dict[str, Any]) -> tuple[Known, ...]:
    """What is told of the values that names held, without the values."""
    from gbfix.dynamo.ended import kind_of

    found: list[Known] = []
    for name, value in names.items():
        if name.startswith("__"):  # Dynamo's own
            continue
        kind, dtype, rank = kind_of(value)
        text = str(dtype).removeprefix("torch.") if dtype is not None else None
        found.append(Known(name, kind, text, rank))
    return tuple(found)


def frame_of(frame: Any) -> Frame:
    """A `traceback.FrameSummary` as a frame; its columns are bytes of the line, from 0."""
    line, end_line = frame.lineno or 0, getattr(frame, "end_lineno", None)
    return Frame(
        frame.filename,
        line,
        frame.name,
        (frame.line or "").strip().splitlines()[0] if frame.line else "",
        _column(frame.filename, line, getattr(frame, "colno", None)),
        end_line,
        _column(frame.filename, end_line or line, getattr(frame, "end_colno", None)),
    )


def _column(file: str, line: int, offset: int | None) -> int | None:
    if offset is None:
        return None
    text = linecache.getline(file, line)
    return len(text.encode()[:offset].decode(errors="replace")) + 1
