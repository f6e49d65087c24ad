"""Counts of distinct elements that are only asked to be one: `len(torch.unique(x)) > 1`.

All elements are the same where each equals the one before it, which nothing has to be sorted or
counted for. Knows such comparisons, nothing of what depends on them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.dynamic import operands, operation_name
from gbfix.analysis.flow import Analysis

_SEVERAL = frozenset({(ast.Gt, 1), (ast.GtE, 2)})
_ONE_AT_MOST = frozenset({(ast.LtE, 1), (ast.Lt, 2)})


@dataclass(frozen=True)
class Distinct:
    """A comparison that asks whether elements are all the same.

    Attributes:
        tensor: the elements.
        alike: whether the comparison is true where they are.
        some: whether it asks for at least one element, too.
    """

    tensor: ast.expr
    alike: bool
    some: bool


def distinct(test: ast.expr, analysis: Analysis) -> Distinct | None:
    """What a comparison of a count of distinct elements asks; None for anything else."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    limit = test.comparators[0]
    tensor = _counted(test.left, analysis)
    if tensor is None or not isinstance(limit, ast.Constant) or type(limit.value) is not int:
        return None
    asked = (type(test.ops[0]), limit.value)
    if asked in _SEVERAL or asked in _ONE_AT_MOST:
        return Distinct(tensor, asked in _ONE_AT_MOST, some=False)
    if asked in {(ast.Eq, 1), (ast.NotEq, 1)}:
        return Distinct(tensor, asked == (ast.Eq, 1), some=True)
    return None


def _counted(node: ast.expr, analysis: Analysis) -> ast.expr | None:
    """The elements whose distinct ones are counted: by `len`, `numel`, `shape[0]` or `size(0)`."""
    inner: ast.expr | None = None
    if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "0":
        shape = node.value
        inner = shape.value if isinstance(shape, ast.Attribute) and shape.attr == "shape" else None
    elif isinstance(node, ast.Call) and not node.keywords:
        arguments = [ast.unparse(a) for a in node.args]
        if isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
            inner = node.args[0]
        elif isinstance(node.func, ast.Attribute):
            if (node.func.attr, arguments) in [("numel", []), ("size", ["0"])]:
                inner = node.func.value
    if not isinstance(inner, ast.Call) or inner.keywords:
        return None
    given = operands(inner, analysis)
    named = operation_name(inner, analysis) in {"unique", "unique_consecutive"}
    return given[0] if named and len(given) == 1 else None
