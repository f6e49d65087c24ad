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

One break is left, and `fullgraph=True` still fails. It is not done to a function that computes with
tensors, which would be lost to the compiler, nor to one that is compiled by itself.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.effects import function_effects
from gbfix.analysis.facts import Facts
from gbfix.analysis.project import FunctionInfo, Module
from gbfix.analysis.sites import BreakSite
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.diagnoses import DIAGNOSES
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.python_diagnoses import DISABLED_FUNCTION
from gbfix.source.text import Edit

_REASON = "the graph ends once, at the call; the function has nothing that could be traced"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to mark the function around the site.

    Raises:
        Refused: where the function computes with tensors, or is not only called by others.
    """
    info, view = context.info, context.view
    node = info.node
    if node.decorator_list or info.outer is not None or node.name.startswith("__"):
        raise NotApplicable("not-a-helper", "only a plain function or method is marked")
    if isinstance(node, ast.AsyncFunctionDef) or any(
        isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(node)
    ):
        raise NotApplicable("not-a-helper", "the function is suspended and resumed")
    work = _traced_work(context)
    if work is not None:
        raise NotApplicable("traces-work", f"`{ast.unparse(work)}` is work for the compiler")
    if not _is_only_called(info, context.facts):
        raise Refused("not-a-helper", f"`{node.name}` is not only called by compiled functions")
    torch = context.torch(node.body[0])
    at = view.start(node)
    edit = Edit(at, at, f"@{torch}.compiler.disable\n{view.indent(node)}")
    return Fix("disable", Safety.REVIEW, _REASON, (edit,), context.needs_torch)


def _traced_work(context: Context) -> ast.AST | None:
    """An operation of the function that a graph would hold, if there is one."""
    values = context.analysis.values
    for node in walk(context.info.node):
        value = values.get(node)
        if value is not None and value.kinds & (Kind.TENSOR | Kind.SCALAR):
            if isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Compare)):
                return node
        if isinstance(node, ast.Call):
            called = values.get(node.func)
            if called is None or called.kinds & Kind.MODULE:
                return node
    found = function_effects(context.info, context.facts)
    if found is None or any(v for _, v in found.mutated if isinstance(v, ast.AugAssign)):
        return context.info.node
    return None


def _is_only_called(info: FunctionInfo, facts: Facts) -> bool:
    """Whether every use of a function is a call of it, and one of them stands in the region."""
    reached = False
    for module in facts.project.given:
        if info.node.name not in module.source.text:
            continue
        for node in walk(module.tree):
            if not _is_named(node, info, module):
                continue
            parent = module.parents[node]
            if not isinstance(parent, ast.Call) or parent.func is not node:
                return False
            around: ast.AST | None = parent
            while around is not None and not isinstance(around, ast.FunctionDef):
                around = module.parents.get(around)
            reached = reached or (around is not info.node and around in facts.region)
    return reached


def _is_named(node: ast.AST, info: FunctionInfo, module: Module) -> bool:
    if info.owner is not None:
        return isinstance(node, ast.Attribute) and node.attr == info.node.name
    is_name = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
    return is_name and module.qualify(node) == info.qualified


TRANSFORM = Transform(
    name="disable",
    codes=tuple(code for code in DIAGNOSES if code != DISABLED_FUNCTION.code),
    summary="mark a helper with nothing to trace `torch.compiler.disable`",
    doc=__doc__ or "",
    propose=propose,
    rank=95,
    lessens=True,
)
