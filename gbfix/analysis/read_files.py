"""Modules read from disk, held for the projects that come after each other in one process.

An editor asks again with every key, and what a file imports is the same as before. Knows files and
their states on disk, nothing of what is looked up in them.
"""

from __future__ import annotations

from pathlib import Path

from gbfix.analysis.module_files import unparsed_module
from gbfix.analysis.modules import Module
from gbfix.source.text import SourceFile

_HELD = 4_000_000  # characters of source whose trees are held


class ReadFiles:
    """Modules that were read from disk, for projects that come after each other; by path.

    They are read again when their files change.
    """

    def __init__(self) -> None:
        self._modules: dict[Path, tuple[tuple[int, int], Module]] = {}

    def module(self, path: Path) -> Module:
        """The module of a file.

        Raises:
            OSError, SourceError, SyntaxError, ValueError, RecursionError: if it cannot be read.
        """
        now = path.stat()
        state = (now.st_mtime_ns, now.st_size)
        known = self._modules.pop(path, None)
        module = known[1] if known is not None and known[0] == state else None
        if module is None:
            module = unparsed_module(SourceFile.decode(path, path.read_bytes()))
            module.outline()
        self._modules[path] = state, module
        return module

    def let_go(self) -> None:
        """Let go of modules that were not asked for lately, if there are too many."""
        size = sum(len(module.source.text) for _, module in self._modules.values())
        for path, (_, module) in list(self._modules.items()):
            if size <= _HELD:
                return
            size -= len(module.source.text)
            del self._modules[path]
