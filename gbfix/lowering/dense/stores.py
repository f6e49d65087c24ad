"""Writes to selected rows, which become `torch.where`, and sums into them, which add zero elsewhere."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import operation_name
from gbfix.analysis.trees import walk
from gbfix.lowering.dense.forms import check_sides, copy_with, filled, known_shape
from gbfix.lowering.owned import is_own
from gbfix.lowering.routing import Index
from gbfix.lowering.selection import Lowered, Selection

if TYPE_CHECKING:
    from gbfix.lowering.dense.block import DenseBlock

_SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.Mod: "%",
    ast.FloorDiv: "//", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip


def store(block: DenseBlock, statement: ast.Assign, target: ast.Subscript, mask: ast.expr) -> None:
    block.storing = True
    value = block.lower(statement.value)
    block.storing = False
    if value.rows is None:
        if value.count is not None:
            raise Refused("count-leaves", "the number of selected rows is stored")
        if block.index(target.slice) is not None:
            _store_number(block, statement, target, value)
            return
        copy_with(block, statement, statement.value, value)
        block.bind(target)
        return
    if target.slice is not mask:
        raise Refused("mask-not-first", "the mask is one of several indices of what is written")
    selection = selection_of(block, mask, repeated=not value.weighted)
    if selection.key != value.rows.key:
        raise Refused("other-mask", "what is written was selected by another mask")
    put(block, target, selection, value, cast=False)


def put(
    block: DenseBlock, target: ast.Subscript, selection: Selection, value: Lowered, *, cast: bool
) -> None:
    base = replace(block.lower(target.value), shape=known_shape(block, target.value))
    if base.rows is not None or base.count is not None:
        raise Refused("nested-selection", "what is written to was itself selected")
    check_repeatable(block, target.value)
    extra = block.masks.extra(selection, target.value)
    if extra is not None and value.extra is not None and extra != value.extra:
        raise Refused("shapes-unproven", "what is written does not have the shape of the rows")
    extra = extra if extra is not None else value.extra
    wide = block.masks.over(selection, replace(base, extra=extra, sample=base.operand))
    arguments = [wide.text, value.text, base.text]
    name = target.value.id if isinstance(target.value, ast.Name) else None
    given = ", ".join(arguments)
    if name is not None and not cast and is_own(name, block.statement, block.context):
        block.lines.append(f"{name} = {block.torch}.where({given})")
    else:
        block.lines.append(f"{base.operand}.copy_({block.torch}.where({given}))")
    block.found.stores += 1
    block.bind(target)


def _store_number(
    block: DenseBlock, statement: ast.Assign, target: ast.Subscript, value: Lowered
) -> None:
    """A number that is stored at indices that were found is stored where their mask holds."""
    if not value.number:
        raise Refused("row-values", "the rows get values that are not one number")
    selection = selection_of(block, target.slice, repeated=True)
    base = block.lower(target.value)
    if base.rows is not None or base.count is not None:
        raise Refused("nested-selection", "what is written to was itself selected")
    block.lines.append(f"{base.operand}[{selection.text}] = {value.text}")
    block.found.stores += 1
    block.bind(target)


def selection_of(block: DenseBlock, mask: ast.expr, *, repeated: bool = False) -> Selection:
    """The selection of a mask, or of indices that are written to.

    `repeated` allows for rows that are found more than once: each time they get the same.

    Raises:
        Refused: where a row may have been found more than once.
    """
    index = block.index(mask)
    if index is None:
        return block.masks.select(mask)
    if index.slot or not (repeated or index.routed is None or block.pair_distinct):
        raise Refused("row-repeated", "a row may be found more than once, and written as often")
    return index.selection


def check_repeatable(block: DenseBlock, node: ast.expr) -> None:
    if any(isinstance(n, (ast.Call, ast.NamedExpr, ast.Await)) for n in walk(node)):
        raise Refused("impure-target", f"`{ast.unparse(node)}` would be evaluated twice")


def store_augmented(block: DenseBlock, statement: ast.AugAssign) -> None:
    target = statement.target
    symbol = _SYMBOLS.get(type(statement.op))
    if isinstance(target, ast.Name) and target.id in block.held:
        if symbol is None:
            raise Refused("operation-kind", f"`{ast.unparse(statement)}` has no dense form")
        held = block.held[target.id]
        value = block.lower(statement.value, fill=1)
        check_sides(block, held, value, statement.value)
        block.lines.append(f"{target.id} = {target.id} {symbol} {value.operand}")
        return
    selected = block.selected_by(_loaded(target)) if isinstance(target, ast.Subscript) else None
    if (
        selected is None
        and isinstance(target, ast.Subscript)
        and block.index(target.slice) is not None
    ):
        selected = target.slice
    if selected is None or not isinstance(target, ast.Subscript):
        check_place(block, target)
        value = block.lower(statement.value)
        if value.rows is not None or value.count is not None:
            raise Refused("rows-leave", "selected rows are added to something else")
        copy_with(block, statement, statement.value, value)
        block.bind(target)
        return
    if target.slice is not selected or symbol is None:
        raise Refused("mask-not-first", "the mask is one of several indices of what is written")
    selection = selection_of(block, selected)
    old = block.lower(target.value)
    if old.rows is not None:
        raise Refused("nested-selection", "what is written to was itself selected")
    extra = block.masks.extra(selection, target.value)
    mine = Lowered(
        old.text,
        old.bare,
        selection,
        extra,
        old.operand,
        known_shape(block, target.value),
        changed=True,
    )
    bounded = isinstance(statement.op, (ast.Add, ast.Sub))
    value = block.lower(statement.value, fill=None if bounded else 1)
    check_sides(block, mine, value, statement.value)
    risky = isinstance(statement.op, (ast.Pow, ast.Mod, ast.FloorDiv)) or (
        value.rows is not None and isinstance(statement.op, ast.Mult)
    )
    left = filled(block, mine, 1).operand if risky else mine.operand
    extra = mine.extra if mine.extra is not None else value.extra
    text = f"{left} {symbol} {value.operand}"
    made = replace(mine, text=text, bare=False, extra=extra)
    put(block, target, selection, made, cast=value.rows is not None)


def check_place(block: DenseBlock, target: ast.expr) -> None:
    """Where something is written must not be what was selected: a filler would be a place, too.

    Raises:
        Refused: where it is.
    """
    if isinstance(target, ast.Subscript) and block.mentions(target.slice):
        raise Refused("rows-as-index", f"`{ast.unparse(target)}` uses selected rows as an index")


def accumulate(block: DenseBlock, statement: ast.Expr, call: ast.Call) -> bool:
    """`out.index_add_(0, index[mask], rows)` and `scatter_add_`: what is not selected adds zero."""
    name = operation_name(call, block.context.analysis)
    if name not in {"index_add_", "scatter_add_"} or not isinstance(call.func, ast.Attribute):
        return False
    if len(call.args) != 3 or call.keywords:
        return False
    found = block.index(call.args[1])
    if found is not None:
        add_rows(block, call, found)
        return True
    index, source = block.lower(call.args[1], fill=0), block.lower(call.args[2])
    if index.rows is None and source.rows is None:
        return False
    if index.rows is None or source.rows is None or index.rows.key != source.rows.key:
        raise Refused("other-mask", "indices and values were not selected by one mask")
    if ast.unparse(call.args[0]) != "0" or index.extra not in {0, None}:
        raise Refused("row-shape", "only rows of the first dimension can be accumulated")
    if name == "scatter_add_" and (index.extra != 0 or source.extra != 0):
        raise Refused("row-shape", "only rows without dimensions of their own can be scattered")
    target = block.lower(call.func.value)
    if target.changed or block.mentions(call.func.value):
        raise Refused("nested-selection", "rows are accumulated into selected rows")
    source = filled(block, source, 0)
    places, added = index.text, source.text
    if index.rows.rank != 1:
        mask = index.rows.mask
        last = f"{mask}.dim() - 1" if index.rows.rank is None else str(index.rows.rank - 1)
        places, added = f"{places}.flatten()", f"{added}.flatten(0, {last})"
    block.lines.append(f"{target.operand}.{name}(0, {places}, {added})")
    block.found.stores += 1
    block.found.reordered = True
    block.bind(call.func.value)
    return True


def add_rows(block: DenseBlock, call: ast.Call, index: Index) -> None:
    """`out.index_add_(0, index, rows)`: rows that were not found add zero to themselves."""
    assert isinstance(call.func, ast.Attribute)
    target = block.lower(call.func.value)
    source = block.lower(call.args[2])
    if index.slot or ast.unparse(call.args[0]) != "0" or target.changed:
        raise Refused("row-shape", "only rows of the first dimension can be accumulated")
    if source.rows is None or source.rows.key != index.selection.key:
        raise Refused("other-mask", "indices and values were not selected by one mask")
    if index.routed is not None and not source.weighted and not block.pair_distinct:
        raise Refused("row-repeated", "a row without a weight may be added more than once")
    block.lines.append(f"{target.text} += {filled(block, source, 0).text}")
    block.found.stores += 1
    block.found.reordered = True
    block.bind(call.func.value)


def _loaded(target: ast.Subscript) -> ast.Subscript:
    """A target read as an expression, whose parts keep their recorded values."""
    made = ast.Subscript(target.value, target.slice, ast.Load())
    return ast.copy_location(made, target)
