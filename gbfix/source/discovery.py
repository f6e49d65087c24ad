"""Expands the paths of a command line to the Python files to work on.

Files named on the command line are always taken. In folders, default excludes, the user's exclude
patterns and `.gitignore` files decide; links to folders are not followed, so that nothing outside
the named paths is ever rewritten. The module never opens a Python file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gbfix.errors import UserError
from gbfix.findings import FileError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

DEFAULT_EXCLUDES = frozenset(
    {
        ".bzr", ".direnv", ".eggs", ".git", ".git-rewrite", ".hg", ".ipynb_checkpoints",
        ".mypy_cache", ".nox", ".pants.d", ".pyenv", ".pytest_cache", ".pytype", ".ruff_cache",
        ".svn", ".tox", ".venv", ".vscode", "__pycache__", "__pypackages__", "_build", "buck-out",
        "build", "dist", "node_modules", "site-packages", "venv",
    }
)  # fmt: skip


# Patterns that git passes over and pathspec refuses.
_MEANINGLESS = frozenset({"!", "\\"})


@dataclass(frozen=True)
class Discovery:
    """The files found, sorted and each once, and a sentence for each path that gave none."""

    files: tuple[Path, ...]
    errors: tuple[FileError, ...]


def discover(
    paths: Sequence[Path],
    *,
    exclude: Sequence[str] = (),
    root: Path | None = None,
    respect_gitignore: bool = True,
) -> Discovery:
    """Expand files and folders; `exclude` holds gitignore patterns relative to `root`.

    Raises:
        UserError: for a pattern that cannot be used.
    """
    files: list[Path] = []
    errors: list[FileError] = []
    for path in paths:
        try:
            if path.is_dir():
                walk = _Walk(path, exclude, root or Path.cwd(), respect_gitignore)
                found = list(walk.files())
                errors += walk.errors
                if not found and not walk.errors:
                    errors.append(FileError(path, f"{path}: no Python files in this folder."))
                files += found
            else:
                trouble = _trouble(path)
                if trouble:
                    errors.append(FileError(path, f"{path}: {trouble}."))
                else:
                    files.append(path)
        except OSError as error:
            errors.append(FileError(path, f"{path}: cannot be read: {error.strerror}."))
    return Discovery(_unique(files), tuple(sorted(set(errors), key=lambda e: (e.path, e.sentence))))


def _trouble(path: Path) -> str | None:
    """What is wrong with a path that is no folder."""
    if not path.exists():
        return "dangling symbolic link" if path.is_symlink() else "no such file or folder"
    if not path.is_file():
        return "not a regular file"
    if path.suffix == ".ipynb":
        return "notebooks are not supported"
    return None


def _unique(files: Sequence[Path]) -> tuple[Path, ...]:
    """Each real file once, under its own name rather than that of a link to it."""
    by_target: dict[Path, Path] = {}
    real = cache(Path.resolve)  # a folder holds many files
    ordered = sorted((path.is_symlink(), path.is_absolute(), path) for path in files)
    for is_link, _, path in ordered:
        target = real(path) if is_link else real(path.parent) / path.name
        by_target.setdefault(target, path)
    return tuple(sorted(by_target.values()))


@dataclass(frozen=True)
class _Ignores:
    """One file of ignore patterns and the folder that they are relative to."""

    folder: str
    spec: GitIgnoreSpec

    def verdict(self, path: str, is_dir: bool) -> bool | None:
        """True to ignore, False to keep, None where no pattern speaks; `path` is absolute."""
        relative = os.path.relpath(path, self.folder).replace(os.sep, "/")
        if relative == "." or relative.startswith("../"):
            return None
        return self.spec.check_file(relative + "/" if is_dir else relative).include


class _Walk:
    """A walk over one folder from the command line."""

    def __init__(self, top: Path, exclude: Sequence[str], root: Path, gitignore: bool) -> None:
        self._top = top
        self._gitignore = gitignore
        self.errors: list[FileError] = []
        absolute = str(top.absolute())
        # A folder that was named is taken even if a pattern excludes it.
        patterns = [_spec(str(root.absolute()), [pattern]) for pattern in exclude]
        kept = [p for p, s in zip(exclude, patterns, strict=True) if not s.verdict(absolute, True)]
        self._excluded = _spec(str(root.absolute()), kept) if kept else None
        above = tuple(self._above(top.absolute())) if gitignore else ()
        self._inherited = () if _ignored(absolute, True, above) else above

    def files(self) -> Iterator[Path]:
        yield from self._folder(self._top, self._inherited)

    def _folder(self, folder: Path, ignores: tuple[_Ignores, ...]) -> Iterator[Path]:
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            self.errors.append(FileError(folder, f"{folder}: cannot be read: {error.strerror}."))
            return
        if self._gitignore and any(entry.name == ".gitignore" for entry in entries):
            ignores = (*ignores, *self._ignore_file(folder.absolute()))
        for entry in entries:
            is_dir = entry.is_dir(follow_symlinks=False)
            if not is_dir and not (entry.name.endswith(".py") and entry.is_file()):
                continue
            path = folder / entry.name
            if self._skips(path, is_dir, ignores):
                continue
            if is_dir:
                yield from self._folder(path, ignores)
            else:
                yield path

    def _skips(self, path: Path, is_dir: bool, ignores: tuple[_Ignores, ...]) -> bool:
        if is_dir and path.name in DEFAULT_EXCLUDES:
            return True
        if not ignores and self._excluded is None:
            return False
        absolute = str(path.absolute())
        if self._excluded is not None and self._excluded.verdict(absolute, is_dir):
            return True
        return _ignored(absolute, is_dir, ignores)

    def _above(self, top: Path) -> Iterator[_Ignores]:
        """The `.gitignore` files between the root of the repository and `top`."""
        parents = [top, *top.parents]
        at = next((i for i, folder in enumerate(parents) if (folder / ".git").exists()), 0)
        for folder in reversed(parents[1 : at + 1]):
            yield from self._ignore_file(folder)

    def _ignore_file(self, folder: Path) -> Iterator[_Ignores]:
        try:
            text = (folder / ".gitignore").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            # Git itself goes on without an ignore file that it cannot read.
            return
        patterns = [line for line in text.splitlines() if line.strip() not in _MEANINGLESS]
        yield _spec(str(folder), patterns)


def _spec(folder: str, patterns: Sequence[str]) -> _Ignores:
    from pathspec import GitIgnoreSpec

    try:
        return _Ignores(folder, GitIgnoreSpec.from_lines(patterns))
    except ValueError as error:
        raise UserError(f"{folder}: {error}.") from None


def _ignored(path: str, is_dir: bool, ignores: tuple[_Ignores, ...]) -> bool:
    for ignore in reversed(ignores):
        verdict = ignore.verdict(path, is_dir)
        if verdict is not None:
            return verdict
    return False
