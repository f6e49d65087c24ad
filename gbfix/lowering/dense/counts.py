"""How many rows were selected, as a tensor: `len`, `size`, `shape[0]`, `numel`, `max(count, 1)`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.lowering.dense.forms import plain_call
from gbfix.lowering.reductions import counted
from gbfix.lowering.routing import counted_mask
from gbfix.lowering.selection import Lowered

if TYPE_CHECKING:
    from gbfix.lowering.dense.block import DenseBlock


def number_found(block: DenseBlock, node: ast.expr) -> Lowered | None:
    """How many indices an expression finds."""
    mask = counted_mask(node, block.context.analysis)
    if mask is None:
        return None
    selection = block.masks.select(mask)
    block.found.reductions += 1
    return Lowered(selection.count, True, count=selection, changed=True)


def counted_rows(
    block: DenseBlock, node: ast.Call, inner: Lowered, children: Sequence[tuple[ast.expr, Lowered]]
) -> Lowered:
    if inner.rows is None:
        return plain_call(block, node, children)
    return Lowered(inner.rows.count, True, count=inner.rows, changed=True)


def size(block: DenseBlock, node: ast.Call) -> Lowered | None:
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in {"size", "numel"}:
        return None
    index = block.index(node.func.value)
    if index is not None:
        return Lowered(index.selection.count, True, count=index.selection, changed=True)
    if [ast.unparse(a) for a in node.args] == ["0"]:
        found = number_found(block, node.func.value)
        if found is not None:
            return found
    inner = block.lower(node.func.value)
    if inner.rows is None:
        return None
    if node.func.attr == "size" and [ast.unparse(a) for a in node.args] == ["0"]:
        return Lowered(inner.rows.count, True, count=inner.rows, changed=True)
    if node.func.attr == "numel":
        wide = block.masks.over(inner.rows, inner)
        return Lowered(counted(inner, wide), True, count=inner.rows, changed=True)
    raise Refused("row-shape", f"`{ast.unparse(node)}` asks for more than the number of rows")


def at_least(block: DenseBlock, node: ast.Call) -> Lowered:
    """`max(count, 1)`."""
    sides = [(a, block.lower(a)) for a in node.args]
    counts = [s for _, s in sides if s.count is not None]
    if not counts:
        if any(s.rows is not None for _, s in sides):
            raise Refused("rows-leave", f"`{ast.unparse(node)}` compares selected rows")
        return plain_call(block, node, sides)
    other = next((a for a, s in sides if s.count is None), None)
    if not (isinstance(other, ast.Constant) and type(other.value) is int):
        raise Refused("count-leaves", f"`{ast.unparse(node)}` makes a Python number")
    return replace(counts[0], text=f"{counts[0].operand}.clamp(min={other.value})", bare=True)
