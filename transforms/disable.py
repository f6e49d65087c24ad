"""Leaves a helper that does nothing but Python's own work to Python.

A call that cannot be part of a graph ends the graph in the function that it stands in, and again in
every function that this one was inlined into. Where a helper has nothing to trace, the mark
`torch.compiler.disable` says so: Dynamo ends the graph once, at the call, and looks no further.

Before:

    def reseed(step: int):
        seed = 17 + step
        torch.manual_seed(seed)


    def forward(x: torch.Tensor):
        h = torch.relu(x)
        reseed(3)
        return h * torch.rand_like(x)

After:

    @torch.compiler.disable
    def reseed(step: int):
        seed = 17 + step
        torch.manual_seed(seed)


    def forward(x: torch.Tensor):
        h = torch.relu(x)
        reseed(3)
        return h * torch.rand_like(x)

One break is left, and `fullgraph=True` still fails. A function that computes with tensors would be lost
to the compiler, so it is only marked where nothing else treats it and there is little to lose: a break
in a loop or a `try` makes Dynamo give up the whole function anyway, and what is called only for what it
stores (a cache that grows) is not fused with what follows. Functions that call layers are left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.draws import PLAIN
from gbfix.analysis.effects import function_effects
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import called
from gbfix.analysis.values import Kind, Value
from gbfix.diagnoses import DIAGNOSES
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.called import is_only_called
from gbfix.lowering.outside import calls_layers
from gbfix.lowering.reached import is_always_reached
from gbfix.python_diagnoses import DISABLED_FUNCTION, RANDOM_CALL
from gbfix.source.text import Edit

_PLAIN = "the graph ends once, at the call; the function has nothing that could be traced"
_SKIPPED = (
    "the graph ends once, at the call; a break in a loop makes Dynamo trace nothing of the function"
)
_FOR_EFFECTS = (
    "the graph ends once, at the call; the function is called for what it stores and runs in Python"
)


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to mark the function around the site.

    Raises:
        NotApplicable: where the function has something to lose, or is not only called by others.
        Refused: where a call may come to no break.
    """
    info, view = context.info, context.view
    node = info.node
    if node.decorator_list or info.outer is not None:
        raise NotApplicable("not-a-helper", "only a plain function or method is marked")
    if node.name == "forward" or node.name.startswith("__"):  # called under another name
        raise NotApplicable("not-a-helper", "only a plain function or method is marked")
    if isinstance(node, ast.AsyncFunctionDef) or any(
        isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(node)
    ):
        raise NotApplicable("not-a-helper", "the function is suspended and resumed")
    reason = _reason(site, context)
    if not is_only_called(info, context.facts):
        raise NotApplicable("not-a-helper", f"`{node.name}` is not only called")
    breaks = [s for s in context.sites if s.certain or not site.certain]
    if not any(is_always_reached(s, context) for s in breaks):
        raise Refused("not-always-reached", "many calls may pass without a break, in one graph")
    torch = context.torch(node.body[0])
    at = view.start(node)
    edit = Edit(at, at, f"@{torch}.compiler.disable\n{view.indent(node)}")
    return Fix("disable", Safety.REVIEW, reason, (edit,), context.needs_torch, marks=True)


def _reason(site: BreakSite, context: Context) -> str:
    """Why the function has nothing to lose.

    Raises:
        NotApplicable: where it has.
    """
    work = _traced_work(context)
    if work is None:
        return _PLAIN
    if calls_layers(context.info.node.body, context.analysis, context.facts, {context.info.node}):
        raise NotApplicable("traces-work", "the function calls layers or other functions")
    # What is drawn in a loop is drawn in Python, whatever is done to the other breaks.
    drawn = [s for s in context.sites if s.diagnosis is RANDOM_CALL and not _is_plain(s, context)]
    if any(_is_skipped(s, context) for s in (site, *drawn)):
        return _SKIPPED
    returned = [n for n in walk(context.info.node) if isinstance(n, ast.Return)]
    if all(n.value is None for n in returned):
        return _FOR_EFFECTS
    raise NotApplicable("traces-work", f"`{ast.unparse(work)}` is work for the compiler")


def _is_plain(site: BreakSite, context: Context) -> bool:
    """Whether a site draws with `random.random()`, for which there is an equal that Dynamo takes."""
    node = site.node
    return isinstance(node, ast.Call) and called(node, context.analysis) == PLAIN


def _is_skipped(site: BreakSite, context: Context) -> bool:
    """Whether the break stands in a loop or a `try`, so that Dynamo gives up the whole function."""
    parents = context.info.module.parents
    current: ast.AST | None = site.node
    while current is not None and current is not context.info.node:
        if isinstance(current, (ast.For, ast.While, ast.Try, ast.comprehension)):
            return True
        if isinstance(current, (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)):
            return True
        current = parents.get(current)
    return False


def _traced_work(context: Context) -> ast.AST | None:
    """An operation of the function that a graph would hold, if there is one."""
    values = context.analysis.values
    for node in walk(context.info.node):
        value = values.get(node)
        if value is not None and value.kinds & Kind.TENSOR:
            if isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Compare)):
                return node
        if isinstance(node, ast.Call):
            called = values.get(node.func)
            if called is None or called.kinds & Kind.MODULE or _may_be_layer(node.func, values):
                return node
    found = function_effects(context.info, context.facts)
    if found is None or any(v for _, v in found.mutated if isinstance(v, ast.AugAssign)):
        return context.info.node
    return None


def _may_be_layer(function: ast.expr, values: Mapping[ast.AST, Value]) -> bool:
    """Whether something that a module holds is called, of which no more is known."""
    if not isinstance(function, ast.Attribute):
        return False
    called, holder = values.get(function), values.get(function.value)
    if called is None or holder is None or called.reference is not None:
        return False
    return bool(holder.kinds & Kind.MODULE and called.kinds & Kind.UNKNOWN)


TRANSFORM = Transform(
    name="disable",
    codes=tuple(code for code in DIAGNOSES if code != DISABLED_FUNCTION.code),
    summary="mark a helper with nothing to trace `torch.compiler.disable`",
    doc=__doc__ or "",
    propose=propose,
    rank=95,
    lessens=True,
)
