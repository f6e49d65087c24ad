"""Notes from which files the code of a process comes, and which others it reads.

Runs in a worker. What was there before the user's code is left out. Whether a file belongs to a project
is not known here.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from pathlib import Path
from typing import Any

# What these import or compile by themselves is no part of what is run with them.
_OURS = frozenset({"torch", "gbfix"})
# Code that is only read, as by a package that lists its modules, is none that is run.
_CODE = (".py", ".pyc")
_STARTING = frozenset({"os.fork", "os.forkpty", "os.posix_spawn"})


@functools.cache
def modules_before() -> frozenset[str]:
    """The names of all modules; asked for first while there is none of the user's."""
    return frozenset(sys.modules)


class Loaded:
    """What is loaded in this process from now on, also by code that leaves no module behind."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._alone = True
        sys.addaudithook(self._hear)

    def files(self) -> frozenset[str] | None:
        """The real paths; None if other processes were started, which load what they like."""
        if not self._alone:
            return None
        names = set(sys.modules) - modules_before()
        found = {file for name in names if (file := _file(name)) is not None} | self._files
        # Where torch puts the code that it makes; it says so there when it makes some.
        made = os.path.realpath(os.environ.get("TORCHINDUCTOR_CACHE_DIR", os.devnull)) + os.sep
        return frozenset(p for p in map(os.path.realpath, found) if not p.startswith(made))

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        # Anything that is raised here would be raised in the user's code.
        if event == "exec":
            self._note(given[0].co_filename)
        elif event == "open":
            path, mode, flags = given
            if isinstance(path, str) and not path.endswith(_CODE) and _reads(mode, flags):
                self._note(path)
        elif event in _STARTING:
            self._alone = False
        elif event == "subprocess.Popen" and "python" in _program(given[1]):
            self._alone = False  # others, such as the compilers that torch starts, run no Python

    def _note(self, path: str) -> None:
        if not path.startswith("<"):
            try:
                self._files.add(str(Path(path).absolute()))
            except OSError:  # the current folder is gone, and with it what a relative path names
                self._alone = False


def _program(command: Any) -> str:
    """What is started: the first word, of which a shell may have several."""
    return str(command if isinstance(command, str | bytes | os.PathLike) else [*command, ""][0])


def _reads(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return not set(mode) & set("wax+")
    return isinstance(flags, int) and flags & os.O_ACCMODE == os.O_RDONLY


def _file(name: str) -> str | None:
    module = sys.modules.get(name)
    if name.partition(".")[0] in _OURS or not isinstance(module, types.ModuleType):
        return None
    file = vars(module).get("__file__")
    return file if isinstance(file, str) else None
