"""What is in the files that a run has loaded, as digests to compare with those of another run.

A project's files are those that were read for the plan, and whatever else is loaded that is not
installed with Python. Nothing is known here of runs, nor of where digests are kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import sysconfig
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gbfix.findings import FileResult

State = dict[str, str | None]
"""Real paths with digests of what is in them; None where there is no file."""


# What is installed has a version; what the system has, code cannot bring with it.
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]|^/(proc|sys|dev|etc)/")
_LARGE = 1 << 26


class Contents:
    """The files of a project as they were when the plan was made, and others as they are on disk."""

    def __init__(self, root: Path, files: Sequence[FileResult]) -> None:
        self._begun = time.time_ns()
        self._root = os.path.realpath(root) + os.sep
        libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
        libraries.add(str(Path(__file__).parent.parent))
        self._libraries = tuple(os.path.realpath(folder) + os.sep for folder in libraries)
        self._planned = {
            os.path.realpath(file.path): digest(file.before.encode(file.before.text))
            for file in files
        }
        self._on_disk: dict[str, tuple[os.stat_result, str]] = {}

    def of(
        self, loaded: Iterable[str] | None, after: Mapping[str, str], *, everything: bool = False
    ) -> State | None:
        """The state of the project's files that were loaded, and of all if that is unknown or wanted.

        `after` are the texts that stood in for some files, by their real paths. None if a file may have
        changed meanwhile, so that nobody knows what was loaded.
        """
        wanted = set(filter(self._is_own, loaded or ()))
        if loaded is None or everything:
            wanted |= self._planned.keys()
        state = {path: self.now(path, after) for path in sorted(wanted)}
        return None if any(map(self._is_changed, state)) else state

    def now(self, path: str, after: Mapping[str, str]) -> str | None:
        """The digest of a file, and of the text that stands in for it."""
        before = self._planned[path] if path in self._planned else self._digest(path)
        text = after.get(path)
        if text is None:
            return before
        return f"{before} {digest(text.encode('utf-8', 'surrogatepass'))}"

    def _is_own(self, path: str) -> bool:
        if path in self._planned or path.startswith(self._root):
            return True
        if path.startswith(self._libraries) or _INSTALLED.search(path):
            return False
        return os.path.lexists(path)  # temporary files of the compiler are gone

    def _is_changed(self, path: str) -> bool:
        found = self._digest(path)
        if path in self._planned:
            return found != self._planned[path]
        return found is not None and self._on_disk[path][0].st_mtime_ns > self._begun

    def _digest(self, path: str) -> str | None:
        try:
            status = Path(path).stat()
            known = self._on_disk.get(path)
            if known is None or _stamp(known[0]) != _stamp(status):
                known = status, _digest_of(path, status)
                self._on_disk[path] = known
            return known[1]
        except OSError:
            return None


def digest(content: bytes) -> str:
    """A digest of bytes."""
    return hashlib.sha256(content).hexdigest()


def _digest_of(path: str, status: os.stat_result) -> str:
    if status.st_size > _LARGE:  # weights, say
        return f"{status.st_size} bytes of {status.st_mtime_ns}"
    return digest(Path(path).read_bytes())


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_size, status.st_ino
