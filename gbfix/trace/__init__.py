"""Where a program's graph breaks, recorded while it runs or read from PyTorch's own logs.

`gbfix.trace.record()` records what runs inside a `with` block; `gbfix.trace.read(path)` reads what was
recorded. Importing the package imports neither torch nor anything that records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gbfix.trace.api import Recording as Recording
    from gbfix.trace.api import record as record
    from gbfix.trace.model import Trace as Trace
    from gbfix.trace.model import merge as merge
    from gbfix.trace.reading import read as read

_PLACES = {
    "Recording": "gbfix.trace.api",
    "record": "gbfix.trace.api",
    "Trace": "gbfix.trace.model",
    "merge": "gbfix.trace.model",
    "read": "gbfix.trace.reading",
}


def __getattr__(name: str) -> Any:
    # A program that is recorded imports this package when it starts, and must not wait for it.
    if name in _PLACES:
        import importlib

        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
