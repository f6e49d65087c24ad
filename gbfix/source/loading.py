"""Reads Python files into `SourceFile` values, with a sentence for each that cannot be read.

The module knows nothing of what the text means, beyond whether it is Python at all.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from gbfix.findings import FileError
from gbfix.source.text import SourceError, SourceFile


@dataclass(frozen=True)
class Loaded:
    """The files that could be read and decoded, and the errors for those that could not."""

    sources: tuple[SourceFile, ...]
    errors: tuple[FileError, ...]


def load(paths: Iterable[Path]) -> Loaded:
    """Read and decode files, going on after each one that fails."""
    sources: list[SourceFile] = []
    errors: list[FileError] = []
    for path in paths:
        try:
            loaded = decode(path, path.read_bytes())
        except OSError as error:
            errors.append(FileError(path, f"{path}: cannot be read: {error.strerror}."))
            continue
        sources += loaded.sources
        errors += loaded.errors
    return Loaded(tuple(sources), tuple(errors))


def decode(path: Path, raw: bytes) -> Loaded:
    """Decode one file that was read, under the name of `path`."""
    try:
        return Loaded((SourceFile.decode(path, raw),), ())
    except SourceError as error:
        return Loaded((), (FileError(path, f"{error}."),))


def without_syntax_errors(loaded: Loaded, paths: Collection[Path]) -> Loaded:
    """Turn those of the named sources that do not parse into errors.

    The engine parses only what mentions torch, to be fast on large folders; a file that was named
    has to be Python even so, or a mistyped path would pass for a clean one.
    """
    sources: list[SourceFile] = []
    errors = list(loaded.errors)
    for source in loaded.sources:
        error = syntax_error(source) if source.path in paths else None
        if error:
            errors.append(error)
        else:
            sources.append(source)
    return Loaded(tuple(sources), tuple(errors))


def syntax_error(source: SourceFile) -> FileError | None:
    """The error of a source that Python cannot parse, as a sentence with its place."""
    try:
        ast.parse(source.text)
    except SyntaxError as error:
        where = f" at line {error.lineno}" if error.lineno else ""
        return FileError(source.path, f"{source.path}: not valid Python{where}: {error.msg}")
    except ValueError as error:
        return FileError(source.path, f"{source.path}: not valid Python: {error}")
    except (RecursionError, MemoryError):
        return FileError(source.path, f"{source.path}: nested too deeply to be parsed")
    return None
