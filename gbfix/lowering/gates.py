"""Branches that only spare work when nothing is selected: `if mask.any(): x[mask] = ...`.

With nothing selected the body does nothing, so the compiled path runs it without asking. Knows what
is a no-op on an empty selection, nothing of where the compiled path goes.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import selected_by
from gbfix.analysis.emptiness import emptiness
from gbfix.fixes import Context
from gbfix.lowering.aliases import check_not_changed_later
from gbfix.lowering.dense.block import DenseBlock
from gbfix.lowering.dense.choices import added, asked_for
from gbfix.lowering.neutral import Neutral, unchanged


def is_gate(node: ast.If, context: Context) -> bool:
    """Whether an `if` asks whether something is selected, and has no other side."""
    asked = emptiness(node.test, context.analysis)
    return asked is not None and asked.nonempty and not node.orelse


def skips_rest(block: DenseBlock, node: ast.If, rest: list[ast.stmt]) -> None:
    """Pass `if empty: continue`, where the rest of the loop's body does nothing with nothing selected.

    Raises:
        Refused: where it does something, or the block is left in another way.
    """
    asked = emptiness(node.test, block.context.analysis)
    only = len(node.body) == 1 and isinstance(node.body[0], ast.Continue)
    if asked is None or asked.nonempty or node.orelse or not only or not rest:
        raise Refused("leaves-if-empty", f"line {node.lineno} leaves the block")
    key, live = asked_for(block, asked).key, block.context.liveness.after[rest[-1]]
    for statement in rest:
        check_nothing(block, statement, key, live)


def leaves_block(node: ast.If) -> bool:
    """Whether the body of an `if` ends by leaving the block."""
    return isinstance(node.body[-1], (ast.Return, ast.Continue, ast.Break, ast.Raise))


def add_gate(block: DenseBlock, node: ast.If) -> None:
    """Lower the body of a gate, without its test.

    Raises:
        Refused: where the body does something even if nothing is selected.
    """
    asked = emptiness(node.test, block.context.analysis)
    if asked is None or not asked.nonempty or node.orelse:
        raise Refused("statement-kind", f"line {node.lineno} branches on something else")
    key = asked_for(block, asked).key
    live = block.context.liveness.after[node]
    block.gate = key
    for statement in node.body:
        if added(statement, block) is not None:
            block.guarded, block.found.guarded = key, True
        else:
            check_nothing(block, statement, key, live)
        block.add(statement)
        block.guarded = None
    block.gate = None
    for name in [n for n in block.held if n not in live]:
        del block.held[name]


def nothing_unless_selected(block: DenseBlock, statement: ast.stmt, live: frozenset[str]) -> None:
    """Refuse a statement of a loop that does something whatever is selected in it.

    Raises:
        Refused: unless it binds what nothing reads later, or changes selected rows.
    """
    for index in block.indices.values():
        check_nothing(block, statement, index.selection.key, live)
        return
    check_nothing(block, statement, "", live)


def check_nothing(block: DenseBlock, statement: ast.stmt, key: str, live: frozenset[str]) -> None:
    """Refuse a statement that has an effect although nothing is selected."""
    target: ast.expr | None = None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Tuple) and all(
            isinstance(e, ast.Name) and e.id not in live for e in target.elts
        ):
            return
    elif isinstance(statement, ast.AugAssign):
        target = statement.target
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        attribute = statement.value.func
        if isinstance(attribute, ast.Attribute) and attribute.attr in {
            "index_add_",
            "scatter_add_",
        }:
            return  # `dense` refuses it unless what is added was selected
    if isinstance(target, ast.Name) and target.id not in live:
        return
    if isinstance(target, ast.Subscript):
        index = block.indices.get(ast.unparse(target.slice))
        if index is not None and index.selection.key == key:
            return
        mask = selected_by(target, block.context.analysis)
        if mask is not None and target.slice is mask and block.masks.select(mask).key == key:
            return
    if isinstance(statement, ast.Assign) and isinstance(target, ast.Name) and key:
        if unchanged(statement.value, target.id, Neutral(key, boolean=True, nothing=True)):
            # The name then holds a copy of what it would hold.
            place, context = (statement, statement), block.context
            names = [target.id]
            check_not_changed_later(names, names, place, context.analysis, context.facts)
            return
    raise Refused(
        "gate-has-effect",
        f"line {statement.lineno} does something even if nothing is selected",
    )
