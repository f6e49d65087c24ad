"""Transposed operands of an arm, which `torch.cond` takes in some forms alone (measured on 2.13).

`x.T` of a tensor from outside counts as an alias of it, `x.transpose(0, 1)` does not. The gradient of a
transposed tensor has transposed strides, and the backward pass of `torch.cond` fails where the other
arm gives the same tensor a gradient of other strides. Matrix products make theirs contiguous.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.lowering.aliases import own_names, shared_root

_VIEW_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "real", "imag"})
_TURNS = frozenset("t transpose permute swapaxes swapdims movedim moveaxis".split())
_ELEMENTWISE = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


def check_view_attributes(arm: Sequence[ast.AST], analysis: Analysis) -> None:
    """Refuse `x.T` of what an arm, statements or an expression, does not make itself before.

    Raises:
        Refused: naming it.
    """
    for node, own in _with_own(arm, analysis):
        if isinstance(node, ast.Attribute) and node.attr in _VIEW_ATTRIBUTES:
            base = analysis.values.get(node.value)
            if base is not None and base.may_be_tensor and shared_root(node.value, analysis, own):
                raise Refused(
                    "view-attribute",
                    f"`{ast.unparse(node)}` in an arm counts as an alias to `torch.cond`; "
                    "`transpose` does not",
                )


def check_turned(arms: Sequence[Sequence[ast.AST]], analysis: Analysis) -> None:
    """Refuse a tensor from outside that one arm alone transposes and computes with by elements.

    Raises:
        Refused: naming it.
    """
    turned = [dict(_turned(arm, analysis)) for arm in arms]
    for one, other in ((turned[0], turned[1]), (turned[1], turned[0])):
        for text in one:
            if text not in other:
                raise Refused(
                    "different-strides",
                    f"the gradient through `{text}` has other strides than that of the other arm",
                )


def _turned(arm: Sequence[ast.AST], analysis: Analysis) -> Iterator[tuple[str, ast.Call]]:
    parents = analysis.info.module.parents
    for node, own in _with_own(arm, analysis):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        base = analysis.values.get(node.func.value)
        if node.func.attr not in _TURNS or base is None or not base.tensor:
            continue
        if base.integer or base.boolean or not shared_root(node.func.value, analysis, own):
            continue
        parent = parents.get(node)
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, _ELEMENTWISE):
            yield ast.unparse(node), node


def _with_own(
    arm: Sequence[ast.AST], analysis: Analysis
) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """Every node with the names that the arm has made from new storage before it."""
    own = own_names([n for n in arm if isinstance(n, ast.stmt)], analysis)
    bound: dict[str, int] = {}
    nodes = [n for part in arm for n in walk(part)]
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] = min(bound.get(node.id, node.lineno), node.lineno)
    for node in nodes:
        if isinstance(node, ast.expr):
            line = node.lineno
            yield node, frozenset(n for n in own if bound.get(n, line) < line)
