"""Modules made of files: the folder that each is imported from, and its dotted name.

Knows paths and packages, nothing of what stands in a file.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from gbfix.analysis.modules import Module
from gbfix.source.text import SourceFile


def package_root(path: Path) -> Path:
    """The folder from which the module of this file is imported."""
    return _package_root(path.absolute().parent)


@lru_cache(maxsize=4096)
def _package_root(folder: Path) -> Path:
    while (folder / "__init__.py").exists() and folder.parent != folder:
        folder = folder.parent
    return folder


def _module_name(path: Path, root: Path) -> str:
    """Dotted module name of a file below a root."""
    parts = list(path.absolute().relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) or path.stem


def parse_module(source: SourceFile) -> Module:
    """Parse a file.

    Raises:
        SyntaxError, ValueError: if the text is not Python.
        RecursionError, MemoryError: if it is nested too deeply.
    """
    module = unparsed_module(source)
    module.parse()
    return module


def unparsed_module(source: SourceFile) -> Module:
    """A module that is parsed when somebody asks for its tree."""
    root = package_root(source.path)
    is_package = source.path.name == "__init__.py"
    return Module(_module_name(source.path, root), source, None, root, is_package)
