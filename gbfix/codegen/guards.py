"""The header under which a compiled path stands: `if torch.compiler.is_compiling() and ...:`.

Knows how static guards are spelled, nothing of what stands below them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.conditions import Guard
from gbfix.codegen.expressions import flat
from gbfix.codegen.view import View

_LOOSE = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr)
_OPPOSITE: dict[type[ast.cmpop], str] = {
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Eq: "!=",
    ast.NotEq: "==",
}  # fmt: skip


def guard_text(view: View, guard: Guard) -> str:
    """A static operand with the truth it must have, as an operand of `and`."""
    node, truth = guard.node, guard.truth
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node, truth = node.operand, not truth
    text = flat(view, node)
    if isinstance(node, ast.Call) and not hasattr(node, "lineno"):  # not in the source as a whole
        text = f"{ast.unparse(node.func)}({', '.join(flat(view, a) for a in node.args)})"
    if truth:
        conjunction = isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)
        return f"({text})" if isinstance(node, _LOOSE) and not conjunction else text
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        symbol = _OPPOSITE.get(type(node.ops[0]))
        if symbol is not None:
            return f"{flat(view, node.left)} {symbol} {flat(view, node.comparators[0])}"
    return f"not ({text})" if isinstance(node, _LOOSE) else f"not {text}"


def compiling(torch: str) -> str:
    """The expression that is true while `torch.compile` traces."""
    return f"{torch}.compiler.is_compiling()"


def operands(view: View, torch: str, guards: Sequence[Guard]) -> list[str]:
    """The operands of a header for a compiled path."""
    return [compiling(torch), *(guard_text(view, g) for g in guards)]
