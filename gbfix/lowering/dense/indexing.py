"""Subscripts in dense form: rows a mask selects, rows that indices take, parts of rows."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.codegen.expressions import flat
from gbfix.lowering.dense.counts import number_found
from gbfix.lowering.dense.forms import (
    compose,
    filled,
    has_one_dimension,
    is_there_before,
    known_shape,
    plain,
)
from gbfix.lowering.routing import first_match, row_index
from gbfix.lowering.selection import Lowered, Selection

if TYPE_CHECKING:
    from gbfix.lowering.dense.block import DenseBlock


def lower_subscript(block: DenseBlock, node: ast.Subscript, fill: int | None) -> Lowered:
    mask = block.selected_by(node)
    first = first_match(node, block.context.analysis)
    if first is not None:
        return first_found(block, *first)
    if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        found = number_found(block, node.value.value)
        if found is not None and ast.unparse(node.slice) == "0":
            return found
        inner = block.lower(node.value.value)
        if inner.rows is not None:
            if not (isinstance(node.slice, ast.Constant) and node.slice.value == 0):
                raise Refused("row-shape", f"`{ast.unparse(node)}` asks for the shape of rows")
            return Lowered(inner.rows.count, True, count=inner.rows, changed=True)
    base = block.lower(node.value)
    if mask is None:
        gathered = rows_taken(block, node, base)
        if gathered is None:
            return picked(block, node, base)
        # Weights are zero where nothing is selected.
        return gathered if fill is None or gathered.weighted else filled(block, gathered, fill)
    if base.rows is not None or base.count is not None:
        raise Refused("nested-selection", "rows are selected from what was itself selected")
    if node.slice is not mask:
        found = parts_of_rows(block, node, base, mask)
        return found if fill is None else filled(block, found, fill)
    selection = block.masks.select(mask)
    found = all_rows(
        block, base, node.value, selection, named=fill is not None or not block.storing
    )
    return found if fill is None else filled(block, found, fill)


def parts_of_rows(block: DenseBlock, node: ast.Subscript, base: Lowered, mask: ast.expr) -> Lowered:
    """`x[mask, :2]`, the rows of `x[:, :2]` for a mask of one dimension."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    rest = parts[1:]
    if not parts or parts[0] is not mask or not all(isinstance(p, ast.Slice) for p in rest):
        raise Refused("mask-not-first", "the mask is one of several indices")
    if any(block.mentions(part) for part in rest):
        raise Refused("rows-as-index", f"`{ast.unparse(node)}` uses selected rows as an index")
    selection = block.masks.select(mask)
    rank = selection.rank
    if rank is None:
        if not has_one_dimension(block, selection):
            raise Refused(
                "mask-not-first", "the mask is one of several indices, with any dimensions"
            )
        rank = 1
    extra = block.masks.extra(selection, node.value)
    if extra is None:
        if not is_there_before(block, base.text):
            raise Refused("mask-not-first", "the mask is one of several indices")
        block.masks.require(f"{base.text}.dim() == {rank + len(rest)}")
        extra = len(rest)
    indices = ", ".join([*[":"] * rank, *(flat(block.context.view, p) for p in rest)])
    text = f"{base.operand}[{indices}]"
    return Lowered(text, True, selection, extra, base.operand, changed=True)


def first_found(block: DenseBlock, mask: ast.expr, kept: bool) -> Lowered:
    """The first true element of a mask; there must be one."""
    index = row_index(mask, block.masks, block.context, computed=False)
    text = index.selection.text
    text = f"({text})" if index.selection.inverted else text
    block.lines.append(f'{block.torch}._assert_async({text}.any(), "no element was found")')
    block.found.asserted = True
    block.found.reductions += 1
    options = "0, keepdim=True" if kept else ""
    return Lowered(f"{text}.int().argmax({options})", True, changed=True)


def all_rows(
    block: DenseBlock, base: Lowered, node: ast.expr, selection: Selection, *, named: bool
) -> Lowered:
    """All rows of what a selection is made from."""
    extra = block.masks.extra(selection, node)
    if named and extra is None and not isinstance(node, (ast.Name, ast.Attribute)):
        name = block.context.names.take("values")
        block.lines.append(f"{name} = {base.text}")
        base = Lowered(name, True)
    return Lowered(
        base.text, base.bare, selection, extra, base.operand, known_shape(block, node), changed=True
    )


def rows_taken(block: DenseBlock, node: ast.Subscript, base: Lowered) -> Lowered | None:
    """Rows that are taken by the indices of a selection, or one weight for each of them."""
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    found = [i for p in parts if (i := block.index(p)) is not None]
    if not found:
        return None
    if base.rows is not None or base.count is not None:
        raise Refused("nested-selection", "rows are taken from what was itself selected")
    selection = found[0].selection
    if len(found) == 1 and block.index(parts[0]) is not None and not found[0].slot:
        if any(ast.unparse(p) not in {":", "slice(None, None, None)"} for p in parts[1:]):
            raise Refused("row-position", f"`{ast.unparse(node)}` takes parts of rows")
        rank = block.masks.ranks.of(node.value)
        extra = rank - 1 if rank is not None else None
        return Lowered(
            base.text,
            base.bare,
            selection,
            extra,
            base.operand,
            changed=True,
            routed=found[0].routed,
        )
    weights = found[:2]
    plain = parts[2:] in ([],) or [ast.unparse(p) for p in parts[2:]] == ["None"]
    if len(found) == 2 and weights[0].slot != weights[1].slot and plain:
        routed = found[0].routed
        aligned = routed if not weights[0].slot else f"{routed}.T"
        dim = "-1" if not weights[0].slot else "0"
        keep = len(parts) == 3
        kept = f"dim={dim}, keepdim=True" if keep and dim == "-1" else f"dim={dim}"
        text = f"{block.torch}.where({aligned}, {base.text}, 0).sum({kept})"
        if keep and dim == "0":
            text += ".unsqueeze(-1)"
        weight = block.context.names.take("weight")
        block.lines.append(f"{weight} = {text}")
        return Lowered(
            weight, True, selection, 1 if keep else 0, selection.mask, changed=True,
            routed=routed, weighted=True,
        )  # fmt: skip
    raise Refused("index-use", f"`{ast.unparse(node)}` uses found indices in another way")


def picked(block: DenseBlock, node: ast.Subscript, base: Lowered) -> Lowered:
    if base.count is not None or base.rows is None:
        index = block.lower(node.slice)
        if index.rows is not None or index.count is not None or base.count is not None:
            raise Refused("rows-as-index", f"`{ast.unparse(node)}` uses selected rows as an index")
        return plain(block, node, [(node.value, base), (node.slice, index)])
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if base.rows.rank == 1 and ast.unparse(node.slice) in {
        "(:, None)",
        "(slice(None, None, None), None)",
        ":, None",
    }:
        text = f"{base.operand}.unsqueeze(-1)"
        extra = None if base.extra is None else base.extra + 1
        if extra != 1:
            raise Refused("row-position", f"`{ast.unparse(node)}` picks rows by position")
        return replace(base, text=text, bare=True, extra=extra, sample=text)
    if ast.unparse(parts[0]) != "..." or base.extra is None:
        raise Refused("row-position", f"`{ast.unparse(node)}` picks rows by position")
    extra = base.extra
    for part in parts[1:]:
        value = block.context.analysis.values.get(part)
        if isinstance(part, ast.Constant) and part.value is None:
            extra += 1
        elif value is not None and value.static and not isinstance(part, ast.Slice):
            extra -= 1
        elif not isinstance(part, ast.Slice):
            raise Refused("row-position", f"`{ast.unparse(node)}` picks rows by position")
    if extra < 0:
        raise Refused("row-position", f"`{ast.unparse(node)}` picks rows by position")
    text = compose(block, node, [(node.value, base)])
    return replace(base, text=text, bare=True, extra=extra, sample=text)
