"""Runs git, so that being killed at any moment leaves nothing that keeps it from being run again.

It knows references, the index and their locks, nothing of what a migration makes of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gbfix.errors import UserError
from gbfix.source.git_command import GitError, run_git

_PATIENCE = 2.0  # seconds


def run(
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> bytes:
    """What a git command prints.

    Raises:
        UserError: if it fails, with the first line that it says.
    """
    try:
        return run_git(folder, *arguments, environment=environment, given=given)
    except GitError as error:
        raise UserError(f"{error}.") from None


def works(root: Path, *arguments: str) -> bool:
    """Whether a git command succeeds."""
    try:
        run(root, *arguments)
    except UserError:
        return False
    return True


def top(root: Path) -> Path | None:
    """The folder of the repository around a folder; None if there is none.

    Raises:
        UserError: if there is one that git does not read: it is not installed, or finds that the
            repository belongs to somebody else.
    """
    try:
        return Path(os.fsdecode(run(root, "rev-parse", "--show-toplevel").rstrip(b"\n")))
    except UserError:
        whole = root.resolve()
        if any((folder / ".git").exists() for folder in (whole, *whole.parents)):
            raise
        return None


def update(root: Path, reference: str, *arguments: str) -> None:
    """Change a reference; the lock of a git that was killed at it is taken away.

    No git that lives holds the lock of a reference for long.
    """
    lock = path_of(root, f"{reference}.lock")
    until = time.monotonic() + _PATIENCE
    while lock.exists() and time.monotonic() < until:
        time.sleep(0.05)
    lock.unlink(missing_ok=True)
    run(root, *arguments)


def reset(root: Path, paths: Sequence[str]) -> None:
    """Bring the index to what HEAD has of some files, so that being killed leaves no lock of git's.

    The lock of the index may be held for as long as somebody writes the message of a commit, so that
    one that is left behind could not be told from it. The one made here is a second name of the new
    index.

    Raises:
        UserError: if another git holds the lock.
    """
    index = path_of(root, "index")
    made, lock = index.with_name("index.gbfix"), index.with_name("index.lock")
    if made.exists() and lock.exists() and made.samefile(lock):
        lock.unlink()
    while True:
        for left in (made, made.with_name("index.gbfix.lock")):
            left.unlink(missing_ok=True)
        before = index.read_bytes() if index.exists() else b""
        if before:
            made.write_bytes(before)
        for chunk in _chunks(paths):
            named = [f":(literal){path}" for path in chunk]
            environment = {"GIT_INDEX_FILE": str(made)}
            run(root, "reset", "--quiet", "--", *named, environment=environment)
        try:
            lock.hardlink_to(made)
        except FileExistsError:
            raise UserError(
                f"{lock} is there, so another git is at work in the repository, or was ended in it; "
                "run the command again without it."
            ) from None
        except OSError:  # names cannot be shared on every file system
            made.replace(index)
            return
        if (index.read_bytes() if index.exists() else b"") == before:
            break
        lock.unlink()
    lock.replace(index)
    made.unlink()


def path_of(root: Path, name: str) -> Path:
    """Where git keeps something of its own."""
    found = os.fsdecode(run(root, "rev-parse", "--git-path", name).rstrip(b"\n"))
    return Path(os.path.realpath(root), found)


def _chunks(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), 500):
        yield paths[start : start + 500]
