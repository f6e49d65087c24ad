"""Drops the question whether a mask selects anything, where nothing happens if it does not.

`if mask.any(): x[mask] = 0` spares work in eager, and ends the graph. With nothing selected the body
changes nothing, so the compiled path runs it without asking. The eager path still asks.

Before:

    def forward(self, scores: torch.Tensor):
        scores = scores * 2
        low = scores < -1
        if low.any():
            scores[low] = -1.0
        return scores

After:

    def forward(self, scores: torch.Tensor):
        scores = scores * 2
        low = scores < -1
        if torch.compiler.is_compiling() or low.any():
            scores[low] = -1.0
        return scores

Offered where every statement of the body writes to what the mask selects, or takes a name through
`torch.where` or `masked_fill` with that mask. Where the body selects rows itself, `masked_update`
treats it together with the test.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.dynamic import operands, operation_name
from gbfix.analysis.effects import effects
from gbfix.analysis.emptiness import emptiness
from gbfix.analysis.sites import BreakSite
from gbfix.analysis.values import Kind
from gbfix.codegen.guards import compiling
from gbfix.diagnoses import TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.selection import root_of
from gbfix.source.text import Edit

_NUMBER = Kind.STATIC | Kind.SCALAR
_REASON = "with nothing selected the body changes nothing"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to run the body of a branch without asking.

    Raises:
        Refused: where the body may do something although nothing is selected.
    """
    node = site.node
    asked = emptiness(node.test, context.analysis) if isinstance(node, ast.If) else None
    if asked is None or not isinstance(node, ast.If) or asked.counts or not asked.nonempty:
        raise NotApplicable("no-gate", "the branch does not ask whether a mask selects anything")
    if node.orelse:
        raise NotApplicable("no-gate", "the branch has another side")
    mask = asked.subject
    value = context.analysis.values.get(mask)
    if value is None or not value.tensor:
        raise NotApplicable("no-gate", "the branch asks something else than a mask")
    if not all(_keeps(s, mask, context) for s in node.body):
        raise NotApplicable("no-gate", "the body may do something although nothing is selected")
    found = effects(node.body, context.analysis, context.facts)
    if found.dynamic:
        raise Refused("dynamic-body", "the body selects rows, whose number depends on data")
    if found.random or found.unknown or found.output or found.partial or found.stateful:
        raise Refused("impure-arm", "the body does more than compute")
    torch, view = context.torch(node), context.view
    start, end = view.start(node.test), view.end(node.test)
    edits: tuple[Edit, ...] = (Edit(start, start, f"{compiling(torch)} or "),)
    if isinstance(node.test, (ast.IfExp, ast.Lambda, ast.NamedExpr)):
        edits = (Edit(start, start, f"{compiling(torch)} or ("), Edit(end, end, ")"))
    return Fix("empty_gate", Safety.SAFE, _REASON, edits, context.needs_torch)


def _keeps(statement: ast.stmt, mask: ast.expr, context: Context) -> bool:
    """Whether a statement changes nothing where the mask is false everywhere."""
    if isinstance(statement, ast.AugAssign):
        return _written(statement.target, mask)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        method = operation_name(call, context.analysis)
        return method == "masked_fill_" and _is_mask(operands(call, context.analysis)[1], mask)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    if isinstance(target, ast.Subscript):
        return _written(target, mask)
    return isinstance(target, ast.Name) and _same(statement.value, target.id, mask, context)


def _written(target: ast.expr, mask: ast.expr) -> bool:
    return isinstance(target, ast.Subscript) and _is_mask(target.slice, mask)


def _same(node: ast.expr, name: str, mask: ast.expr, context: Context) -> bool:
    """Whether an expression is the name's own value, of its dtype, where the mask is all false."""
    if not isinstance(node, ast.Call) or node.keywords:
        return False
    operation = operation_name(node, context.analysis)
    given = operands(node, context.analysis)
    if operation == "masked_fill" and len(given) == 3:
        return _is_name(given[0], name) and _is_mask(given[1], mask)
    if operation != "where" or len(given) != 3:
        return False
    if isinstance(node.func, ast.Attribute) and given[0] is node.func.value:
        given = [given[1], given[0], given[2]]  # x.where(mask, y)
    condition, chosen, kept = given
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Invert):
        condition, chosen, kept = condition.operand, kept, chosen
    before = context.analysis.values.get(kept)
    made = context.analysis.values.get(chosen)
    # Shapes must agree, or the result would be broadcast; dtypes, or it would be promoted.
    alike = (
        before is not None
        and made is not None
        and (made.only(_NUMBER) or (made.shape == before.shape and made.dtype == before.dtype))
    )
    return alike and _is_name(kept, name) and _is_mask(condition, mask)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_mask(node: ast.expr, mask: ast.expr) -> bool:
    """Whether an expression is the mask that was asked, written alike."""
    (root, inverted), (asked, asked_inverted) = root_of(node), root_of(mask)
    return inverted == asked_inverted and ast.unparse(root) == ast.unparse(asked)


TRANSFORM = Transform(
    name="empty_gate",
    codes=(TENSOR_BRANCH.code,),
    summary="drop a branch that only spares work when a mask selects nothing",
    doc=__doc__ or "",
    propose=propose,
    rank=6,
)
