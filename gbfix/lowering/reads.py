"""`.item()` in arithmetic with a tensor: the tensor itself does as well, and stays in the graph.

`x + y.item()` and `x + y.detach()` give the same where `y` has one element: torch treats a tensor of
shape `[]` like a Python number when it promotes dtypes, and neither passes a gradient on. Knows
expressions, nothing of branches.
"""

from __future__ import annotations

import ast

from gbfix.analysis.flow import Analysis

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)


def spared_read(node: ast.AST, analysis: Analysis) -> ast.expr | None:
    """The tensor that can stand in for a scalar read, or None if the read is needed."""
    if not isinstance(node, ast.Call) or node.args or node.keywords:
        return None
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "item":
        return None
    inner = node.func.value
    parent = analysis.info.module.parents.get(node)
    if not isinstance(parent, ast.BinOp) or not isinstance(parent.op, _ARITHMETIC):
        return None
    other = parent.right if parent.left is node else parent.left
    known, partner = analysis.values.get(inner), analysis.values.get(other)
    if known is None or not known.tensor or partner is None or not partner.tensor:
        return None
    return inner if isinstance(inner, (ast.Name, ast.Attribute)) else None
