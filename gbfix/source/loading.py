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
            sources.append(SourceFile.decode(path, path.read_bytes()))
        except OSError as error:
            errors.append(FileError(path, f"{path}: cannot be read: {error.strerror}."))
        except SourceError as error:
            errors.append(FileError(path, f"{error}."))
    return Loaded(tuple(sources), tuple(errors))
