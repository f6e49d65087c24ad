"""Selects between two values with `torch.where`.

Fits where both arms are cheap, pure, cannot fail, and give one shape and dtype: both are computed
and an elementwise select keeps the graph whole, without a host sync and fused with its neighbours.
The eager path stays the plain branch.

Before:

    def forward(self, x: torch.Tensor):
        h = torch.sigmoid(x)
        if h.mean() > 0.5:
            h = h * 0.5
        return h

After:

    def forward(self, x: torch.Tensor):
        h = torch.sigmoid(x)
        if torch.compiler.is_compiling():
            h = torch.where(h.mean() > 0.5, h * 0.5, h)
        elif h.mean() > 0.5:
            h = h * 0.5
        return h

It is not offered where an arm could leak a NaN gradient from the side that is not selected (a
division, a square root, a logarithm), draws random numbers, calls a layer, or where equal shapes and
dtypes could not be proven: `torch.where` broadcasts and promotes in silence. Measured with Inductor
on the CPU, a select beats `torch.cond` for arms of up to 16 multiplications and additions at every
size; from one transcendental function or matrix product on, computing only one arm is better on
average. That is the rule for which of the two is the default
(`benchmarks/results/branch_forms.md`).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis import torch_table
from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Refused
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value
from gbfix.codegen.predicates import Renderer, single
from gbfix.diagnoses import LOOP_EXIT, TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.aliases import check_not_changed_later, shared_root, tensor_sources
from gbfix.lowering.arm_values import check_kept
from gbfix.lowering.branch import Arm, Branch, find_branch
from gbfix.lowering.expression import ZERO_GRADIENTS, Check, conditional_expression, selected
from gbfix.lowering.forms import Writer
from gbfix.lowering.hazards import stale_operand
from gbfix.lowering.inputs import check_in_place, check_stored
from gbfix.lowering.layouts import elementwise_extreme
from gbfix.lowering.placement import beside, replacing, width_for
from gbfix.lowering.results import Result, Straight, check_results, straighten
from gbfix.lowering.shared_statement import shared_statement
from gbfix.lowering.stale_graphs import stale_reason

MOST_OPERATIONS = 12
# Plain arithmetic, comparisons and selects: defined everywhere, fused into one kernel, and with a
# derivative that is bounded, so that what `where` passes back to the arm not selected is exactly 0.
_CHEAP = frozenset(
    "add sub subtract neg negative clamp clip clamp_min clamp_max relu zeros_like "
    "ones_like full_like detach clone where masked_fill to float double half bfloat16 type_as "
    "minimum maximum round floor ceil sign nan_to_num isnan isinf isfinite logical_and "
    "logical_or logical_not eq ne lt le gt ge mul multiply relu6 hardtanh any all".split()
)


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer `torch.where` for an `if`.

    Raises:
        Refused: where the arms are not cheap, pure, total, and of one shape and dtype.
    """
    if not isinstance(site.node, ast.If):
        return conditional_expression(site, context, "where", _check_values(context))
    shared = shared_statement(site.node)
    if shared is not None:
        return selected(shared, context, "where", _check_values(context))
    branch = find_branch(site, context.facts, context.liveness)
    analysis = context.analysis
    arms = [straighten(arm, branch, analysis) for arm in branch.arms]
    if arms[0] is None or arms[1] is None:
        raise Refused("not-an-expression", "an arm is more than one value per name")
    pair = (arms[0], arms[1])
    values = check_results(branch, pair, analysis)
    check_in_place(branch, pair, context)
    for arm, straight in zip(branch.arms, pair, strict=True):
        computed = [*straight.prelude, *(r.node for r in straight.results if r.node)]
        if branch.updates:
            _check_total(arm)
        else:
            _check_cheap(computed, context)
        if arm.effects.random or arm.effects.output or arm.effects.unknown or arm.effects.stateful:
            raise Refused("impure-arm", "an arm does more than compute")
        _check_prelude(branch, straight, context)
    if not all(o.place for o in branch.outputs):  # copy_ gives a buffer its own shape and dtype
        for a, b in values:
            _check_alike(a, b)
    roots = _roots(branch, pair, analysis)
    check_not_changed_later(
        roots, [o.name for o in branch.outputs], branch.place, analysis, context.facts
    )
    check_stored(branch, roots, context)
    check_kept(branch, roots)
    torch = context.torch(site.statement)
    predicate = Renderer(context.view, analysis, torch).render(branch.split.predicate)
    predicate = single(predicate)
    only = context.only_compiled and not branch.is_elif
    body = Writer(context, branch, torch, width_for(context, branch.node)).where(predicate, pair)
    edits = None
    if only:
        flat_body = Writer(
            context, branch, torch, width_for(context, branch.node, nested=False)
        ).where(predicate, pair)
        try:
            edits = replacing(branch, flat_body, context)
        except Refused:
            edits = None
    if edits is None:
        edits = beside(branch, body, torch, context)
    safety, reason = _safety(branch, pair, context)
    return Fix("where", safety, reason, edits, context.needs_torch)


def _check_values(context: Context) -> Check:
    """A check that both values are cheap, and of one shape and dtype."""

    def check(a: ast.expr, b: ast.expr) -> None:
        _check_cheap([a, b], context)
        values = context.analysis.values
        _check_alike(values[a], values[b])

    return check


def _check_cheap(nodes: Sequence[ast.AST], context: Context) -> None:
    operations = 0
    for node in nodes:
        for inner in walk(node):
            if isinstance(inner, ast.BinOp):
                operations += 1
                _check_operator(inner, context.analysis)
            elif isinstance(inner, ast.UnaryOp):
                operations += 1
            elif isinstance(inner, ast.Subscript):
                value = context.analysis.values.get(inner.value)
                if value is not None and value.may_be_tensor:
                    raise Refused(
                        "indexing-in-arm", f"`{ast.unparse(inner)}` may fail on some data"
                    )
            elif isinstance(inner, ast.Call):
                operations += 1
                _check_call(inner, context.analysis)
    if operations > MOST_OPERATIONS:
        raise Refused(
            "costly-arm", "computing both arms every time would cost more than the branch"
        )


def _check_total(arm: Arm) -> None:
    """An arm that updates buffers may cost something, but may not fail on some data."""
    if arm.effects.partial or arm.effects.dynamic or arm.effects.scalar:
        raise Refused("partial-arm", "an arm may fail on data for which it would not have run")
    if len(arm.statements) > MOST_OPERATIONS:
        raise Refused(
            "costly-arm", "computing both arms every time would cost more than the branch"
        )


def _check_operator(node: ast.BinOp, analysis: Analysis) -> None:
    sides = [analysis.values.get(node.left), analysis.values.get(node.right)]
    tensors = [s for s in sides if s is not None and s.kinds & (Kind.TENSOR | Kind.MAYBE)]
    if not tensors:
        return
    if isinstance(node.op, (ast.MatMult, ast.Pow, ast.Mod, ast.FloorDiv)):
        raise Refused("costly-arm", f"`{ast.unparse(node)}` is not a cheap, bounded operation")
    if isinstance(node.op, ast.Div):
        right = sides[1]
        if right is None or right.kinds & (Kind.TENSOR | Kind.MAYBE):
            raise Refused("nan-gradient", "dividing by a tensor can leak a NaN gradient")
    if isinstance(node.op, ast.Mult) and len(tensors) == 2:
        raise Refused("nan-gradient", "a product of tensors can leak a NaN gradient")


def _check_call(node: ast.Call, analysis: Analysis) -> None:
    function = analysis.values.get(node.func)
    name = function.reference if function is not None else None
    if isinstance(node.func, ast.Attribute):
        receiver = analysis.values.get(node.func.value)
        if receiver is not None and receiver.may_be_tensor:
            name = f"Tensor.{node.func.attr}"
    if name is None:
        raise Refused("costly-arm", f"`{ast.unparse(node.func)}` is not known to be cheap")
    if name.startswith(("builtins.", "math.", "torch.finfo", "torch.iinfo")):
        return
    last = name.rsplit(".", 1)[-1]
    known = torch_table.function(name) or torch_table.method(last)
    if elementwise_extreme(node, analysis):
        return
    if known is None or last not in _CHEAP:
        raise Refused("costly-arm", f"`{ast.unparse(node.func)}` is not a cheap, bounded operation")


def _check_alike(a: Value, b: Value) -> None:
    if a.zero_dim and b.zero_dim and (a.dtype == b.dtype or (a.boolean and b.boolean)):
        return
    if a.shape != b.shape or not (a.dtype == b.dtype or (a.boolean and b.boolean)):
        raise Refused(
            "shapes-unproven",
            "the arms are not proven to have one shape and dtype, and `where` would hide a difference",
        )


def _check_prelude(branch: Branch, arm: Straight, context: Context) -> None:
    """Statements that will run unconditionally may not rebind what anything else reads."""
    names = {t.id for s in arm.prelude if isinstance(s, ast.Assign) for t in s.targets
             if isinstance(t, ast.Name)}  # fmt: skip
    before = context.analysis.before[branch.node]
    clash = [n for n in names if n in before and not before[n].unbound]
    if clash:
        raise Refused("rebinds-name", f"an arm rebinds `{clash[0]}`, which has a value already")


def _roots(branch: Branch, arms: tuple[Straight, Straight], analysis: Analysis) -> list[str]:
    roots: list[str] = []
    for arm in arms:
        texts = [ast.unparse(r.node) for r in arm.results if r.node is not None]
        if len(set(texts)) < len(texts):  # eager gives one tensor twice
            roots += [o.name for o in branch.outputs]
        for result in arm.results:
            root = _root(result, analysis, branch)
            if root:
                roots.append(root)
    return roots


def _root(result: Result, analysis: Analysis, branch: Branch) -> str | None:
    if result.node is None:
        value = analysis.before[branch.node].get(result.incoming)
        return None if value is not None and value.unshared else result.incoming
    return None if result.operator else shared_root(result.node, analysis, frozenset())


def _safety(
    branch: Branch, arms: tuple[Straight, Straight], context: Context
) -> tuple[Safety, str]:
    stale = stale_operand(branch, context.analysis, context.facts)
    if stale:
        return Safety.UNSAFE, stale_reason(stale)
    if branch.updates:
        return (
            Safety.REVIEW,
            "both updates of a buffer are computed, and the selected one is stored",
        )
    sources = [
        tensor_sources([r.node for r in arm.results if r.node is not None], context.analysis)
        | {r.incoming for r in arm.results if r.node is None or r.operator}
        for arm in arms
    ]
    if sources[0] == sources[1]:
        return Safety.SAFE, "both arms are cheap and made of the same tensors"
    return Safety.REVIEW, ZERO_GRADIENTS


TRANSFORM = Transform(
    name="where",
    codes=(TENSOR_BRANCH.code, LOOP_EXIT.code),
    summary="select between two cheap values with torch.where",
    doc=__doc__ or "",
    propose=propose,
    rank=30,
)
