"""Whose code a file is: the user's, a library's, or PyTorch's and Python's own.

A break is told at a line that the user can change. Frames of PyTorch and of the standard library only
lead from one to the other. It knows paths only.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from pathlib import Path, PurePath

_PACKAGES = ("site-packages", "dist-packages")


class Owned:
    """Tells whether files are the user's; folders and files that were named are."""

    def __init__(self, named: Iterable[Path] = ()) -> None:
        self.named = [path.resolve() for path in named]
        paths = sysconfig.get_paths()
        self.library = [Path(paths[name]).resolve() for name in ("stdlib", "platstdlib")]
        self._known: dict[str, bool] = {}

    def __call__(self, file: str) -> bool:
        """Whether a file is the user's own."""
        if file not in self._known:
            self._known[file] = self._owned(file)
        return self._known[file]

    def _owned(self, file: str) -> bool:
        if file.startswith("<"):
            return False
        path = Path(file)
        if any(_inside(path, place) for place in self.named):
            return True
        if leads(file):
            return False
        return not any(part in _PACKAGES for part in path.parts)

    def named_explicitly(self, file: str) -> bool:
        """Whether a file is one that was named, or in a folder that was."""
        return any(_inside(Path(file), place) for place in self.named)


def leads(file: str) -> bool:
    """Whether a file is PyTorch's or Python's own, through which a stack only leads."""
    if file.startswith("<"):
        return True
    parts = PurePath(file).parts
    packages = max((i for i, part in enumerate(parts) if part in _PACKAGES), default=-1)
    if packages >= 0:
        return len(parts) > packages + 1 and parts[packages + 1] in ("torch", "functorch")
    # `lib/python3.11/` without site-packages behind it is the standard library, on any machine.
    standard = sysconfig.get_paths()["stdlib"]
    return file.startswith(standard) or any(
        part.startswith("python3.") and i and parts[i - 1] in ("lib", "lib64")
        for i, part in enumerate(parts)
    )


def _inside(path: Path, place: Path) -> bool:
    return path == place or place in path.parents
