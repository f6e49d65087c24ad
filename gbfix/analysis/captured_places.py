"""Places of tensors that compiling fails at where numbers of tensors are captured as symbols.

Among several indices, Dynamo takes no symbol for an integer, and it loses the start of a part that a
symbol moves where an index after it moves the start again: `x[i : i + 3, 1:]` (seen on torch 2.13).
One after the other, `x[i : i + 3][:, 1:]`, it takes them, and numbers of tensors that the graph is
given. No list has a place that is a symbol. Follows names within one function.
"""

from __future__ import annotations

import ast

from gbfix.analysis.flow import Analysis
from gbfix.analysis.reads import Read, is_computed
from gbfix.analysis.symbols import contains, derived
from gbfix.analysis.trees import of_kind
from gbfix.analysis.values import Kind


def failing_place(read: Read, analysis: Analysis) -> ast.Subscript | None:
    """A subscript that fails to compile where one read becomes a symbol."""
    if not is_computed(read.tensor, analysis) and not _taken_apart(read.tensor, analysis):
        return None
    names: set[str] | None = None
    for found in of_kind(analysis.info.node, ast.Subscript):
        base = analysis.values.get(found.value)
        if found in analysis.eager or base is None:
            continue
        is_list = base.only(Kind.OBJECT) and base.fields is None
        if not is_list and not (base.tensor and isinstance(found.slice, ast.Tuple)):
            continue
        if names is None:
            names = derived(read.node, analysis, through_tensors=False)
        if is_list and contains(found.slice, read.node, names):
            return found
        if not isinstance(found.slice, ast.Tuple):
            continue
        if _fails(found, found.slice.elts, read.node, names, analysis):
            return found
    return None


def _taken_apart(tensor: ast.expr, analysis: Analysis) -> bool:
    """Whether a name is one of several that are given at once: `top, left = place(x)`."""
    parents = analysis.info.module.parents
    for name in of_kind(analysis.info.node, ast.Name):
        several = parents.get(name)
        if not isinstance(tensor, ast.Name) or name.id != tensor.id:
            continue
        made = parents.get(several) if isinstance(several, ast.Tuple) else None
        if not isinstance(several, ast.Tuple) or not isinstance(made, ast.Assign):
            continue
        if several in made.targets:
            given = made.value
            if isinstance(given, ast.Tuple) and len(given.elts) == len(several.elts):
                given = given.elts[several.elts.index(name)]
            if is_computed(given, analysis):
                return True
    return False


def _fails(
    place: ast.Subscript,
    parts: list[ast.expr],
    read: ast.expr,
    names: set[str],
    analysis: Analysis,
) -> bool:
    stored = isinstance(place.ctx, ast.Store) and not isinstance(
        analysis.info.module.parents[place], ast.AugAssign
    )
    moved = False
    for part in parts:
        if moved and not stored and _moves(part):
            return True
        if isinstance(part, ast.Slice):
            moved = moved or (part.lower is not None and contains(part.lower, read, names))
            continue
        value = analysis.values.get(part)
        if (value is None or not value.tensor) and contains(part, read, names):
            return True
    return False


def _moves(part: ast.expr) -> bool:
    """Whether an index may start elsewhere than at the first element."""
    if isinstance(part, ast.Slice):
        return part.lower is not None and _moves(part.lower)
    return not (isinstance(part, ast.Constant) and (part.value is None or part.value in (0, ...)))
