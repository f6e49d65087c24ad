"""Writes out a loss of torch that checks values, with the check inside the graph.

`gaussian_nll_loss` raises where a variance is negative. The branch is inside torch, where no rewrite of
the code around it reaches. A function beside the code calls torch's in eager mode; while compiling it
takes the same steps itself, and the check becomes an assertion of the graph.

Before:

    import torch.nn.functional as F


    def loss(mean: torch.Tensor, target: torch.Tensor, std: torch.Tensor):
        return F.gaussian_nll_loss(mean * 2, target, std.square(), eps=1e-4)

After:

    import torch.nn.functional as F


    def _gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
        \"\"\"`gaussian_nll_loss`, whose check of `var` is a part of the graph when compiling.\"\"\"
        if not torch.compiler.is_compiling():
            return torch.nn.functional.gaussian_nll_loss(input, target, var, full, eps, reduction)
        if isinstance(var, float):
            var = var * torch.ones_like(input)
        torch._assert_async(~(var < 0).any(), "var has negative entry/entries")
        if var.size() != input.size():
            if var.size() == input.size()[:-1]:
                var = var.unsqueeze(-1)
            elif var.ndim != input.ndim or (
                sum(v for i, v in zip(input.size(), var.size()) if i != v) != 1
            ):
                raise ValueError("var is of incorrect size")
        if reduction not in ("none", "mean", "sum"):
            raise ValueError(reduction + " is not valid")
        var = var.clone()
        with torch.no_grad():
            var.clamp_(min=eps)
        loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
        if full:
            loss = loss + 0.9189385332046727  # log(2 * pi) / 2
        if reduction == "none":
            return loss
        return loss.mean() if reduction == "mean" else loss.sum()


    def loss(mean: torch.Tensor, target: torch.Tensor, std: torch.Tensor):
        return _gaussian_nll_loss(mean * 2, target, std.square(), eps=1e-4)

Other functions that check values are left. `clip_grad_norm_` with `error_if_nonfinite`, for one, must
not have changed a gradient when it raises.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import Refused
from gbfix.analysis.untraced import called
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.companions import companion
from gbfix.python_diagnoses import LIBRARY_CHECK
from gbfix.source.text import Edit

_REASON = "a negative variance raises RuntimeError instead of ValueError when compiled"
_NAME = "_gaussian_nll_loss"
_TEXT = '''\
def _gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """`gaussian_nll_loss`, whose check of `var` is a part of the graph when compiling."""
    if not torch.compiler.is_compiling():
        return torch.nn.functional.gaussian_nll_loss(input, target, var, full, eps, reduction)
    if isinstance(var, float):
        var = var * torch.ones_like(input)
    torch._assert_async(~(var < 0).any(), "var has negative entry/entries")
    if var.size() != input.size():
        if var.size() == input.size()[:-1]:
            var = var.unsqueeze(-1)
        elif var.ndim != input.ndim or (
            sum(v for i, v in zip(input.size(), var.size()) if i != v) != 1
        ):
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.9189385332046727  # log(2 * pi) / 2
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()
'''


def propose(site: BreakSite, context: Context) -> Fix:
    """Call a written-out function in place of torch's.

    Raises:
        Refused: for functions that cannot be written out, and where there is no place for one.
    """
    call = site.node
    assert isinstance(call, ast.Call)
    if called(call, context.analysis) != "torch.nn.functional.gaussian_nll_loss":
        raise Refused("no-formula", f"`{ast.unparse(call.func)}` cannot be written out")
    view = context.view
    torch = context.torch(site.statement)
    called_as = Edit(view.start(call.func), view.end(call.func), _NAME)
    edits = (*companion(_TEXT, torch, context), called_as)
    return Fix("write-out", Safety.REVIEW, _REASON, edits, context.needs_torch)


TRANSFORM = Transform(
    name="write-out",
    codes=(LIBRARY_CHECK.code,),
    summary="write out a loss of torch with its check inside the graph",
    doc=__doc__ or "",
    propose=propose,
    rank=15,
)
