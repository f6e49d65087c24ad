"""Whether a function that is divided is better off than where Dynamo breaks its graphs by itself.

Knows sites and what was moved, nothing of how a function is divided or written.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable
from gbfix.analysis.draws import draw
from gbfix.analysis.modules import FunctionInfo
from gbfix.analysis.record import Analysis
from gbfix.analysis.trees import loops_around, walk
from gbfix.analysis.untraced import called, disabled_function
from gbfix.analysis.values import Kind
from gbfix.diagnoses import LOOP_EXIT, TENSOR_LOOP
from gbfix.fixes import Context
from gbfix.lowering.stages.choosing import calls_drawn, calls_seeding
from gbfix.lowering.stages.parts import Divided
from gbfix.lowering.stages.staying import is_trifling
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
        elif is_trifling(value):
            continue
        elif value.kinds & Kind.MODULE and not any(s.node is node for s in sites):
            text = ast.unparse(node.func)
            raise NotApplicable("layer-left", f"`{text}` would be left to Python")
    if not divided.parts and not own:
        raise NotApplicable("not-divided", "nothing around it would be compiled")
