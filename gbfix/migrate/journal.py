"""The journal of a migration: records that only grow, and the bytes that they speak of.

A record is one line of JSON with a checksum before it, and is on disk before anything that it announces
or follows. What was cut off while it was written is no record, and is cut away when the journal is
opened again. Bytes are kept under their own digest, complete or not at all. Nothing here knows what
the records mean.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gbfix.errors import UserError
from gbfix.source.writing import sync_folder

FOLDER = Path(".gbfix", "migrate")
_LOG = "journal.jsonl"
_BLOBS = "blobs"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

Record = dict[str, Any]


class Interrupted(UserError):
    """The migration had to stop where it is; running it again takes it up from there."""


@dataclass
class Journal:
    """One migration's folder, open for reading and appending."""

    folder: Path
    records: list[Record] = field(default_factory=list)
    _end: int = 0

    @property
    def id(self) -> str:
        """The name of the migration."""
        return self.folder.name

    def of(self, kind: str) -> list[Record]:
        """The records of one kind, in order."""
        return [record for record in self.records if record["kind"] == kind]

    def last(self, kind: str) -> Record | None:
        """The latest record of a kind."""
        found = self.of(kind)
        return found[-1] if found else None

    def append(self, kind: str, **content: Any) -> None:
        """Add a record; it is on disk when this returns.

        Raises:
            Interrupted: if it cannot be; the journal is then as it was.
        """
        record = {"kind": kind, **content}
        body = json.dumps(record, separators=(",", ":")).encode()
        line = b"%08x %s\n" % (zlib.crc32(body), body)
        with _stopping(self.folder):
            descriptor = os.open(self.folder / _LOG, os.O_WRONLY)
            try:
                os.lseek(descriptor, self._end, os.SEEK_SET)
                _write_all(descriptor, line)
                os.fsync(descriptor)
            except OSError:
                # Half a record is no record, but the next one has to begin a line.
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, self._end)
                raise
            finally:
                os.close(descriptor)
        self._end += len(line)
        self.records.append(record)

    def keep(self, content: bytes) -> str:
        """Keep bytes, and give the name by which they are found again.

        Raises:
            Interrupted: if they cannot be written.
        """
        name = hashlib.sha256(content).hexdigest()
        place = self.folder / _BLOBS / name
        with _stopping(self.folder):
            if not place.exists():
                _put(place, content)
        return name

    def kept(self, name: str) -> bytes:
        """Bytes that were kept.

        Raises:
            UserError: if they are gone or damaged.
        """
        place = self.folder / _BLOBS / name
        try:
            content = place.read_bytes()
        except OSError as error:
            raise UserError(f"{place}: cannot be read: {error.strerror}.") from None
        if hashlib.sha256(content).hexdigest() != name:
            raise UserError(f"{place}: damaged; it no longer has the bytes that were kept.")
        return content


def create(root: Path, name: str, **content: Any) -> Journal:
    """Begin a journal; until its first record is there, there is none.

    Raises:
        Interrupted: if it cannot be written.
    """
    folder = root / FOLDER / name
    with _stopping(folder):
        (folder / _BLOBS).mkdir(parents=True, exist_ok=True)
        ignored = root / FOLDER.parts[0] / ".gitignore"
        if not ignored.exists():
            _put(ignored, b"*\n")
        log = folder / _LOG
        log.touch()
        for parent in (folder, folder.parent, folder.parent.parent, root):
            sync_folder(parent)
    journal = Journal(folder)
    journal.append("begin", id=name, **content)
    return journal


def load(folder: Path) -> Journal | None:
    """A journal as it was left; None if it has no record.

    Raises:
        UserError: if it cannot be read, or is damaged before its end.
    """
    log = folder / _LOG
    try:
        content = log.read_bytes()
    except OSError:
        return None
    journal = Journal(folder)
    lines = content.split(b"\n")
    for number, line in enumerate(lines):
        record = _record(line)
        if record is None:
            if any(map(_record, lines[number + 1 :])):
                raise UserError(f"{log}: damaged at line {number + 1}.")
            break
        if number == len(lines) - 1:  # complete but for its line feed, which was not written
            break
        journal.records.append(record)
        journal._end += len(line) + 1
    return journal if journal.records else None


def reopen(journal: Journal) -> None:
    """Cut off what was not completely written before more is appended.

    Raises:
        Interrupted: if it cannot be.
    """
    with _stopping(journal.folder):
        log = journal.folder / _LOG
        if log.stat().st_size > journal._end:
            descriptor = os.open(log, os.O_WRONLY)
            try:
                os.ftruncate(descriptor, journal._end)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        for left in (journal.folder / _BLOBS).glob("*.tmp"):
            left.unlink()


def all_in(root: Path) -> list[Journal]:
    """All journals of a root, the latest first.

    Raises:
        UserError: if one is damaged.
    """
    folder = root / FOLDER
    names = (
        sorted((p for p in folder.iterdir() if p.is_dir()), reverse=True) if folder.is_dir() else ()
    )
    return [journal for journal in map(load, names) if journal is not None]


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the only migration of a root.

    Raises:
        UserError: if another process has it.
    """
    place = root / FOLDER / "lock"
    with _stopping(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        # Windows has no `fcntl`; two migrations at once are then the user's to avoid.
        with contextlib.suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"{root}: another migration of it is running.") from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _stopping(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise stopped(place, error) from None


def stopped(place: Path, error: OSError) -> Interrupted:
    """What to raise when the machine does not let the migration go on."""
    return Interrupted(
        f"{place}: {error.strerror or error}; the migration has stopped. Nothing is lost: run the "
        "command again to go on, or with --undo to take it back."
    )


def is_passing(number: int | None) -> bool:
    """Whether an error's number stands for a state of the machine rather than of one file."""
    return number in _FULL


def _record(line: bytes) -> Record | None:
    checksum, _, body = line.partition(b" ")
    if b"%08x" % zlib.crc32(body) != checksum:
        return None
    record = json.loads(body)
    return record if isinstance(record, dict) and "kind" in record else None


def _put(place: Path, content: bytes) -> None:
    """Write a new file so that it is complete or not there."""
    temporary = place.with_name(f"{place.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _write_all(descriptor, content)
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(descriptor)
    temporary.replace(place)
    sync_folder(place.parent)


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
