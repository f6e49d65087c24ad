"""Decides which files of a program are rewritten in memory, and what of the engine's results counts.

It knows paths and results, and nothing of how a program is run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gbfix.errors import UserError
from gbfix.findings import FileResult, RunResult

_ROOT_MARKS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")


@dataclass(frozen=True)
class Program:
    """What is to be run: a script or a module, and its arguments."""

    script: Path | None
    module: str | None
    arguments: tuple[str, ...]

    @property
    def start(self) -> Path:
        """The folder from which its own code is looked for."""
        return Path.cwd() if self.script is None else self.script.absolute().parent


def program(words: Sequence[str]) -> Program:
    """Read `script.py args` or `-m module args`.

    Raises:
        UserError: if there is no such thing.
    """
    if not words:
        raise UserError("there is nothing to run; give `script.py args` or `-m module args`.")
    if words[0] == "-m":
        if len(words) < 2:
            raise UserError("`-m` needs the name of a module.")
        return Program(None, words[1], tuple(words[2:]))
    if words[0].startswith("-"):
        raise UserError(f"No such option: {words[0]}; options of the program come after `--`.")
    script = Path(words[0])
    if not script.exists():
        raise UserError(f"{script}: no such file.")
    return Program(script, None, tuple(words[1:]))


def project_root(start: Path) -> Path:
    """The nearest folder at or above `start` that looks like a project's, or else `start` itself."""
    for folder in (start, *start.parents):
        if any((folder / mark).exists() for mark in _ROOT_MARKS):
            return folder
    return start


def resolve(name: str) -> Path:
    """The file or folder that `--only` names: a path, or a package or module that can be imported.

    Nothing is imported.

    Raises:
        UserError: if there is neither.
    """
    path = Path(name)
    if path.exists():
        return path
    first, *rest = name.split(".")
    if not all(part.isidentifier() for part in (first, *rest)):
        raise UserError(f"`--only {name}`: no such file, folder or module.")
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        spec = None
    if spec is None or (rest and not spec.submodule_search_locations):
        raise UserError(f"`--only {name}`: no such file, folder or module.")
    if not rest:
        if spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations)))
        if spec.origin is not None and spec.origin.endswith(".py"):
            return Path(spec.origin)
    for folder in spec.submodule_search_locations or ():
        place = Path(folder, *rest)
        if place.is_dir():
            return place
        if place.with_suffix(".py").is_file():
            return place.with_suffix(".py")
    raise UserError(f"`--only {name}`: no Python source of it was found.")


def within(path: Path, places: Sequence[Path]) -> bool:
    """Whether a file is one of some places, or in one of them."""
    real = path.resolve()
    return any(real.is_relative_to(place.resolve()) for place in places)


def limited(result: RunResult, places: Sequence[Path]) -> RunResult:
    """The result with all files that are not in `places` left as they are, and not spoken of."""
    files = tuple(file if within(file.path, places) else _as_it_was(file) for file in result.files)
    return replace(result, files=files)


def joined(results: Sequence[RunResult]) -> RunResult:
    """Several results as one; of a file that is in more than one, the first."""
    files: dict[Path, FileResult] = {}
    for result in results:
        for file in result.files:
            files.setdefault(file.path.resolve(), file)
    return RunResult(
        tuple(sorted(files.values(), key=lambda file: file.path)),
        tuple(error for result in results for error in result.errors),
        tuple(dict.fromkeys(notice for result in results for notice in result.notices)),
    )


def _as_it_was(file: FileResult) -> FileResult:
    return replace(file, after=file.before.text, findings=())
