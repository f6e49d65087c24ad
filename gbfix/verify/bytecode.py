"""Keeps bytecode of the modules that workers import in a folder of gbfix's own.

Every worker begins without the user's modules, and would compile them anew where Python has kept
nothing beside their files. There gbfix keeps nothing either.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import types
from typing import Any

_Loader = importlib.machinery.SourceFileLoader


def keep_in(folder: str) -> None:
    """Have Python's own loader of source files use bytecode from a folder first, and write it there."""
    read, write, compiled = _Loader.get_data, _Loader.set_data, _Loader.get_code

    def place(path: str) -> str:
        return folder + os.path.realpath(path)

    def get_data(self: Any, path: str) -> bytes:
        kept = place(path) if path.endswith(".pyc") else path
        return read(self, kept if os.path.lexists(kept) else path)

    def set_data(self: Any, path: str, data: Any, *, _mode: int = 0o666) -> None:
        write(self, place(path), data, _mode=_mode)

    def get_code(self: Any, fullname: str) -> types.CodeType | None:
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
        try:
            return compiled(self, fullname)
        finally:
            sys.dont_write_bytecode = before

    _Loader.get_data = get_data  # type: ignore[method-assign]
    _Loader.set_data = set_data  # type: ignore[method-assign]
    _Loader.get_code = get_code  # type: ignore[method-assign]
