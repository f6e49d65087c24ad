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

Offered where every statement of the body writes to what the mask selects, takes a name through
`torch.where` or `masked_fill` with that mask, or multiplies it with a boolean mask that is then true
everywhere. A name that is bound anew is a new tensor with the same values in the compiled path, also
where eager would hand on the old one; so nothing may change it in place later, and the mask must
have its shape. Where the body selects rows itself, `masked-update` treats it together with the test.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused, split
from gbfix.analysis.dynamic import operands, operation_name
from gbfix.analysis.effects import effects
from gbfix.analysis.emptiness import emptiness
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value
from gbfix.diagnoses import TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.aliases import check_not_changed_later
from gbfix.lowering.idle import idle
from gbfix.lowering.neutral import Neutral, is_true, rejects, unchanged
from gbfix.lowering.placement import compiled_test
from gbfix.lowering.selection import root_of

_NUMBER = Kind.STATIC | Kind.SCALAR
_REASON = "with nothing selected the body changes nothing"
_COPIED = "is a new tensor with the same values"
_LEAF = "a leaf that requires a gradient is refused also then"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to run the body of a branch without asking.

    Raises:
        Refused: where the body may do something although nothing is selected.
    """
    node = site.node
    if not isinstance(node, ast.If):
        raise NotApplicable("no-gate", "this is not a branch")
    if node.orelse:
        raise NotApplicable("no-gate", "the branch has another side")
    parts = split(node.test, context.analysis, context.facts)
    mask = _asked(node.test, context)
    found = idle(parts.predicate, context.analysis.values)
    masks = found.masks if found is not None and not found.truth else ()
    if mask is None and not masks:
        raise NotApplicable("no-gate", "the branch does not ask whether a mask selects anything")
    rebound, safety, reason = _checked(node, mask, masks, context)
    check_not_changed_later(rebound, rebound, (node, node), context.analysis, context.facts)
    done = effects(node.body, context.analysis, context.facts)
    if done.dynamic:
        raise Refused("dynamic-body", "the body selects rows, whose number depends on data")
    if done.random or done.unknown or done.output or done.partial or done.stateful:
        raise Refused("impure-arm", "the body does more than compute")
    torch = context.torch(node)
    edits = compiled_test(node, torch, parts.guards, context)
    return Fix("empty-gate", safety, reason, edits, context.needs_torch)


def _asked(test: ast.expr, context: Context) -> ast.expr | None:
    """The one mask of which a test asks whether it selects anything."""
    asked = emptiness(test, context.analysis)
    if asked is None or asked.counts or not asked.nonempty:
        return None
    value = context.analysis.values.get(asked.subject)
    return asked.subject if value is not None and value.tensor else None


def _checked(
    node: ast.If, mask: ast.expr | None, masks: Sequence[Neutral], context: Context
) -> tuple[list[str], Safety, str]:
    """The names that the body binds anew, how much is asked to trust, and why.

    Raises:
        NotApplicable: where a statement may do something although nothing is selected.
    """
    changed: set[str] = set()
    rebound: list[str] = []
    safety, reason = Safety.SAFE, _REASON
    for statement in node.body:
        known = [m for m in masks if not _is_of(m, changed)]
        target = _target(statement)
        same_mask = mask if mask is None or not _is_of(ast.unparse(mask), changed) else None
        if target is None or not (
            (same_mask is not None and _keeps(statement, same_mask, context))
            or any(_changes_nothing(statement, m) for m in known)
        ):
            raise NotApplicable("no-gate", "the body may do something although nothing is selected")
        before = context.analysis.before[statement].get(target)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            _check_shape(statement, target, before, context)
            rebound.append(target)
            safety, reason = min(safety, Safety.REVIEW), f"{_REASON}; `{target}` {_COPIED}"
        elif target not in rebound and (before is None or not before.unshared):
            safety, reason = min(safety, Safety.REVIEW), f"{_REASON}; {_LEAF}"
        changed.add(target)
    return rebound, safety, reason


def _check_shape(
    statement: ast.Assign, target: str, before: Value | None, context: Context
) -> None:
    """A mask with more dimensions would give the result its own shape."""
    if before is None or not before.tensor:
        raise NotApplicable("no-gate", f"`{target}` is not known to be a tensor")
    values = context.analysis.values
    inner = [values[n] for n in walk(statement.value) if n in values]
    masks = [v for v in inner if v.boolean]
    if not masks or not all(v.shape == before.shape or v.zero_dim for v in masks):
        raise NotApplicable("no-gate", f"the mask may not have the shape of `{target}`")


def _target(statement: ast.stmt) -> str | None:
    """The name that a statement changes, in place or by binding it anew."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return _root(statement.targets[0])
    if isinstance(statement, ast.AugAssign):
        return _root(statement.target)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return _root(statement.value.func)
    return None


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_of(mask: Neutral | str, names: set[str]) -> bool:
    """Whether a mask is made of one of some names, which have changed since it was tested."""
    tree = ast.parse(mask if isinstance(mask, str) else mask.name, mode="eval")
    return any(isinstance(n, ast.Name) and n.id in names for n in walk(tree))


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


def _changes_nothing(statement: ast.stmt, mask: Neutral) -> bool:
    if isinstance(statement, ast.Assign):
        (target,) = statement.targets
        if isinstance(target, ast.Name):
            return unchanged(statement.value, target.id, mask)
        return (
            isinstance(target, ast.Subscript)
            and isinstance(target.value, ast.Name)
            and rejects(target.slice, mask)
            and _is_number(statement.value)
        )
    if isinstance(statement, ast.AugAssign):
        multiplies = isinstance(statement.op, ast.Mult) and isinstance(statement.target, ast.Name)
        return multiplies and is_true(statement.value, mask)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.attr == "masked_fill_"
        and len(call.args) == 2
        and not call.keywords
        and rejects(call.args[0], mask)
    )


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    if isinstance(node, ast.Call):
        return ast.unparse(node) in {"float('inf')", "float('nan')", "float('-inf')"}
    return isinstance(node, ast.Constant) and type(node.value) in (int, float, bool)


TRANSFORM = Transform(
    name="empty-gate",
    codes=(TENSOR_BRANCH.code,),
    summary="drop a branch that only spares work when a mask selects nothing",
    doc=__doc__ or "",
    propose=propose,
    rank=6,
)
