"""Which lines of files have changed since a commit, as git sees it; a new name changes none.

Knows git and line numbers, nothing of what the lines hold.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from gbfix.errors import UserError
from gbfix.source.git_command import GitError, run_git

_HUNK = re.compile(rb"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


class ChangedLines:
    """The lines that differ between the working tree and where the branch left a revision.

    Raises:
        UserError: if this is no git repository, or the revision does not exist.
    """

    def __init__(self, revision: str, folder: Path) -> None:
        self._root = Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel").rstrip(b"\n")))
        if revision.startswith("-"):
            raise UserError(f"`{revision}` is no revision.")
        try:
            run_git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        except GitError:
            sentence = f"--diff-base: `{revision}` is no revision of this repository."
            raise UserError(sentence) from None
        try:
            self._base = run_git(folder, "merge-base", revision, "HEAD").decode().strip()
        except GitError:  # no commit in common
            self._base = revision
        changed = _git(self._root, "diff", "--name-status", "-z", "-M", self._base, "--")
        new = _git(self._root, "ls-files", "--others", "-z", "--exclude-standard")
        self._known: dict[str, frozenset[int]] = {}
        self._old = self._old_names(changed)
        self._new = self._paths(new)

    def _paths(self, listing: bytes) -> frozenset[str]:
        names = (os.fsdecode(name) for name in listing.split(b"\0") if name)
        return frozenset(os.path.realpath(self._root / name) for name in names)

    def _old_names(self, listing: bytes) -> dict[str, str]:
        """What files that differ were called, by their path now."""
        words = iter(os.fsdecode(word) for word in listing.split(b"\0") if word)
        names: dict[str, str] = {}
        for status in words:
            old = next(words)
            now = next(words) if status[0] in "RC" else old
            names[os.path.realpath(self._root / now)] = old
        return names

    def touches(self, path: Path, first: int, last: int) -> bool:
        """Whether any of the lines from `first` to `last` of a file has changed."""
        real = os.path.realpath(path)
        if real in self._new:
            return True
        if real not in self._old:
            return False
        return any(first <= line <= last for line in self._lines(real))

    def _lines(self, real: str) -> Collection[int]:
        if real not in self._known:
            relative = os.path.relpath(real, os.path.realpath(self._root))
            names = dict.fromkeys((relative.replace(os.sep, "/"), self._old[real]))
            diff = _git(
                self._root,
                *("diff", "--unified=0", "--no-color", "--no-ext-diff", "-M", "--no-textconv"),
                *(self._base, "--", *(f":(literal){name}" for name in names)),
            )
            self._known[real] = frozenset(_added(diff))
        return self._known[real]


def _added(diff: bytes) -> Iterable[int]:
    for match in _HUNK.finditer(diff):
        start, count = int(match[1]), int(match[2]) if match[2] is not None else 1
        yield from range(start, start + count)


def _git(folder: Path, *arguments: str) -> bytes:
    try:
        return run_git(folder, *arguments)
    except GitError as error:
        raise UserError(f"--diff-base: {error}.") from None
