"""Finds the recorded calls that reach a function or class, and the callables that they were made to."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gbfix.trace.journal import tensors_of
from gbfix.trace.localize import localized
from gbfix.trace.model import Entry, Trace
from gbfix.trace.reading import read_all


@dataclass(frozen=True)
class Recorded:
    """A callable that was compiled, with the files of recorded calls, at least one.

    Attributes:
        module: the name of its module in the program that was recorded.
        state: the file of what it held at its first call; `no_state` says why there is none.
        folders: where that program found its modules.
    """

    file: Path
    name: str
    module: str
    calls: tuple[Path, ...]
    state: Path | None
    no_state: str
    folders: tuple[Path, ...]


def recorded(traces: Sequence[Path], file: Path, name: str) -> tuple[Recorded, ...]:
    """The callables through which what is called `name` at the top of a file was reached.

    It is one itself if it was compiled; otherwise these are the entries under which graphs broke in it,
    the one that was called most often first.

    Raises:
        UserError: if a trace cannot be read.
    """
    trace = localized(read_all(traces), [file])
    own = file.resolve()
    here = [e for e in trace.entries if e.name == name and Path(e.file).resolve() == own]
    if not here:
        above = _above(trace, own, name)
        here = sorted((e for e in trace.entries if e.id in above), key=lambda e: -e.calls)
    folders = [tensors_of(path / "trace.json" if path.is_dir() else path) for path in traces]
    return tuple(_found(trace, here, folders))


def _found(trace: Trace, entries: Sequence[Entry], folders: Sequence[Path]) -> Iterator[Recorded]:
    paths = tuple(dict.fromkeys(_folders(trace)))
    for entry in entries:
        names = [s.file for s in trace.samples if s.entry == entry.id and s.file]
        calls = tuple(_files(names, folders))
        state = next(_files([entry.state] if entry.state else [], folders), None)
        # What was defined inside of a function is not found by its name.
        if calls and "<" not in entry.name:
            yield Recorded(
                Path(entry.file), entry.name, entry.module, calls, state, entry.no_state, paths
            )


def _files(names: Sequence[str], folders: Sequence[Path]) -> Iterator[Path]:
    places = (folder / name for name in names for folder in folders)
    return (place.absolute() for place in places if place.is_file())


def _folders(trace: Trace) -> Iterator[Path]:
    """Where each program was, and where its script is."""
    for process in trace.processes:
        folder = Path(process.folder)
        script = folder / process.argv[0] if process.argv else folder
        yield from (path for path in (script.parent, folder) if path.is_dir())


def _above(trace: Trace, file: Path, name: str) -> set[str]:
    """The entries under which graphs broke in the lines of a definition."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError):
        return set()
    lines = {
        line
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name == name
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return {
        one.entry
        for one in trace.breaks
        if one.entry is not None
        and any(frame.line in lines and Path(frame.file) == file for frame in one.stack)
    }
