"""Writes what was planned, and takes it back, one file at a time and each in one step.

The journal says before the first write what every file was and will be, so that at any moment the bytes
of a file tell how far it is: as before, as after, or changed by somebody else. The module knows bytes
and the journal, nothing of fixes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gbfix.errors import UserError
from gbfix.migrate.journal import Journal, is_passing, stopped
from gbfix.source.writing import WriteError, write_atomically

CHANGED = "it was changed after the migration had read it"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Planned:
    """A file to be written: its path relative to the root, and the digests of its two contents."""

    path: str
    before: str
    after: str


def planned(journal: Journal) -> tuple[Planned, ...]:
    """The files that a migration is to write; none if it has not come to that."""
    record = journal.last("planned")
    return tuple(Planned(*entry) for entry in record["files"]) if record else ()


def write(journal: Journal, root: Path, on_file: Progress | None = None) -> dict[str, str]:
    """Write all that is planned and not yet written; gives the files that were left, and why.

    Raises:
        Interrupted: if the disk is full, say.
    """
    files = planned(journal)
    _clean(root, files)
    done = {record["path"] for record in journal.of("written")}
    left = {record["path"]: str(record["sentence"]) for record in journal.of("left")}
    for file in files:
        if file.path not in done and file.path not in left:
            sentence = _replace(journal, root / file.path, file.before, file.after)
            if sentence is None:
                journal.append("written", path=file.path)
            else:
                journal.append("left", path=file.path, sentence=sentence)
                left[file.path] = sentence
        if on_file is not None:
            on_file(file.path)
    return left


def undo(
    journal: Journal,
    root: Path,
    *,
    force: bool = False,
    then: Callable[[list[str]], None] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Give every file that was written its old bytes; gives those restored, and those left and why.

    `then` is called with all files restored, before the migration counts as undone.

    Raises:
        UserError: if files were changed since, unless forced; nothing is then restored.
        Interrupted: if the disk is full, say.
    """
    files = [file for file in planned(journal) if file.path not in _left(journal)]
    _clean(root, files)
    begun = journal.last("undo")
    if begun is None:
        changed = [file.path for file in files if _state(root, file) is None]
        if changed and not force:
            raise UserError(
                f"{_listed(changed)} changed since the migration; nothing was undone "
                "(--force restores them too)."
            )
        # What the user has made of them is kept as well.
        kept = {path: journal.keep(now) for path, now in _contents(root, changed)}
        journal.append("undo", force=force, kept=kept)
        force_all = force
    else:
        force_all = force or bool(begun["force"])
    restored: list[str] = []
    left: dict[str, str] = {}
    done = {record["path"] for record in journal.of("restored")}
    for file in files:
        sentence = None
        if file.path not in done:
            sentence = _restore(journal, root / file.path, file, force_all)
            if sentence is None:
                journal.append("restored", path=file.path)
        if sentence is None:
            restored.append(file.path)
        else:
            left[file.path] = sentence
    if not left:
        if then is not None:
            then(restored)
        journal.append("undone")
    return restored, left


def _left(journal: Journal) -> set[str]:
    return {record["path"] for record in journal.of("left")}


def _state(root: Path, file: Planned) -> str | None:
    """Which of its two contents a file has; None if another."""
    now = _digest(root / file.path)
    return now if now in (file.before, file.after) else None


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _contents(root: Path, paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        with contextlib.suppress(OSError):
            yield path, (root / path).read_bytes()


def _restore(journal: Journal, path: Path, file: Planned, force: bool) -> str | None:
    now = _digest(path)
    if force and now is None and path.parent.is_dir() and not path.exists():
        with contextlib.suppress(OSError):
            path.touch()
            now = _digest(path)
    if force and now not in (None, file.before, file.after):
        with contextlib.suppress(OSError):
            return _write(path, path.read_bytes(), journal.kept(file.before))
    return _replace(journal, path, file.after, file.before)


def _replace(journal: Journal, path: Path, old: str, new: str) -> str | None:
    """Give a file new content if it has the old one; says why not."""
    now = _digest(path)
    if now == new:  # written by a run that was ended before it could say so
        return None
    if now is None:
        return "it is gone or cannot be read"
    if now != old:
        return CHANGED
    return _write(path, journal.kept(old), journal.kept(new))


def _write(path: Path, old: bytes, new: bytes) -> str | None:
    try:
        write_atomically(path, old, new)
    except WriteError as error:
        if is_passing(error.number):
            raise stopped(path, OSError(error.number, _reason(path, error))) from None
        return _reason(path, error)
    return None


def _reason(path: Path, error: WriteError) -> str:
    return str(error).removeprefix(f"{path}: ").rstrip(".")


def _clean(root: Path, files: Sequence[Planned]) -> None:
    """Remove the temporary files that a killed run has left beside the files."""
    for folder in {(root / file.path).resolve().parent for file in files}:
        for temporary in folder.glob(".gbfix-*.tmp"):
            with contextlib.suppress(OSError):
                temporary.unlink()


def _listed(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:5])
    return f"{shown} and {len(paths) - 5} more" if len(paths) > 5 else shown
