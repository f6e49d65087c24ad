"""`gbfix.verify(original, rewritten, inputs)`: for test suites and scripts.

Turns what a caller has in hand (names, functions, modules, lists of arguments) into the values that the
checker takes.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gbfix.dynamo.installed import require_torch
from gbfix.errors import UserError
from gbfix.verify.checker import verify_sides
from gbfix.verify.options import Options
from gbfix.verify.recipes import Inputs, normalised
from gbfix.verify.targets import Side, Target, of_file, resolve
from gbfix.verify.verdict import Verdict
from gbfix.verify.worker import Workers


def verify(
    original: str | Callable[..., Any],
    rewritten: str | Callable[..., Any],
    inputs: str | Callable[[], Sequence[Any]] | Sequence[Any] | None = None,
    *,
    options: Options | None = None,
    workers: Workers | None = None,
) -> Verdict:
    """Say whether rewritten code does the same as the original, and breaks less.

    Args:
        original: `path.py:name`, `package.module:name`, a function, a class that can be constructed
            without arguments, or a module that can be pickled.
        rewritten: the same of the rewritten code.
        inputs: a list of argument tuples or of `(args, kwargs)`, a function that returns one or the
            name of such a function; None to have them generated.
        options: backend, device, limits and so on.
        workers: worker processes to use; by default they are started and ended here.

    Raises:
        UserError: if torch is not installed, and for something that a worker process could not be
            given.
    """
    require_torch()
    first, second = _side(original), _side(rewritten)
    if isinstance(original, str) and isinstance(rewritten, str):
        second = _as_version_of(first, second)
    asked = _inputs(inputs)
    if workers is not None:
        return verify_sides(workers, first, second, asked, options)
    with Workers() as own:
        return verify_sides(own, first, second, asked, options)


def _as_version_of(first: Side, second: Side) -> Side:
    """A file in the place of another, so that both have the same name and the same neighbours."""
    if first.target.file is None or second.target.file is None:
        return second
    texts = ((os.path.realpath(first.target.file), second.texts[0][1]),)
    return Side(replace(first.target, name=second.target.name), texts)


def _side(given: str | Callable[..., Any]) -> Side:
    target = resolve(given) if isinstance(given, str) else _target(given)
    if target.file is None:
        return Side(target)
    from gbfix.source.text import SourceError, SourceFile

    path = Path(target.file)
    try:
        source = SourceFile.decode(path, path.read_bytes())
    except (OSError, SourceError) as error:
        raise UserError(f"{path}: {error}") from error
    return Side(target, ((os.path.realpath(path), source.text),))


def _target(given: Callable[..., Any]) -> Target:
    name = getattr(given, "__qualname__", None)
    if name is not None and "<locals>" in name:
        raise UserError(
            f"`{name}` cannot be sent to a worker process: define it at the top of a module."
        )
    owner = given if name is not None else type(given)
    module = sys.modules.get(owner.__module__)
    file = getattr(module, "__file__", None)
    folders = tuple(folder or str(Path.cwd()) for folder in sys.path)
    pickled = None
    if name is None:
        try:
            pickled = pickle.dumps(given)
        except Exception as error:
            raise UserError(
                f"the {type(given).__name__} cannot be sent to a worker process: {error}"
            ) from error
    title = name or type(given).__name__
    if owner.__module__ == "__main__" and file is not None:
        return replace(of_file(Path(file), title), pickled=pickled, main=True)
    return Target(owner.__module__, title, file, folders, None, pickled)


def _inputs(given: str | Callable[[], Sequence[Any]] | Sequence[Any] | None) -> Inputs | None:
    if given is None:
        return None
    if isinstance(given, str):
        return Inputs(factory=given)
    made = normalised(given() if callable(given) else given)
    if not made:
        raise UserError("there are no inputs.")
    try:
        return Inputs(pickled=pickle.dumps(made))
    except Exception as error:
        raise UserError(f"the inputs cannot be sent to a worker process: {error}") from error
