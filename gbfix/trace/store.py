"""The trace as a file: written atomically, read from the file, from journals, or from both.

A trace is `trace.json`, the journals of processes that have not been folded into it yet in
`trace.json.journal/`, and argument values in `trace.tensors/`. Reading takes what is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gbfix.errors import UserError
from gbfix.trace.encoding import decode, encode
from gbfix.trace.journal import SUFFIX, folder_of, tensors_of
from gbfix.trace.model import (
    Break,
    Entry,
    Failure,
    Process,
    Recompile,
    Sample,
    Signature,
    Skip,
    Trace,
    merge,
)

VERSION = 1
FORMAT = "gbfix-trace"
EVENTS: dict[str, tuple[str, type]] = {
    "process": ("processes", Process),
    "entry": ("entries", Entry),
    "break": ("breaks", Break),
    "skip": ("skips", Skip),
    "recompile": ("recompiles", Recompile),
    "failure": ("failures", Failure),
    "sample": ("samples", Sample),
    "signature": ("signatures", Signature),
}


def exists(path: Path) -> bool:
    """Whether there is a trace, be it a file or only journals."""
    return path.is_file() or any(_journals(path))


def load(path: Path) -> Trace:
    """The trace in a file together with journals beside it.

    Raises:
        UserError: if there is none, or it cannot be read.
    """
    parts = [_load_file(path)] if path.is_file() else []
    parts += [_load_journal(journal) for journal in _journals(path)]
    if not parts:
        raise UserError(f"{path}: there is no trace here.")
    return merge(parts)


def save(trace: Trace, path: Path) -> None:
    """Write a trace atomically.

    Raises:
        OSError: if it cannot be written.
    """
    content = {"format": FORMAT, "version": VERSION, **encode(trace)}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def compact(path: Path) -> Trace:
    """Fold the journals of processes that have ended into the file; the rest stays beside it.

    Raises:
        OSError: if the file cannot be written; the journals are then left as they are.
    """
    ended = [journal for journal in _journals(path) if not _alive(journal)]
    parts = [_load_file(path)] if path.is_file() else []
    parts += [_load_journal(journal) for journal in ended]
    trace = merge(parts)
    save(trace, path)
    for journal in ended:
        journal.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder_of(path).rmdir()
    return load(path)


def clear(path: Path) -> None:
    """Remove a trace with its journals and values, and nothing else."""
    path.unlink(missing_ok=True)
    for journal in _journals(path):
        journal.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder_of(path).rmdir()
    tensors = tensors_of(path)
    for sample in tensors.glob("*.pt") if tensors.is_dir() else ():
        sample.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        tensors.rmdir()


def save_merged(sources: list[Path], trace: Trace, path: Path) -> None:
    """Write the merged trace of several files, and copy the argument values that it names.

    Raises:
        OSError: if something cannot be written.
    """
    folder = tensors_of(path)
    for name in filter(None, [*(s.file for s in trace.samples), *(e.state for e in trace.entries)]):
        origins = [tensors_of(source) / name for source in sources]
        found = next((origin for origin in origins if origin.is_file()), None)
        if found is not None and found.parent.resolve() != folder.resolve():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, folder / found.name)
    save(trace, path)


def _journals(path: Path) -> Iterator[Path]:
    folder = folder_of(path)
    if folder.is_dir():
        yield from sorted(folder.glob(f"*{SUFFIX}"))


def _alive(journal: Path) -> bool:
    """Whether the process that writes a journal still runs."""
    try:
        os.kill(int(journal.name.partition("-")[0]), 0)
    except ProcessLookupError:
        return False
    except (ValueError, OSError):
        return True
    return True


def _load_file(path: Path) -> Trace:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: the trace cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{path}: this is not a trace made by gbfix.")
    if content.get("version") != VERSION:
        raise UserError(
            f"{path}: the trace has version {content.get('version')}; "
            f"this gbfix reads version {VERSION}."
        )
    try:
        return decode(Trace, content)
    except ValueError as error:
        raise UserError(f"{path}: the trace is damaged: {error}") from error


def _load_journal(path: Path) -> Trace:
    """The trace in a journal; a line that was cut off when the program was killed is left out."""
    found: dict[str, list[Any]] = {}
    calls: dict[str, int] = {}
    notes: list[str] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            item = json.loads(line)
            event, value = item["event"], item["value"]
            if event in EVENTS:
                name, kind = EVENTS[event]
                found.setdefault(name, []).append(decode(kind, value))
            elif event == "calls":
                calls.update(value)
            elif event == "note":
                notes.append(str(value))
        except (ValueError, KeyError, TypeError):
            continue
    entries = [replace(entry, calls=calls.get(entry.id, 0)) for entry in found.pop("entries", [])]
    parts: dict[str, Any] = {name: tuple(values) for name, values in found.items()}
    return merge([Trace(entries=tuple(dict.fromkeys(entries)), notes=tuple(notes), **parts)])
