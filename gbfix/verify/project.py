"""From what the engine has rewritten to pairs of sides, one for each function or class concerned.

The rewritten texts are used as they are in memory; nothing is written to be verified.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path

from gbfix.errors import UserError
from gbfix.findings import FileResult, RunResult
from gbfix.verify.targets import Side, of_file


@dataclass(frozen=True)
class Pair:
    """A target before and after, and the file and name of the definition that it is about."""

    path: Path
    name: str
    original: Side
    rewritten: Side

    def built_by(self, init: str | None) -> Pair:
        """The same with the object that is called built by a function, if one is named."""
        if init is None:
            return self
        sides = [
            replace(side, target=replace(side.target, init=init))
            for side in (self.original, self.rewritten)
        ]
        return replace(self, original=sides[0], rewritten=sides[1])


def pairs(
    result: RunResult,
    file: FileResult,
    names: Sequence[str] | None = None,
    *,
    init: str | None = None,
) -> list[Pair]:
    """The pairs of a file: those named, or else everything at its top in which a fix was made.

    Other files stay as they were on both sides, since it is not known yet whether they will change.
    """
    before = tuple((os.path.realpath(f.path), f.before.text) for f in result.files)
    own = os.path.realpath(file.path)
    after = tuple((path, file.after if path == own else text) for path, text in before)
    found: list[Pair] = []
    for name in fixed_names(file) if names is None else names:
        target = of_file(file.path, name, init=init)
        found.append(Pair(file.path, name, Side(target, before), Side(target, after)))
    return found


def fixed_names(file: FileResult) -> tuple[str, ...]:
    """The functions and classes at the top of a file in which a fix was made, in order."""
    fixed = [f.function.partition(".")[0] for f in file.findings if f.applied is not None]
    return tuple(dict.fromkeys(fixed))


def check_name(file: FileResult, name: str) -> None:
    """See that a file has what is to be verified.

    Raises:
        UserError: if it does not.
    """
    tree = ast.parse(file.before.text)
    found = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    found |= {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if name.partition(".")[0] not in found:
        raise UserError(f"there is no `{name}` in {file.path}.")


def file_of_module(name: str) -> Path:
    """The file of a module, found without importing it or its packages.

    Raises:
        UserError: if there is none.
    """
    folders: Sequence[str] | None = [str(Path.cwd()), *sys.path]
    origin: str | None = None
    for part in name.split("."):
        spec = PathFinder.find_spec(part, folders) if folders is not None else None
        if spec is None:
            raise UserError(f"there is no module `{name}`.")
        origin, folders = spec.origin, spec.submodule_search_locations
    if origin is None or not origin.endswith(".py"):
        raise UserError(f"module `{name}` has no Python source.")
    return Path(origin)
