"""Whether a function that is divided is better off than where Dynamo breaks its graphs by itself.

Knows sites and what was moved, nothing of how a function is divided or written.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.conditions import NotApplicable
from gbfix.analysis.sites import BreakSite
from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import disabled_function
from gbfix.analysis.values import Kind
from gbfix.diagnoses import LOOP_EXIT, TENSOR_LOOP
from gbfix.fixes import Context
from gbfix.lowering.stages.choosing import calls_drawn
from gbfix.lowering.stages.parts import Divided
from gbfix.python_diagnoses import RANDOM_CALL, SPARSE_TENSOR


def is_worth(site: BreakSite, context: Context) -> bool:
    """Whether Dynamo loses more at a site than the statement that breaks."""
    if site.diagnosis in {LOOP_EXIT, TENSOR_LOOP, SPARSE_TENSOR, RANDOM_CALL}:
        return True
    parents = context.info.module.parents
    above: ast.AST | None = site.node
    while above is not None and above is not context.info.node:
        if isinstance(above, (ast.For, ast.While)):
            return True
        above = parents.get(above)
    return calls_drawn(site, context)


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
            own = own or disabled_function(node, context.analysis, facts) is None
        elif value.kinds & Kind.MODULE and not any(s.node is node for s in sites):
            text = ast.unparse(node.func)
            raise NotApplicable("layer-left", f"`{text}` would be left to Python")
    if not divided.parts and not own:
        raise NotApplicable("not-divided", "nothing around it would be compiled")
