"""Results of one `torch.cond` whose gradients may be one tensor, as those of `y` and `z` in `y + z`.

The backward pass of `torch.cond` is another one, which takes the gradients of all results and refuses
two that share storage, so that compiling fails (seen on torch 2.13, with all backends but `eager`). A
result that is multiplied by one has a gradient of its own. Knows uses of names, nothing of arms.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.trees import of_kind
from gbfix.analysis.values import Value
from gbfix.fixes import Context
from gbfix.lowering.branch import Branch
from gbfix.lowering.gradients import gradients_are_off, reads_gradients

_SCALING = (ast.Mult, ast.Div, ast.Pow, ast.MatMult)


def with_gradients_apart(
    branch: Branch,
    values: Sequence[tuple[Value, Value]],
    detached: frozenset[str],
    context: Context,
) -> frozenset[str]:
    """Names of results that are to be multiplied by one: all but one of those that need it.

    `values` holds what each result is in both arms. Results that a function returns have no names: they
    go by their places, `0`, `1` and so on.
    """
    if gradients_are_off(branch.node, context.info) or branch.stored:
        return frozenset()
    statements = [s for arm in branch.arms for s in arm.statements]
    if not reads_gradients(statements, context.analysis, context.facts):
        return frozenset()
    passing = [not any(v.boolean or v.integer for v in pair) for pair in values]
    if branch.returns:
        found = [str(place) for place, passes in enumerate(passing) if passes]
        whole = all(_is_plain(arm.returned) for arm in branch.arms)
        return frozenset(found[1:]) if whole and len(values) > 1 else frozenset()
    found = [
        output.name
        for output, passes in zip(branch.outputs, passing, strict=True)
        if passes
        and output.name not in detached
        and not output.is_attribute
        and not _is_scaled(output.name, branch, context)
    ]
    return frozenset(found[1:])


def _is_plain(returned: ast.expr | None) -> bool:
    """Whether a tuple of values is returned, each written there."""
    return isinstance(returned, ast.Tuple) and not any(
        isinstance(e, ast.Starred) for e in returned.elts
    )


def _is_scaled(name: str, branch: Branch, context: Context) -> bool:
    """Whether all that is done with a result later multiplies its gradient by something."""
    parents = context.info.module.parents
    end = branch.place[1].end_lineno or 0
    uses = [
        n
        for n in of_kind(context.info.node, ast.Name)
        if n.id == name and isinstance(n.ctx, ast.Load) and n.lineno > end
    ]
    scaled = [
        isinstance(p := parents.get(n), ast.BinOp) and isinstance(p.op, _SCALING) for n in uses
    ]
    return bool(uses) and all(scaled)
