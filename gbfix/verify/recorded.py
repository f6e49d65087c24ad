"""Targets and inputs from a trace: a definition is run as the program ran it, by what calls it.

A class that breaks inside of a compiled model is verified through that model, which is made again
from what it held when it was recorded.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gbfix.trace.inputs import Recorded, recorded
from gbfix.verify.project import Pair
from gbfix.verify.recipes import Inputs
from gbfix.verify.targets import Side, Target, of_file

_MOST_CALLABLES = 3


def recorded_pairs(pair: Pair, traces: Sequence[Path]) -> tuple[tuple[Pair, Inputs], ...]:
    """The pairs to verify in the place of one, with recorded inputs; none if nothing was recorded.

    Raises:
        UserError: if a trace cannot be read.
    """
    found = recorded(traces, pair.path, pair.name) if traces else ()
    return tuple(_prepared(one, pair) for one in found[:_MOST_CALLABLES])


def _prepared(one: Recorded, pair: Pair) -> tuple[Pair, Inputs]:
    through = _through(one, pair)
    modules = ((one.module, through.original.target.module),)
    return through, Inputs(saved=tuple(map(str, one.calls)), modules=modules)


def _through(one: Recorded, pair: Pair) -> Pair:
    """A pair whose sides are called as it was recorded."""
    target = pair.original.target
    if one.name != target.name or one.file.resolve() != pair.path.resolve():
        target = of_file(one.file, one.name)
    if target.init is None:
        target = replace(
            target,
            folders=tuple(dict.fromkeys((*target.folders, *map(str, one.folders)))),
            state=str(one.state) if one.state is not None else None,
            state_of=one.module,
            no_state=one.no_state,
        )
    if target.state is not None and (changed := _made_otherwise(pair)) is not None:
        told = f"the rewrite changes how a `{changed}` is made"
        target = replace(target, state=None, no_state=told)
    return replace(
        pair, original=_side(pair.original, target), rewritten=_side(pair.rewritten, target)
    )


def _side(side: Side, target: Target) -> Side:
    """A side for another target, whose own file is read if it has no text yet."""
    texts = side.texts
    path = os.path.realpath(target.file) if target.file is not None else None
    if path is not None and path not in dict(texts):
        text = Path(path).read_bytes().decode("utf-8", "replace")
        texts = (*texts, (path, text))
    return Side(target, texts)


def _made_otherwise(pair: Pair) -> str | None:
    """A class of which the constructor is rewritten: what the original held is not all it needs."""
    before, after = (dict(side.texts) for side in (pair.original, pair.rewritten))
    for path, text in before.items():
        if text != after[path]:
            old, new = _constructors(text), _constructors(after[path])
            for name in {*old, *new}:
                if old.get(name) != new.get(name):
                    return name
    return None


def _constructors(text: str) -> dict[str, str]:
    return {
        node.name: ast.dump(item)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.name == "__init__"
    }
