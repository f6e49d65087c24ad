"""Applies a masked correction without asking whether its mask selects anything.

`if invalid.any():` in front of a correction that only touches what `invalid` selects saves work where
nothing is. In a graph the test costs more than it saves. The compiled path always applies the
correction; without compiling, the test is made as before.

Before:

    def clean(x: torch.Tensor):
        invalid = x.isnan()
        if invalid.any():
            x = x.masked_fill(invalid, 0.0)
        return x * 2

After:

    def clean(x: torch.Tensor):
        invalid = x.isnan()
        if torch.compiler.is_compiling() or invalid.any():
            x = x.masked_fill(invalid, 0.0)
        return x * 2

Offered only where every statement of the correction is one that keeps each bit under a mask that
selects nothing: `masked_fill`, `where` with a filler made from what it fills, an assignment of a
number to what the mask selects, a product with a boolean mask that is all true. A result that was
the argument itself is a new tensor with the same values in the compiled path.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import NotApplicable, Refused, split
from gbfix.analysis.sites import BreakSite
from gbfix.diagnoses import TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.aliases import check_not_changed_later
from gbfix.lowering.idle import idle
from gbfix.lowering.neutral import Neutral, is_true, rejects, unchanged
from gbfix.lowering.placement import compiled_test

_REASON = "the correction keeps every value that its mask does not select, in a new tensor maybe"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to apply the correction always.

    Raises:
        Refused: where a statement is not proven to change nothing.
    """
    node = site.node
    if not isinstance(node, ast.If) or node.orelse:
        raise NotApplicable("no-shortcut", "this is not a correction")
    parts = split(node.test, context.analysis, context.facts)
    found = idle(parts.predicate, lambda e: is_boolean(e, context))
    if found is None or found.truth:
        raise NotApplicable(
            "no-neutral-mask", "the test does not ask whether there is anything to do"
        )
    changed: set[str] = set()
    rebound: list[str] = []
    for statement in node.body:
        masks = [m for m in found.masks if not _is_of(m, changed)]
        target = _target(statement)
        if target is None or not any(_changes_nothing(statement, mask) for mask in masks):
            raise NotApplicable(
                "values-unproven", f"`{ast.unparse(statement)}` is not proven to change nothing"
            )
        _check_target(statement, target, context, rebound)
        changed.add(target)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            rebound.append(target)
    check_not_changed_later(rebound, rebound, (node, node), context.analysis, context.facts)
    if any(_is_of(mask, {_root(n)}) for mask in found.masks for n in _stored_before(node)):
        raise Refused("no-neutral-mask", "the mask is changed in the test")
    torch = context.torch(node)
    edits = compiled_test(node, torch, parts.guards, context)
    return Fix("correction", Safety.REVIEW, _REASON, edits, context.needs_torch)


def _check_target(statement: ast.stmt, target: str, context: Context, rebound: list[str]) -> None:
    """A new value has the shape of the old one; what is changed in place is nobody else's.

    A mask with more dimensions would give the result its own shape, and in-place changes of a leaf or
    of expanded storage fail even where nothing is selected.
    """
    values = context.analysis.values
    before = context.analysis.before[statement].get(target)
    if before is None or not before.tensor:
        raise NotApplicable("unknown-kind", f"`{target}` is not known to be a tensor")
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        inner = [values[n] for n in ast.walk(statement.value) if n in values and n is not statement]
        masks = [v for v in inner if v.boolean]
        shapes = any(v.shape == before.shape or v.zero_dim for v in masks)
        if not shapes or not all(v.shape == before.shape or v.zero_dim for v in masks):
            raise NotApplicable("shapes-unproven", f"the mask may not have the shape of `{target}`")
    elif not before.unshared and target not in rebound:
        raise NotApplicable("mutates-operand", f"`{target}` is changed in place, and may be shared")


def is_boolean(node: ast.expr, context: Context) -> bool:
    """Whether an expression is known to be a tensor of dtype bool."""
    value = context.analysis.values.get(node)
    return value is not None and value.tensor and value.boolean


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


def _is_of(mask: Neutral, names: set[str]) -> bool:
    """Whether a mask is made of one of some names, which have changed since it was tested."""
    tree = ast.parse(mask.name, mode="eval")
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(tree))


def _stored_before(node: ast.If) -> list[ast.AST]:
    return [n.target for n in ast.walk(node.test) if isinstance(n, ast.NamedExpr)]


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
    name="correction",
    codes=(TENSOR_BRANCH.code,),
    summary="apply a masked correction without asking whether anything is selected",
    doc=__doc__ or "",
    propose=propose,
    rank=24,
)
