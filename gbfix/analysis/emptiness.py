"""Tests of whether a selection is empty: `mask.any()`, `index.numel() > 0`, `not len(rows)`.

Reads a test as a question about one tensor expression. Knows syntax and values, nothing of what the
test decides.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.dynamic import operands, operation_name
from gbfix.analysis.flow import Analysis

_NONEMPTY = {("Gt", 0), ("NotEq", 0), ("GtE", 1)}
_EMPTY = {("Eq", 0), ("LtE", 0), ("Lt", 1)}


@dataclass(frozen=True)
class Emptiness:
    """A test that asks whether something is selected.

    Attributes:
        subject: a mask that is asked for true elements, or rows (or indices) that are counted.
        counts: the subject's rows are counted; otherwise its true elements.
        nonempty: the test is true where something is selected.
    """

    subject: ast.expr
    counts: bool
    nonempty: bool


def emptiness(test: ast.expr, analysis: Analysis) -> Emptiness | None:
    """What a test asks; None for a test that asks something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, (ast.Not, ast.Invert)):
        inner = emptiness(test.operand, analysis)
        return Emptiness(inner.subject, inner.counts, not inner.nonempty) if inner else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        right = test.comparators[0]
        if not (isinstance(right, ast.Constant) and type(right.value) is int):
            return None
        how = (type(test.ops[0]).__name__, right.value)
        counted = _count(test.left, analysis)
        if counted is None or how not in _NONEMPTY | _EMPTY:
            return None
        return Emptiness(counted[0], counted[1], how in _NONEMPTY)
    if isinstance(test, ast.Call):
        function = analysis.values.get(test.func)
        name = function.reference if function is not None else None
        if name == "builtins.bool" and len(test.args) == 1:
            return emptiness(test.args[0], analysis)
        if isinstance(test.func, ast.Attribute) and test.func.attr == "item" and not test.args:
            return emptiness(test.func.value, analysis)
        if operation_name(test, analysis) == "any" and not test.keywords:
            given = operands(test, analysis)
            return Emptiness(given[0], False, True) if len(given) == 1 else None
    counted = _count(test, analysis)
    return Emptiness(*counted, True) if counted is not None else None


def _count(node: ast.expr, analysis: Analysis) -> tuple[ast.expr, bool] | None:
    """What is counted: the subject, and whether its rows are counted or its true elements."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
        first = isinstance(node.slice, ast.Constant) and node.slice.value == 0
        return (node.value.value, True) if node.value.attr == "shape" and first else None
    if not isinstance(node, ast.Call):
        return None
    function = analysis.values.get(node.func)
    if function is not None and function.reference in {"builtins.len", "builtins.int"}:
        if len(node.args) != 1:
            return None
        if function.reference == "builtins.int":
            return _count(node.args[0], analysis)
        return node.args[0], True
    if isinstance(node.func, ast.Attribute) and not node.keywords:
        if node.func.attr == "item" and not node.args:
            return _count(node.func.value, analysis)
        if node.func.attr == "numel" and not node.args:
            return node.func.value, True
        if node.func.attr == "size" and [ast.unparse(a) for a in node.args] == ["0"]:
            return node.func.value, True
    if operation_name(node, analysis) in {"sum", "count_nonzero"} and not node.keywords:
        given = operands(node, analysis)
        return (given[0], False) if len(given) == 1 else None
    return None
