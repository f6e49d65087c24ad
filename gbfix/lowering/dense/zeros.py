"""Selected rows whose one fill with zeros serves all that is done with them.

An operation that gives zero for zero, with a bounded derivative there, needs no harmless value of its
own inside of a sum; rows that are only reduced need none before. Knows operations and uses of names,
nothing of reductions.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from gbfix.analysis.dynamic import operands, operation_name
from gbfix.analysis.trees import walk
from gbfix.lowering.dense.forms import compose, compose_call, filled
from gbfix.lowering.selection import Lowered
from gbfix.lowering.views import block_of

if TYPE_CHECKING:
    from gbfix.lowering.dense.block import DenseBlock

_KEEPING = frozenset("abs square relu sin tanh expm1 log1p".split())
_REDUCING = frozenset("sum nansum mean prod any all max min amax amin numel count_nonzero".split())
_PLAIN = (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)


def zero_filled(block: DenseBlock, node: ast.expr) -> Lowered | None:
    """`x[mask].abs()` as `x.masked_fill(~mask, 0).abs()`; None for what may not be zero for zero."""
    inner = _operand(block, node)
    if inner is None:
        return None
    value = zero_filled(block, inner)
    if value is None:
        if not _holds_rows(block, inner):
            return None
        value = block.lower(inner)
        if value.rows is None or value.weighted:
            return None
        value = filled(block, value, 0)
    children = [(inner, value)]
    if isinstance(node, ast.Call):
        text = compose_call(block, node, children)
        return replace(value, text=text, bare=True, zero=text)
    text = compose(block, node, children)
    return replace(value, text=text, bare=False, zero=text)


def _operand(block: DenseBlock, node: ast.expr) -> ast.expr | None:
    """What an operation is done with that gives zero for zero."""
    if isinstance(node, ast.BinOp):
        return node.left if isinstance(node.op, ast.Pow) and _is_power(node.right) else None
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    name = operation_name(node, block.context.analysis)
    given = operands(node, block.context.analysis)
    if name in _KEEPING and len(given) == 1:
        return given[0]
    return given[0] if name == "pow" and len(given) == 2 and _is_power(given[1]) else None


def _is_power(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 1


def _holds_rows(block: DenseBlock, node: ast.expr) -> bool:
    """Whether an expression is selected rows, or a difference or sum of such."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return _holds_rows(block, node.left) or _holds_rows(block, node.right)
    if isinstance(node, ast.Subscript):
        return block.selected_by(node) is not None
    return (
        isinstance(node, ast.Name)
        and node.id in block.held
        and block.held[node.id].rows is not None
    )


def only_reduced(block: DenseBlock, statement: ast.Assign, target: ast.expr) -> bool:
    """Whether rows are taken of a name that stays as it is while they are reduced, and nothing else."""
    value = statement.value
    if not isinstance(target, ast.Name) or not isinstance(value, ast.Subscript):
        return False
    if not isinstance(value.value, ast.Name) or block.selected_by(value) is None:
        return False
    names, used = {target.id, value.value.id}, False
    following = block_of(statement, block.context.info.module)
    for later in following[following.index(statement) + 1 :]:
        mentioned = [n for n in walk(later) if isinstance(n, ast.Name) and n.id in names]
        if not mentioned:
            continue
        if not isinstance(later, _PLAIN):
            return False
        loads = [n for n in mentioned if isinstance(n.ctx, ast.Load)]
        if not all(n.id == target.id and _is_reduced(n, block) for n in loads):
            return False
        used = used or bool(loads)
        if len(loads) < len(mentioned):  # it is bound anew, and what follows is about that
            return used and not isinstance(later, ast.AugAssign)
    return used


def _is_reduced(name: ast.Name, block: DenseBlock) -> bool:
    """Whether all elements of a name's rows are reduced at once where it is read."""
    parents = block.context.info.module.parents
    method = parents.get(name)
    call = parents.get(method) if method is not None else None
    return (
        isinstance(method, ast.Attribute)
        and method.attr in _REDUCING
        and isinstance(call, ast.Call)
        and call.func is method
        and not call.args
        and not call.keywords
    )
