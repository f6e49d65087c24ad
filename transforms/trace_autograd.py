"""Lets Dynamo trace `backward` and `torch.autograd.grad`, which it does if it is told to.

Before:

    import torch

    weight = torch.ones(4, requires_grad=True)


    def slope(x: torch.Tensor):
        loss = (weight * x).sin().sum()
        (gradient,) = torch.autograd.grad(loss, weight)
        return gradient * 2

After:

    import torch

    torch._dynamo.config.trace_autograd_ops = True

    weight = torch.ones(4, requires_grad=True)


    def slope(x: torch.Tensor):
        loss = (weight * x).sin().sum()
        (gradient,) = torch.autograd.grad(loss, weight)
        return gradient * 2

The setting is made with `--config`, around the compiled function where there is one. Without it,
compile the part up to the loss and leave `loss.backward()` outside.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable
from gbfix.analysis.dynamo_settings import TRACE_AUTOGRAD
from gbfix.analysis.untraced import has_backward_hook
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform, setting_fix
from gbfix.python_diagnoses import AUTOGRAD_CALL


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer the setting for a call that computes gradients.

    Raises:
        NotApplicable: for other calls, and where the setting is made.
    """
    call = site.node
    if not isinstance(call, ast.Call) or ast.unparse(call.func).endswith("retain_grad"):
        raise NotApplicable("no-gradient", "no gradient is computed here")
    if has_backward_hook(call, context.analysis, context.facts):
        raise NotApplicable("layer-hook", "no gradient is computed here")
    reason = "autograd becomes part of the graph"
    return setting_fix("trace-autograd", TRACE_AUTOGRAD, Safety.REVIEW, reason, context)


TRANSFORM = Transform(
    name="trace-autograd",
    codes=(AUTOGRAD_CALL.code,),
    summary="make the setting that traces backward",
    doc=__doc__ or "",
    propose=propose,
    rank=90,
)
