"""Finds the argument values that were recorded for a function or class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gbfix.trace.journal import tensors_of
from gbfix.trace.localize import localized
from gbfix.trace.reading import read_all


def recorded(traces: Sequence[Path], file: Path, name: str) -> list[Path]:
    """The files with the recorded calls of what is called `name` in a file, in the order of calls.

    Raises:
        UserError: if a trace cannot be read.
    """
    trace = localized(read_all(traces), [file])
    own = file.resolve()
    wanted = {e.id for e in trace.entries if e.name == name and Path(e.file).resolve() == own}
    names = [sample.file for sample in trace.samples if sample.entry in wanted and sample.file]
    folders = [tensors_of(path / "trace.json" if path.is_dir() else path) for path in traces]
    places = [folder / name for name in names for folder in folders]
    return [place.absolute() for place in places if place.is_file()]
