"""Moves what is printed or logged at an end of a layer's `forward` out of the compiled part.

Made where the policy is `keep`. What is told before the work begins, or once it is done, needs no
place in the graph: the work gets a function of its own, which is compiled, and the outline with the
calls stays in Python. Nothing of what is shown changes, neither its order, nor its values, nor the line
that a record names.

Before:

    import torch
    from torch import nn


    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor):
            h = torch.relu(self.inner(x))
            y = h / (h.norm() + 1)
            print(f"norm {y.norm():.3f}")
            return y

After:

    import torch
    from torch import nn


    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def _forward_start(self, x: torch.Tensor):
            h = torch.relu(self.inner(x))
            y = h / (h.norm() + 1)
            return y

        @torch.compiler.disable(recursive=False)
        def forward(self, x: torch.Tensor):
            y = self._forward_start(x)
            print(f"norm {y.norm():.3f}")
            return y

Only where all the work is one part, so that one graph holds it, and nothing else breaks. A layer that
is part of another one is left alone: the graph of that would end at the call.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.logs import log_family
from gbfix.analysis.modules import FunctionInfo
from gbfix.analysis.trees import is_generator
from gbfix.diagnoses import LOGGING_CALL, PRINT_CALL, WARNINGS_CALL
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.output import only_speaks
from gbfix.lowering.stages.choosing import left_to_python
from gbfix.lowering.stages.division import divide
from gbfix.lowering.stages.gains import check_gain
from gbfix.lowering.stages.movable import check_movable
from gbfix.lowering.stages.staying import work
from gbfix.lowering.stages.writing import edits_of
from gbfix.settings import SideEffects

_REASON = "the calls stay in Python, before and after the one part that is compiled"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to leave the outline of a `forward` to Python.

    Raises:
        Refused: where the work would be in several parts, or something else breaks as well.
        NotApplicable: where the calls are not to be kept, or the function is no layer's `forward`.
    """
    info, node = context.info, context.info.node
    family = log_family(site.node, context.analysis, context.facts)
    if family is None or context.settings.effects_of(family) is not SideEffects.KEEP:
        raise NotApplicable("policy", "these calls are not to be kept")
    if info.owner is None or node.name != "forward" or not isinstance(node, ast.FunctionDef):
        raise NotApplicable("not-divided", "only the `forward` of a layer is divided")
    if node.decorator_list or is_generator(node):
        raise NotApplicable("not-divided", "the function is decorated, or suspended and resumed")
    for other in context.sites:
        if not only_speaks(other.statement, context.analysis, context.facts):
            raise NotApplicable("not-only-output", "something else breaks the graph as well")
        if other.statement not in node.body:
            raise NotApplicable("not-only-output", "what is told depends on where control goes")
    if _is_part(info, context):
        raise Refused("inner-layer", f"`{info.owner.node.name}` is part of another layer")
    staying = left_to_python(context.sites, context)
    divided = divide(staying)
    told = {id(other.statement) for other in context.sites}
    moved = {id(item.statement) for part in divided.parts for item in part.items}
    left = [s for s in node.body if id(s) not in told | moved and work(s, staying)]
    if len(divided.parts) != 1 or left:
        raise NotApplicable("not-divided", "work is done before and after what is told")
    check_gain(divided, context.sites, context)
    check_movable(divided.parts[0], context)
    edits = edits_of(divided, context.torch(node.body[0]), context)
    return Fix("move-out", Safety.REVIEW, _REASON, edits, context.needs_torch, last=True)


def _is_part(info: FunctionInfo, context: Context) -> bool:
    """Whether the layer is made by another class, or another class is derived from it."""
    owner = info.owner
    assert owner is not None
    for module in context.facts.project.naming(owner.node.name):
        for node in module.naming(owner.node.name):
            if not isinstance(node, (ast.Name, ast.Attribute)):
                continue
            around: ast.AST | None = node
            while around is not None and not isinstance(around, ast.ClassDef):
                around = module.parents.get(around)
            if around is not None and around is not owner.node:
                return True
    return False


TRANSFORM = Transform(
    name="move-out",
    codes=(PRINT_CALL.code, LOGGING_CALL.code, WARNINGS_CALL.code),
    summary="tell before and after the compiled part of a layer",
    doc=__doc__ or "",
    propose=propose,
    rank=8,
)
