"""Reductions that are taken only if something is selected: `x[mask].mean() if mask.any() else 0`.

Of nothing the dense sum is zero, and so is the mean if at least one is counted; where another number
was given, `torch.where` takes it. Knows tests of emptiness, zeros and which reductions can be chosen;
nothing of where the compiled path goes.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import operation_name
from gbfix.analysis.emptiness import Emptiness, emptiness
from gbfix.analysis.trees import walk
from gbfix.lowering.reductions import EXTREMES, LOSSES
from gbfix.lowering.selection import Lowered, Selection
from gbfix.lowering.views import block_of

if TYPE_CHECKING:
    from gbfix.fixes import Context
    from gbfix.lowering.dense.block import DenseBlock

_ADDED = frozenset({"sum", "nansum", "mean"}) | LOSSES
_REDUCTIONS = _ADDED | EXTREMES
_NO_DIMENSIONS = ("()", "[]")
_ZEROS = ("0", "0.0")


def is_choice(node: ast.If, context: Context) -> bool:
    """Whether an `if` gives a name, or returns, a reduction if something is selected, or a number.

    The other side may be the `return` that follows it.
    """
    given = _given(node, context)
    if given is None:
        return False
    body, otherwise = _values(given)
    return _sides(node.test, body, otherwise, context) is not None


def is_chosen(node: ast.IfExp, context: Context) -> bool:
    """Whether a conditional expression gives a reduction if something is selected, or a number."""
    return _sides(node.test, node.body, node.orelse, context) is not None


def add_choice(block: DenseBlock, node: ast.If) -> None:
    """Lower an `if` with two sides that give one value.

    Raises:
        Refused: where the choice has no dense form.
    """
    given = _given(node, block.context)
    assert given is not None
    body, otherwise = _values(given)
    if not node.orelse:
        block.passed = given[1]
    lowered = chosen(block, node, body, otherwise)
    view, (first, _) = block.context.view, given
    assert first.value is not None
    head = view.slice(view.start(first), view.start(first.value))
    block.lines.append(f"{head}{lowered.text}")
    if isinstance(first, ast.Assign):
        block.bind(first.targets[0])


def chosen(
    block: DenseBlock, place: ast.IfExp | ast.If, body: ast.expr, otherwise: ast.expr
) -> Lowered:
    """A reduction where something is selected, and a number where nothing is.

    Raises:
        Refused: for a reduction of other rows, or one that is not zero of nothing.
    """
    sides = _sides(place.test, body, otherwise, block.context)
    assert sides is not None
    asked, reduction, number = sides
    largest = operation_name(reduction, block.context.analysis) in EXTREMES
    selection = asked_for(block, asked)
    before, block.guarded = block.guarded, selection.key
    reductions = block.found.reductions
    lowered = block.lower(reduction)
    block.guarded = before
    if lowered.rows is not None or block.found.reductions == reductions:
        raise Refused("no-reduction", f"`{ast.unparse(reduction)}` reduces something else")
    block.found.guarded = True
    if _is_number(number) and not _meets_tensor(place, block):
        block.found.retyped = True
    if _is_zero(number, block.context) and not largest:
        return lowered
    other = block.context.view.text(number)
    held = f"({selection.text})" if selection.inverted else selection.mask
    return Lowered(
        f"{block.torch}.where({held}.any(), {lowered.text}, {other})", True, changed=True
    )


def added(statement: ast.stmt, block: DenseBlock) -> str | None:
    """The name that a statement adds a reduction to, perhaps times a number; None for others."""
    target: ast.expr
    if isinstance(statement, ast.AugAssign):
        target, value, op = statement.target, statement.value, statement.op
    elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
        target, value, op = statement.targets[0], statement.value.right, statement.value.op
        if len(statement.targets) > 1 or ast.unparse(statement.value.left) != ast.unparse(target):
            return None
    else:
        return None
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        numbers = [v for v in (value.left, value.right) if isinstance(v, ast.Constant)]
        rest = [v for v in (value.left, value.right) if not isinstance(v, ast.Constant)]
        value = rest[0] if len(rest) == 1 and type(numbers[0].value) in (int, float) else value
    if not isinstance(target, ast.Name) or not isinstance(op, ast.Add):
        return None
    name = operation_name(value, block.context.analysis) if isinstance(value, ast.Call) else None
    return target.id if name in _ADDED and block.mentions(value) else None


def asked_for(block: DenseBlock, asked: Emptiness) -> Selection:
    """The selection that a test asks about.

    Raises:
        Refused: where it asks about something else.
    """
    if asked.counts:
        index = block.indices.get(ast.unparse(asked.subject))
        if index is not None:
            return index.selection
        lowered = block.lower(asked.subject)
        if lowered.rows is None:
            raise Refused("other-mask", f"`{ast.unparse(asked.subject)}` is not what was selected")
        return lowered.rows
    value = block.context.analysis.values.get(asked.subject)
    if value is None or not value.may_be_tensor:
        raise Refused("mask-unproven", f"`{ast.unparse(asked.subject)}` is not known to be a mask")
    return block.masks.select(asked.subject)


def _sides(
    test: ast.expr, body: ast.expr, otherwise: ast.expr, context: Context
) -> tuple[Emptiness, ast.Call, ast.expr] | None:
    """What a test asks, the reduction that is taken if something is selected, and the number if not."""
    asked = emptiness(test, context.analysis)
    if asked is None:
        return None
    reduction, number = (body, otherwise) if asked.nonempty else (otherwise, body)
    if not isinstance(reduction, ast.Call) or not _is_single(number, context):
        return None
    known = operation_name(reduction, context.analysis) in _REDUCTIONS
    return (asked, reduction, number) if known else None


def _values(given: tuple[ast.Assign | ast.Return, ast.Assign | ast.Return]) -> list[ast.expr]:
    return [s.value for s in given if s.value is not None]


def _given(
    node: ast.If, context: Context
) -> tuple[ast.Assign | ast.Return, ast.Assign | ast.Return] | None:
    """The statements of both sides, if they bind the same name or return, and do nothing else."""
    other = node.orelse
    if not other and isinstance(node.body[-1], ast.Return):
        around = block_of(node, context.info.module)
        at = around.index(node) + 1
        other = [s for s in around[at : at + 1] if isinstance(s, ast.Return)]
    if len(node.body) != 1 or len(other) != 1:
        return None
    first, second = node.body[0], other[0]
    if isinstance(first, ast.Return) and isinstance(second, ast.Return):
        return (first, second) if first.value is not None and second.value is not None else None
    if not isinstance(first, ast.Assign) or not isinstance(second, ast.Assign):
        return None
    targets = [*first.targets, *second.targets]
    names = {t.id for t in targets if isinstance(t, ast.Name)}
    return (first, second) if len(targets) == 2 and len(names) == 1 else None


def _meets_tensor(place: ast.IfExp | ast.If, block: DenseBlock) -> bool:
    """Whether what a choice gives is only computed with, and each time with a tensor."""
    above: ast.AST | None = place
    if isinstance(place, ast.IfExp):
        above = block.context.info.module.parents.get(place)
    elif (given := _given(place, block.context)) is not None:
        above = given[0]
    if not isinstance(above, ast.Assign):
        return isinstance(place, ast.IfExp) and _computed_with(place, block)
    names = {t.id for t in above.targets if isinstance(t, ast.Name)}
    used = [n for n in walk(block.context.info.node) if isinstance(n, ast.Name) and n.id in names]
    loads = [n for n in used if isinstance(n.ctx, ast.Load)]
    return len(names) == len(above.targets) and all(_computed_with(n, block) for n in loads)


def _computed_with(node: ast.expr, block: DenseBlock) -> bool:
    """Whether a value is an operand of arithmetic that gives a tensor whatever it is."""
    analysis, parents = block.context.analysis, block.context.info.module.parents
    above = parents.get(node)
    while isinstance(above, ast.BinOp):
        other = analysis.values.get(above.left if above.right is node else above.right)
        if other is not None and other.tensor:
            return True
        node, above = above, parents.get(above)
    if isinstance(above, ast.AugAssign) and isinstance(above.target, ast.Name):
        held = analysis.before.get(above, {}).get(above.target.id)
        return held is not None and held.tensor
    return False


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is a number as it is written."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _is_single(node: ast.expr, context: Context) -> bool:
    """Whether an expression is a number, or a tensor without dimensions that is zero or times zero."""
    if _is_number(node):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        value = context.analysis.values.get(node.left)
        single = value is not None and value.tensor and value.zero_dim
        return single and _is_zero(node.right, context)
    return _is_zero(node, context)


def _is_zero(node: ast.expr, context: Context) -> bool:
    """Whether an expression is the number zero, or a tensor without dimensions that holds it."""
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float) and node.value == 0
    if not isinstance(node, ast.Call) or len(node.args) != 1:
        return False
    name = operation_name(node, context.analysis)
    known = {"zeros": _NO_DIMENSIONS, "tensor": _ZEROS}.get((name or "").removeprefix("new_"), ())
    return ast.unparse(node.args[0]) in known and all(
        k.arg in {"device", "dtype"} for k in node.keywords
    )
