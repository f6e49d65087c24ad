"""Leaves prints, log calls and warnings to settings of Dynamo.

Made where the policy for them is `config`. `reorderable_logging_functions` moves a call behind the
graph: it still speaks, but a tensor that is changed in place after the call is shown as it is then. It
takes functions that return None, called without keyword arguments, with tensors, constants and
format strings. For loggers, and for calls with keyword arguments, `ignore_logging_functions` drops the
call while compiling.

Before:

    import torch


    def scale(x: torch.Tensor):
        y = x * 2
        print("largest", y.max())
        return y + 1

After:

    import torch

    torch._dynamo.config.reorderable_logging_functions.add(print)


    def scale(x: torch.Tensor):
        y = x * 2
        print("largest", y.max())
        return y + 1

The source of the call stays as it is; every process that compiles needs the setting.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.log_settings import REORDER, log_settings
from gbfix.diagnoses import LOGGING_CALL, PRINT_CALL, WARNINGS_CALL
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform, setting_fix
from gbfix.settings import SideEffects

_FAMILIES = {
    PRINT_CALL.code: "print",
    LOGGING_CALL.code: "logging",
    WARNINGS_CALL.code: "warnings",
}
_MOVED = "said after the graph, with the values that tensors have then"
_DROPPED = "not said in the compiled path"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer the setting that takes the call out of the graph.

    Raises:
        Refused: for calls that no setting takes.
    """
    family = _FAMILIES[site.diagnosis.code]
    if context.settings.effects_of(family) is not SideEffects.CONFIG:
        raise NotApplicable("policy", "side effects are not left to settings")
    call = site.node
    if not isinstance(call, ast.Call):
        raise NotApplicable("no-call", "nothing is called here")
    settings = list(log_settings(call, family, context.analysis))
    if not settings:
        raise Refused("no-setting", f"no setting names `{ast.unparse(call.func)}`")
    setting = settings[0]
    if setting.name == REORDER:
        _check_arguments(call, context)
    reason = _MOVED if setting.name == REORDER else _DROPPED
    made = setting_fix("reorder", setting, Safety.REVIEW, reason, context)
    return replace(made, setting=None)  # asked for by the policy


def _check_arguments(call: ast.Call, context: Context) -> None:
    """Only tensors, constants and format strings are moved behind the graph."""
    for argument in call.args:
        value = context.analysis.values.get(argument)
        if isinstance(argument, (ast.Constant, ast.JoinedStr)):
            continue
        if value is None or not value.tensor:
            text = ast.unparse(argument)
            raise Refused("not-a-tensor", f"`{text}` is neither a tensor nor a constant")


TRANSFORM = Transform(
    name="reorder",
    codes=tuple(_FAMILIES),
    summary="leave output to settings of Dynamo",
    doc=__doc__ or "",
    propose=propose,
    rank=9,
)
