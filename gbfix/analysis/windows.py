"""Slices that start where a tensor says and whose length is known while tracing: `x[s : s + n]`.

Python cannot slice at a tensor without reading it; with a known length the same elements can be found
by index. Knows expressions and single definitions, nothing of what is done with the elements.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.conditions import Refused
from gbfix.analysis.definitions import Definitions
from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import Module
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind

_PURE = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp, ast.expr_context,
    ast.operator, ast.unaryop, ast.Tuple,
)  # fmt: skip
_SIZES = frozenset({"size", "item", "dim"})


@dataclass(frozen=True, eq=False)
class Window:
    """A slice of known length.

    Attributes:
        part: the slice.
        start: its lower bound.
        length: how long it is, an expression that tracing decides; an integer if it is literal.
    """

    part: ast.Slice
    start: ast.expr
    length: ast.expr | int


def window(part: ast.Slice, analysis: Analysis, definitions: Definitions) -> Window:
    """The window that a slice with a bound from data is.

    Raises:
        Refused: where its length is not known while tracing, or it has a step.
    """
    text = ast.unparse(part)
    if part.step is not None:
        raise Refused("slice-step", f"the slice `{text}` has a step")
    if part.lower is None or part.upper is None:
        raise Refused("slice-length", f"how long `{text}` is depends on tensor data")
    module = analysis.info.module
    lower, upper = part.lower, _expanded(part.upper, part, definitions, module)
    length = _between(lower, upper, analysis)
    if length is None:
        length = _between(_expanded(lower, part, definitions, module), upper, analysis)
    if length is None:
        before = _expanded(lower, part, definitions, module)
        length = _between(before, part.upper, analysis)
    if length is None:
        raise Refused("slice-length", f"`{text}` is not proven to be as long for all data")
    return Window(part, lower, length)


def _expanded(
    bound: ast.expr, part: ast.Slice, definitions: Definitions, module: Module
) -> ast.expr:
    """What a name that stands for a bound was computed from, if nothing has changed since."""
    if not isinstance(bound, ast.Name):
        return bound
    made = definitions.of(bound)
    if made is None or not definitions.holds(made.value, made):
        return bound
    statement: ast.AST = part
    while not isinstance(statement, ast.stmt):
        statement = module.parents[statement]
    parent = module.parents[made]
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and made in block and statement in block:
            between = block[block.index(made) + 1 : block.index(statement)]
            return bound if any(map(_changes, between)) else made.value
    return bound


def _changes(statement: ast.stmt) -> bool:
    """Whether a statement may change in place a tensor that a bound is a view of."""
    for node in walk(statement):
        if isinstance(node, ast.AugAssign):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name.endswith("_") and not name.endswith("__"):
                return True
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            # Another window, as a rule; a position that is written through an index is not one.
            if not any(isinstance(n, ast.Slice) for n in walk(node.slice)):
                return True
    return False


def _between(lower: ast.expr, upper: ast.expr, analysis: Analysis) -> ast.expr | int | None:
    """The difference of two bounds, where they say it."""
    for base, length in _sums(upper):
        if _same(base, lower) and _static(length, analysis):
            return length
    if isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Sub):
        if _same(lower.left, upper) and _static(lower.right, analysis):
            return lower.right
    for base, first in _sums(lower):
        for other, last in _sums(upper):
            if _same(base, other) and isinstance(first, ast.Constant):
                if isinstance(last, ast.Constant) and _ordered(first.value, last.value):
                    return int(last.value) - int(first.value)  # type: ignore[arg-type]
    return _chunk(lower, upper, analysis)


def _chunk(lower: ast.expr, upper: ast.expr, analysis: Analysis) -> ast.expr | None:
    """The size of `i * size : (i + 1) * size`."""
    for number, size in _products(lower):
        for following, other in _products(upper):
            if not _same(size, other) or not _static(size, analysis):
                continue
            for base, step in _sums(following):
                if _same(base, number) and isinstance(step, ast.Constant) and step.value == 1:
                    return size
    return None


def _sums(node: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [(node.left, node.right), (node.right, node.left)]
    return []


def _products(node: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [(node.left, node.right), (node.right, node.left)]
    return []


def _ordered(first: object, last: object) -> bool:
    return type(first) is int and type(last) is int and first < last


def _same(a: ast.expr, b: ast.expr) -> bool:
    return _repeatable(a) and ast.unparse(a) == ast.unparse(b)


def _repeatable(node: ast.expr) -> bool:
    """Whether an expression gives the same value again."""
    for inner in walk(node):
        if isinstance(inner, ast.Call):
            method = isinstance(inner.func, ast.Attribute) and inner.func.attr in _SIZES
            number = isinstance(inner.func, ast.Name) and inner.func.id == "int"
            if not (method or number) or inner.keywords:
                return False
        elif not isinstance(inner, _PURE):
            return False
    return True


def _static(node: ast.expr, analysis: Analysis) -> bool:
    value = analysis.values.get(node)
    return value is not None and value.only(Kind.STATIC) and _repeatable(node)
