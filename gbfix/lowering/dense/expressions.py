"""Expressions in dense form: arithmetic, comparisons and attributes of selected rows.

Dispatches by kind; subscripts are in `indexing`, calls in `calls`.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import operation_name
from gbfix.analysis.trees import children, walk
from gbfix.lowering.dense.calls import lower_call
from gbfix.lowering.dense.choices import chosen, is_chosen
from gbfix.lowering.dense.forms import (
    check_sides,
    compose,
    is_number,
    need_trailing,
    plain,
    resizes,
)
from gbfix.lowering.dense.indexing import lower_subscript
from gbfix.lowering.routing import found_rows
from gbfix.lowering.selection import Lowered

if TYPE_CHECKING:
    from gbfix.lowering.dense.block import DenseBlock


def lower(block: DenseBlock, node: ast.expr, fill: int | None = None) -> Lowered:
    """An expression in dense form; `fill` replaces what is not selected.

    Raises:
        Refused: where selected rows are used in a way that has no dense form.
    """
    if isinstance(node, ast.Name) and node.id in block.held:
        block.unread.discard(node.id)
        return block.held[node.id]
    if block.index(node) is not None or found_rows(node, block.context.analysis) is not None:
        raise Refused("index-leaves", f"`{ast.unparse(node)}` is used as more than an index")
    if isinstance(node, ast.Subscript):
        return lower_subscript(block, node, fill)
    if isinstance(node, ast.Call):
        return lower_call(block, node, fill)
    if isinstance(node, ast.BinOp):
        return lower_arithmetic(block, node, fill)
    if isinstance(node, ast.UnaryOp):
        inner = block.lower(node.operand, fill)
        if inner.rows is None and inner.count is None:
            return plain(block, node, [(node.operand, inner)])
        if isinstance(node.op, ast.Not) or inner.count is not None:
            raise Refused("rows-tested", f"`{ast.unparse(node)}` asks selected rows for truth")
        return replace(inner, text=compose(block, node, [(node.operand, inner)]), bare=False)
    if isinstance(node, ast.Compare):
        return lower_compare(block, node)
    if isinstance(node, ast.Attribute):
        return lower_attribute(block, node, fill)
    if isinstance(node, ast.IfExp) and block.mentions(node) and is_chosen(node, block.context):
        return chosen(block, node, node.body, node.orelse)
    below = [c for c in children(node) if isinstance(c, ast.expr)]
    if isinstance(node, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
        if block.mentions(node):
            raise Refused("rows-leave", f"`{ast.unparse(node)}` uses selected rows")
        return plain(block, node, [])
    asserted, block.found.asserted = block.found.asserted, False
    lowered = [(c, block.lower(c)) for c in below]
    if block.found.asserted and isinstance(node, (ast.IfExp, ast.BoolOp)):
        raise Refused("rows-leave", f"`{ast.unparse(node)}` may not come to what fails for no rows")
    block.found.asserted |= asserted
    if any(v.count is not None for _, v in lowered):
        raise Refused("count-leaves", "the number of selected rows leaves as a Python number")
    if any(v.rows is not None for _, v in lowered):
        raise Refused("rows-leave", f"`{ast.unparse(node)}` keeps or tests selected rows")
    return plain(block, node, lowered)


def lower_attribute(block: DenseBlock, node: ast.Attribute, fill: int | None) -> Lowered:
    inner = block.lower(node.value, fill)
    if inner.rows is None and inner.count is None:
        return plain(block, node, [(node.value, inner)])
    if node.attr in {"dtype", "device"}:
        return Lowered(f"{inner.operand}.{node.attr}", True, changed=True, number=True)
    raise Refused("rows-leave", f"`{ast.unparse(node)}` asks for more than values")


def lower_compare(block: DenseBlock, node: ast.Compare) -> Lowered:
    sides = [(n, block.lower(n)) for n in (node.left, *node.comparators)]
    held = [s for _, s in sides if s.rows is not None]
    if any(s.count is not None for _, s in sides):
        raise Refused("count-leaves", f"`{ast.unparse(node)}` tests the number of rows")
    if not held:
        return plain(block, node, sides)
    for part, side in sides:
        check_sides(block, held[0], side, part)
    resized = resizes(block, held[0], sides)
    return replace(held[0], text=compose(block, node, sides), bare=False, resized=resized)


def lower_arithmetic(block: DenseBlock, node: ast.BinOp, fill: int | None) -> Lowered:
    op = node.op
    held = block.mentions(node.right)
    number = is_number(block, node.right)
    bounded = isinstance(op, (ast.Add, ast.Sub)) or (
        isinstance(op, (ast.Mult, ast.Div)) and not held and number
    )
    # A product or quotient bounds the derivative of its left side if the right one is filled. What is
    # on the left is the derivative of a layer on the right, whose weights have no filler before them.
    layer = held and _calls_layer(block, node.right)
    left_bounded = bounded or (isinstance(op, (ast.Mult, ast.Div)) and held and not layer)
    left = block.lower(node.left, fill=fill if left_bounded else 1)
    right = block.lower(node.right, fill=fill if bounded else 1)
    if left.rows is None and right.rows is None:
        return lower_numbers(block, node, left, right)
    mine = left if left.rows is not None else right
    weighted = left.weighted or right.weighted
    if weighted and not (isinstance(op, ast.Mult) and not (left.weighted and right.weighted)):
        raise Refused("weights-used", f"`{ast.unparse(node)}` does more than weigh rows")
    if isinstance(op, ast.MatMult):
        if (
            right.rows is not None
            or (rank := block.masks.ranks.of(node.right)) is None
            or rank != 2
        ):
            raise Refused("not-row-wise", f"`{ast.unparse(node)}` may mix rows")
        need_trailing(block, mine)
    else:
        check_sides(block, mine, left, node.left)
        check_sides(block, mine, right, node.right)
    text = compose(block, node, [(node.left, left), (node.right, right)])
    known = [s.extra for s in (left, right) if s.rows is not None and s.extra is not None]
    extra = max(known) if weighted and known else known[0] if known else None
    resized = resizes(block, mine, [(node.left, left), (node.right, right)])
    return replace(mine, text=text, bare=False, extra=extra, weighted=weighted, resized=resized)


def _calls_layer(block: DenseBlock, node: ast.expr) -> bool:
    """Whether an expression calls something else than an operation of torch."""
    calls = (n for n in walk(node) if isinstance(n, ast.Call))
    return any(operation_name(call, block.context.analysis) is None for call in calls)


def lower_numbers(block: DenseBlock, node: ast.BinOp, left: Lowered, right: Lowered) -> Lowered:
    """Arithmetic without rows, which may use how many were selected."""
    operands = [(node.left, left), (node.right, right)]
    if left.count is None and right.count is None:
        return plain(block, node, operands)
    text = compose(block, node, operands)
    for part, side in operands:
        value = block.context.analysis.values.get(part)
        if side.count is None and value is not None and value.tensor:
            return Lowered(text, False, changed=True)  # a tensor all along
    for part, side in operands:
        if side.count is None and not (isinstance(part, ast.Constant) and type(part.value) is int):
            raise Refused("count-leaves", f"`{ast.unparse(node)}` makes a Python number")
    if isinstance(node.op, ast.Div):
        raise Refused("count-leaves", f"`{ast.unparse(node)}` makes a Python number")
    return Lowered(text, False, count=left.count or right.count, changed=True)
