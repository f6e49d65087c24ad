"""Statements in dense form: what they bind is followed, what they select is kept as all rows."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import selected_by
from gbfix.analysis.trees import of_kind, walk
from gbfix.codegen.expressions import operand
from gbfix.codegen.names import used_names
from gbfix.lowering.dense.forms import copy_with
from gbfix.lowering.dense.stores import accumulate, check_place, store, store_augmented
from gbfix.lowering.dense.zeros import only_reduced
from gbfix.lowering.routing import (
    distinct_rows,
    found_in,
    found_rows,
    pair_index,
    row_index,
)

if TYPE_CHECKING:
    from gbfix.lowering.dense.block import DenseBlock


def add(block: DenseBlock, statement: ast.stmt) -> None:
    """Lower one statement.

    Raises:
        Refused: where it does something with selected rows that has no dense form.
    """
    block.statement = statement
    for node in walk(statement):
        if isinstance(node, ast.Subscript) and selected_by(node, block.context.analysis):
            block.known.add(ast.unparse(node.slice))
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        assign(block, statement, statement.targets[0])
    elif isinstance(statement, ast.AugAssign):
        store_augmented(block, statement)
    elif isinstance(statement, (ast.Return, ast.Expr, ast.AnnAssign)) and statement.value:
        copy_plain(block, statement, statement.value)
    else:
        raise Refused("statement-kind", f"line {statement.lineno} is not a plain statement")


def finds(block: DenseBlock, target: ast.expr, value: ast.expr) -> bool:
    """Whether a statement names the indices of what a mask selects."""
    analysis = block.context.analysis
    if isinstance(target, ast.Name):
        mask = found_rows(value, analysis)
        if mask is None:
            kept = found_in(value, analysis)
            return kept is not None and keeps_found(block, target.id, kept)
        block.indices[target.id] = row_index(mask, block.masks, block.context, bound=block.bound)
        return True
    if isinstance(target, ast.Tuple):
        mask = found_in(value, analysis)
        names = [e.id for e in target.elts if isinstance(e, ast.Name)]
        if mask is None or len(names) != len(target.elts):
            return False
        if len(names) == 1:
            block.indices[names[0]] = row_index(mask, block.masks, block.context, bound=block.bound)
            return True
        if len(names) == 2:
            block.pair_distinct = distinct_rows(mask, block.context)
            pair = (names[0], names[1])
            block.indices |= pair_index(pair, mask, block.masks, block.context, block.numbered)
            return True
    return False


def keeps_found(block: DenseBlock, name: str, mask: ast.expr) -> bool:
    """Whether a name for the indices of both dimensions of a mask is read in one of them alone.

    Raises:
        Refused: where the mask cannot be asked for its dimensions.
    """
    module, function = block.context.info.module, block.context.info.node
    uses = [n for n in of_kind(function, ast.Name) if n.id == name]
    reads = [n for n in uses if isinstance(n.ctx, ast.Load)]
    taken = {
        ast.unparse(above.slice) if isinstance(above, ast.Subscript) and above.value is n else ""
        for n in reads
        if (above := module.parents[n]) is not None
    }
    if len(uses) != len(reads) + 1 or len(taken) != 1 or not taken <= {"0", "1"}:
        return False
    place = taken.pop()
    read = f"{name}[{place}]"
    if block.masks.ranks.of(mask) != 2:
        again = not any(isinstance(n, (ast.Call, ast.NamedExpr)) for n in walk(mask))
        if not again or not used_names(mask).isdisjoint(block.bound):
            text = ast.unparse(mask)
            raise Refused("mask-shape", f"`{text}` is not proven to have two dimensions")
        block.masks.require(f"{operand(block.context.view, mask)}.dim() == 2")
    pair = (read, "") if place == "0" else ("", read)
    found = pair_index(pair, mask, block.masks, block.context, None, row=read)
    block.indices[read] = found[read]
    return True


def assign(block: DenseBlock, statement: ast.Assign, target: ast.expr) -> None:
    if finds(block, target, statement.value):
        return
    alias = block.index(statement.value)
    if alias is not None and isinstance(target, ast.Name):
        block.indices[target.id] = alias
        return
    if isinstance(target, ast.Subscript):
        selected = block.selected_by(target)
        if selected is not None or block.index(target.slice) is not None:
            store(block, statement, target, selected or target.slice)
            return
        check_place(block, target)
    reduced = only_reduced(block, statement, target)
    named = isinstance(target, ast.Name) and not reduced
    value = block.lower(statement.value, fill=1 if named else None)
    if value.rows is not None:
        if not isinstance(target, ast.Name):
            raise Refused("rows-leave", "selected rows are kept where they are not followed")
        block.unread.add(target.id)
        if reduced and value.bare:
            block.held[target.id] = replace(value, changed=True)
            return
        if value.weighted and block.lines[-1].startswith(f"{value.text} = "):
            block.lines[-1] = f"{target.id}{block.lines[-1].removeprefix(value.text)}"
        else:
            block.lines.append(f"{target.id} = {value.text}")
        block.bind(target)
        block.held[target.id] = replace(value, text=target.id, bare=True, changed=True)
        return
    if value.count is not None:
        if not isinstance(target, ast.Name):
            raise Refused("count-leaves", "the number of selected rows is kept elsewhere")
        block.lines.append(f"{target.id} = {value.text}")
        block.bind(target)
        block.held[target.id] = replace(value, text=target.id, bare=True, changed=True)
        return
    copy_with(block, statement, statement.value, value)
    block.bind(target)


def copy_plain(block: DenseBlock, statement: ast.stmt, value: ast.expr) -> None:
    if isinstance(statement, ast.Expr) and isinstance(value, ast.Call):
        if accumulate(block, statement, value):
            return
    lowered = block.lower(value)
    if lowered.rows is not None:
        raise Refused("rows-leave", "selected rows leave the block")
    if lowered.count is not None:
        raise Refused("count-leaves", "the number of selected rows leaves as a Python number")
    copy_with(block, statement, value, lowered)
    if isinstance(statement, ast.AnnAssign):
        block.bind(statement.target)
