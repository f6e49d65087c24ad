"""Reads Python files into `SourceFile` values, with a sentence for each that cannot be read.

The module knows nothing of what the text means: whether it parses is for the engine to say.
"""

from __future__ import annotations

from collections.abc import Iterable
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
