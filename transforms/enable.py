"""Takes `torch.compiler.disable` off a function in which nothing breaks.

The mark ends the graph before every call. Some are left over from an older PyTorch, which could not
trace what today's can. A function of the project of which every operation is known, and none breaks,
is traced instead.

Before:

    @torch.compiler.disable
    def project(x: torch.Tensor):
        return torch.tanh(x @ x.transpose(0, 1))


    def forward(x: torch.Tensor):
        return torch.relu(project(x * 2)) + 1

After:

    def project(x: torch.Tensor):
        return torch.tanh(x @ x.transpose(0, 1))


    def forward(x: torch.Tensor):
        return torch.relu(project(x * 2)) + 1

Whoever set the mark may have had a reason that is not in the code, such as results of other precision.
So it is only taken off with `--unsafe`, or where every fix is verified by running.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.effects import function_effects
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.sites import break_sites
from gbfix.analysis.untraced import disabled_function
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.marks import without_mark
from gbfix.python_diagnoses import DISABLED_FUNCTION

_REASON = (
    "nothing in the function breaks the graph; the mark may have a reason that is not in the code"
)


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to take the mark off.

    Raises:
        Refused: where the function does what cannot be traced, or is not at hand.
    """
    call = site.node
    info = disabled_function(call, context.analysis, context.facts)
    if info is None:
        raise NotApplicable("not-disabled", "no function of the project is called here")
    name = info.node.name
    if info.module.source.path != context.info.module.source.path:
        raise Refused("other-file", f"`{name}` is defined in {info.module.source.path.name}")
    _check_traceable(info, context)
    return Fix("enable", Safety.UNSAFE, _REASON, (without_mark(info, context),), by_running=True)


def _check_traceable(info: FunctionInfo, context: Context) -> None:
    name = info.node.name
    analysis = context.facts.analysis(info)
    found = function_effects(info, context.facts)
    if analysis is None or found is None:
        raise Refused("breaks-inside", f"what `{name}` does is not known")
    sites = break_sites(analysis, context.facts)
    if sites:
        what = ast.unparse(sites[0].span).partition("\n")[0]
        raise Refused("breaks-inside", f"traced, `{name}` would break the graph at `{what}`")
    if found.unknown:
        raise Refused(
            "breaks-inside", f"what `{found.first_unknown}` does in `{name}` is not known"
        )
    if found.scalar or found.dynamic:
        raise Refused("breaks-inside", f"`{name}` reads data or makes shapes of it")


TRANSFORM = Transform(
    name="enable",
    codes=(DISABLED_FUNCTION.code,),
    summary="trace a function that is marked as disabled though nothing in it breaks",
    doc=__doc__ or "",
    propose=propose,
    rank=60,
)
