"""Whether a function that is divided is better off than where Dynamo breaks its graphs by itself.

Knows sites and what was moved, nothing of how a function is divided or written.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.conditions import NotApplicable
from gbfix.analysis.draws import draw
from gbfix.analysis.modules import FunctionInfo
from gbfix.analysis.record import Analysis
from gbfix.analysis.sites import BreakSite
from gbfix.analysis.trees import loops_around, of_kind, walk
from gbfix.analysis.untraced import called, disabled_function
from gbfix.analysis.values import Kind
from gbfix.diagnoses import LOOP_EXIT, TENSOR_LOOP
from gbfix.fixes import Context
from gbfix.lowering.stages.choosing import calls_drawn, calls_seeding
from gbfix.lowering.stages.parts import Divided
from gbfix.python_diagnoses import (
    AUTOGRAD_CALL,
    RANDOM_CALL,
    RECURRENT_LAYER,
    SEEDING,
    SPARSE_TENSOR,
)

_KINDS = frozenset({LOOP_EXIT, TENSOR_LOOP, SPARSE_TENSOR, RANDOM_CALL, RECURRENT_LAYER})
_GRADIENTS = frozenset({"backward", "grad"})


def is_of_kind(site: BreakSite, context: Context) -> bool:
    """Whether a site is of a kind that no graph holds: data end a loop, or Python is asked."""
    if site.diagnosis in _KINDS or calls_drawn(site, context) or calls_seeding(site, context):
        return True
    node = site.node
    if site.diagnosis is SEEDING:  # a generator is better kept together with what it draws
        return not isinstance(node, ast.Call) or called(node, context.analysis) != "torch.Generator"
    if site.diagnosis is AUTOGRAD_CALL and isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in _GRADIENTS
    return (
        isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return) and _loops(site, context)
    )


def is_worth(site: BreakSite, context: Context) -> bool:
    """Whether Dynamo loses more at a site than the statement that breaks."""
    return is_of_kind(site, context) or _loops(site, context)


def _loops(site: BreakSite, context: Context) -> bool:
    """Whether a site stands in a loop, or is one."""
    return any(loops_around(site.node, context.info.node, context.info.module.parents))


def _computes(node: ast.AST, analysis: Analysis) -> bool:
    """Whether a node makes a tensor of others, by an operator, a call or a layer."""
    if not isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp)):
        return False
    value = analysis.values.get(node)
    if isinstance(node, ast.Call):
        function = analysis.values.get(node.func)
        if function is not None and function.kinds & Kind.MODULE:
            return True
        if draw(node, analysis):
            return False
    return value is not None and value.tensor


def _is_compiled(call: ast.Call, known: FunctionInfo | None, context: Context) -> bool:
    """Whether a function or layer of the project that is called computes with tensors in a graph."""
    if disabled_function(call, context.analysis, context.facts) is not None:
        return False
    if known is None:
        return True
    analysis = context.facts.analysis(known)
    inner = walk(known.node)
    return analysis is not None and any(_computes(n, analysis) for n in inner)


def is_always_reached(site: BreakSite, context: Context) -> bool:
    """Whether a call of the function that is not over before comes to the site.

    A function that breaks its graph in training alone, or for one of its arguments alone, is one graph
    otherwise, and would be several if it was divided. What differs from round to round of a loop, or is
    decided by data, is taken to let some round pass.
    """
    parents = context.info.module.parents
    if site.test is not None and _may_skip(site.test, site.node, context):
        return False
    below, above = site.node, parents.get(site.node)
    while above is not None and below is not context.info.node:
        if isinstance(above, ast.ExceptHandler):
            return False
        if isinstance(above, (ast.If, ast.IfExp)) and below is not above.test:
            if _may_skip(above.test, above, context):
                return False
        if isinstance(above, ast.BoolOp):
            before = above.values[: above.values.index(below)] if below in above.values else []
            if any(_may_skip(operand, above, context) for operand in before):
                return False
        for block in (getattr(above, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and below in block:
                if any(_may_leave(s, context) for s in block[: block.index(below)]):
                    return False
        below, above = above, parents.get(above)
    return True


def _may_leave(statement: ast.stmt, context: Context) -> bool:
    """Whether a statement may end the function or the round for a reason that no data gives."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    if not any(isinstance(n, (ast.Return, ast.Continue, ast.Break)) for n in walk(statement)):
        return False
    if isinstance(statement, (ast.For, ast.While)):
        return any(isinstance(n, ast.Return) for n in walk(statement))
    return not isinstance(statement, ast.If) or _may_skip(statement.test, statement, context)


def _may_skip(test: ast.expr, place: ast.AST, context: Context) -> bool:
    """Whether a test may come out the same in all rounds of a call, whatever the data are."""
    for operand in test.values if isinstance(test, ast.BoolOp) else [test]:
        value = context.analysis.values.get(operand)
        if value is not None and value.only(Kind.TENSOR | Kind.SCALAR):
            return False
        if not _varies(operand, place, context):
            return True
    return False


def _varies(test: ast.expr, place: ast.AST, context: Context) -> bool:
    """Whether a test reads what a loop around it binds anew, and not just looks for it somewhere."""
    if isinstance(test, ast.Compare) and any(isinstance(o, (ast.In, ast.NotIn)) for o in test.ops):
        return False
    parents = context.info.module.parents
    read = {n.id for n in walk(test) if isinstance(n, ast.Name)}
    return any(
        n.id in read and isinstance(n.ctx, ast.Store)
        for loop in loops_around(parents.get(place), context.info.node, parents)
        for n in of_kind(loop, ast.Name)
    )


def check_gain(divided: Divided, sites: Sequence[BreakSite], context: Context) -> None:
    """Something must be compiled, and no layer may be lost to Python.

    Raises:
        NotApplicable: where nothing is gained.
    """
    moved = {id(n) for p in divided.parts for i in p.items for n in walk(i.statement)}
    own = False
    for node in walk(context.info.node):
        if not isinstance(node, ast.Call) or id(node) in moved:
            continue
        value = context.analysis.values.get(node.func)
        if value is None:
            continue
        facts = context.facts
        known = facts.project.function_info(value.reference)
        made_here = facts.project.class_info(value.reference)
        if known is not None or made_here is not None:
            own = own or _is_compiled(node, known, context)
        elif value.kinds & Kind.MODULE and not any(s.node is node for s in sites):
            text = ast.unparse(node.func)
            raise NotApplicable("layer-left", f"`{text}` would be left to Python")
    if not divided.parts and not own:
        raise NotApplicable("not-divided", "nothing around it would be compiled")
