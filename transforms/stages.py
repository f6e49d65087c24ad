"""Leaves what decides or cannot be traced to Python, and compiles the stages between as functions.

A loop that goes on until all sequences are done gives a result whose size depends on data, so that no
single graph can hold it; a break in a loop makes Dynamo give up the whole function, and a sparse tensor
breaks the graph wherever it is handed on. What a person does then is to leave the outline of the
function to Python and to compile the step. The mark `torch.compiler.disable(recursive=False)` does it:
the function itself is not traced, and what it calls is.

Before:

    import torch
    from torch import nn


    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor):
            alive = torch.ones(())
            while True:
                step = torch.tanh(self.cell(x[-1:])) * alive
                x = torch.cat([x, step])
                alive = alive * (step.abs().max() > 0.1).float()
                if alive.max() == 0 or x.shape[0] >= 8:
                    break
            return x

After:

    import torch
    from torch import nn


    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(4, 4)

        def _forward_round(self, x: torch.Tensor, alive):
            step = torch.tanh(self.cell(x[-1:])) * alive
            x = torch.cat([x, step])
            alive = alive * (step.abs().max() > 0.1).float()
            return x, alive

        @torch.compiler.disable(recursive=False)
        def forward(self, x: torch.Tensor):
            alive = torch.ones(())
            while True:
                x, alive = self._forward_round(x, alive)
                if alive.max() == 0 or x.shape[0] >= 8:
                    break
            return x

There are as many graphs as there are stages, and a function that calls this one ends its graph at the
call. It is the last resort: done for a loop that data decides, for sparse tensors that are handed over
and for numbers that Python draws, where nothing else treats the site, and for another break in a loop
only with `--unsafe`. Where a call may pass without a break, as where `self.training` decides, it is not
done.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.decorators import decorator_name
from gbfix.analysis.trees import is_generator
from gbfix.diagnoses import DIAGNOSES
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.called import is_only_called
from gbfix.lowering.reached import is_always_reached
from gbfix.lowering.stages.choosing import left_to_python
from gbfix.lowering.stages.division import divide
from gbfix.lowering.stages.gains import check_gain, is_of_kind, is_worth
from gbfix.lowering.stages.movable import check_movable
from gbfix.lowering.stages.writing import edits_of

_REASON = (
    "the function itself runs in Python and calls stages that are compiled; what calls it ends its "
    "graph there"
)
_LOOPS = f"{_REASON}, and Dynamo may lose less to the loop"
_MODES = frozenset({"torch.no_grad", "torch.inference_mode", "torch.enable_grad"})


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to divide the function of the site.

    Raises:
        Refused: where a stage cannot be a function of its own.
        NotApplicable: where Dynamo's own breaks cost no more.
    """
    info, node = context.info, context.info.node
    modes = {decorator_name(d, info.module) for d in node.decorator_list} <= _MODES
    if info.outer is not None or not isinstance(node, ast.FunctionDef) or not modes:
        raise NotApplicable("not-divided", "only a plain function or method is divided")
    if is_generator(node):
        raise NotApplicable("not-divided", "the function is suspended and resumed")
    worth = [s for s in context.sites if is_worth(s, context)]
    if not worth:
        raise NotApplicable("not-divided", "what stands around the break is compiled as it is")
    reached = [s for s in worth if s.certain and is_always_reached(s, context)]
    if not reached:
        raise Refused("not-always-reached", "many calls may pass without a break, in one graph")
    is_forward = node.name == "forward" and info.owner is not None
    if not is_forward and not is_only_called(info, context.facts):
        raise NotApplicable("not-divided", f"`{node.name}` may be what is compiled")
    divided = divide(left_to_python(context.sites, context))
    check_gain(divided, context.sites, context)
    for part in divided.parts:
        check_movable(part, context)
    torch = context.torch(node.body[0])
    edits = edits_of(divided, torch, context)
    usual = any(is_of_kind(s, context) for s in reached)
    safety = Safety.REVIEW if usual else Safety.UNSAFE
    return Fix(
        "stages", safety, _REASON if usual else _LOOPS, edits, context.needs_torch, last=True
    )


TRANSFORM = Transform(
    name="stages",
    codes=tuple(DIAGNOSES),
    summary="leave the outline of a function to Python and compile its stages",
    doc=__doc__ or "",
    propose=propose,
    rank=96,
    lessens=True,
)
