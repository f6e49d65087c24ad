"""Replaces the bytes of a file in one step, so that no moment shows half of it.

The new bytes go to a temporary file in the same folder, reach the disk, and take the place of the
old ones by a rename. The mode is kept, a link keeps pointing at the file, and whatever the rename
would quietly undo (hard links, write protection, a change made since the file was read) is refused.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


class WriteError(Exception):
    """A file that was left as it was, with one clear sentence for the user.

    `number` is that of the system's error, if there was one.
    """

    def __init__(self, sentence: str, number: int | None = None) -> None:
        super().__init__(sentence)
        self.number = number


def write_atomically(path: Path, before: bytes, after: bytes) -> None:
    """Replace the content of `path`, which must still be `before`, by `after`.

    Raises:
        WriteError: if the file cannot or should not be replaced; it is then unchanged.
    """
    try:
        target = path.resolve(strict=True)
        status = target.stat()
        _refuse_unless_replaceable(path, target, status)
        _replace(path, target, status, before, after)
    # `resolve` reports a loop of links as RuntimeError before Python 3.13.
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        number = getattr(error, "errno", None)
        raise WriteError(f"{path}: cannot be written: {reason}.", number) from None


def _refuse_unless_replaceable(path: Path, target: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise WriteError(f"{path}: not written, since it is not a regular file.")
    # The rename needs no permission on the file itself, and root is stopped by nothing.
    if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise WriteError(f"{path}: not written, since it is read-only.")
    if status.st_nlink > 1:
        raise WriteError(
            f"{path}: not written, since it has {status.st_nlink} hard links and replacing it "
            "would part them."
        )


def _replace(path: Path, target: Path, status: os.stat_result, before: bytes, after: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".gbfix-", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(after)
            stream.flush()
            os.fsync(stream.fileno())
        _keep_owner_and_mode(temporary, status)
        if target.read_bytes() != before:
            raise WriteError(f"{path}: not written, since it changed while gbfix was running.")
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def _keep_owner_and_mode(temporary: Path, status: os.stat_result) -> None:
    made = temporary.stat()
    if hasattr(os, "chown") and (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
        # Only root may give a file away; the content matters more than its owner.
        with contextlib.suppress(OSError):
            os.chown(temporary, status.st_uid, status.st_gid)
    # After the change of owner, which clears the set-user-id bits.
    temporary.chmod(stat.S_IMODE(status.st_mode))


def sync_folder(folder: Path) -> None:
    """Make names in a folder last through a loss of power, as far as the system can."""
    # Not every system can open or sync a folder, and the file itself is already safe.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
