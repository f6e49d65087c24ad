"""Makes the setting under which Dynamo captures numbers that are read from tensors.

With `capture_scalar_outputs` a read becomes a symbol in the graph instead of the end of it. It is the
last resort: it changes how everything under it is compiled, shapes that follow from such a number are
unknown to the compiler, and a branch on one is still an error or a break. So it is only shown, and
made with `--config`, and not where the function branches on the number.

Before:

    def first(x: torch.Tensor):
        return torch.ones(int((x > 0).sum())).cumsum(0)


    compiled = torch.compile(first)

After:

    def first(x: torch.Tensor):
        return torch.ones(int((x > 0).sum())).cumsum(0)


    compiled = torch._dynamo.config.patch(capture_scalar_outputs=True)(torch.compile(first))

The setting is read when Dynamo starts on a frame, so it goes around the compiled function, as a
decorator above `@torch.compile` where there is one. Where the project compiles a module, or compiles
nothing itself, the line `torch._dynamo.config.capture_scalar_outputs = True` goes below the imports
and holds for the whole process. Lists of floats are not captured.
"""

from __future__ import annotations

import ast
import re

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.captured_places import failing_place
from gbfix.analysis.captured_reads import (
    CAPTURE,
    fails_captured,
    is_captured,
    may_fail_captured,
)
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.flow import Analysis
from gbfix.analysis.reads import Read, ReadKind, reads
from gbfix.analysis.symbols import check_function, check_read
from gbfix.diagnoses import SCALAR_READ, TENSOR_POSITION, TENSOR_TO_LIST
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform, setting_fix

_PLACE = re.compile(r"[\w)\]]\[")


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer the setting for a read.

    Raises:
        Refused: for a read that it does not capture.
    """
    if site.read is None:
        raise NotApplicable("no-read", "nothing is read here")
    if not is_captured(site.read, context.analysis):
        if site.read.kind is ReadKind.LIST:
            raise Refused("list-of-floats", "only lists of integers are captured")
        place = ast.unparse(context.info.module.parents[site.read.node])
        raise Refused("not-captured", f"the setting does not help in `{place}`")
    check_read(site.read.node, context.analysis)
    check_function(context.analysis)
    _check_others(context)
    return setting_fix(
        "capture", CAPTURE, Safety.REVIEW, "the number becomes a symbol in the graph", context
    )


def _check_others(context: Context) -> None:
    """Whether all reads of the file that Dynamo cannot capture only break the graph under the setting.

    Raises:
        Refused: for one that would fail.
    """
    for info in context.info.module.functions():
        if not may_fail_captured(info) and not _PLACE.search(info.text):
            continue
        analysis = context.facts.analysis(info)
        if analysis is None:
            continue
        for read in reads(analysis):
            text = _failing(read, analysis)
            # Last: to find out whether a function is in the region, much of it may have to be found.
            if text and info.node in context.facts.region:
                raise Refused("breaks-others", f"compiling fails under it {text}")


def _failing(read: Read, analysis: Analysis) -> str:
    """Where compiling fails if a read is captured; empty where it does not."""
    if fails_captured(read, analysis):
        return f"where `{ast.unparse(read.node)}` is counted"
    place = failing_place(read, analysis)
    return f"at `{ast.unparse(place)}`" if place is not None else ""


TRANSFORM = Transform(
    name="capture",
    codes=(SCALAR_READ.code, TENSOR_TO_LIST.code, TENSOR_POSITION.code),
    summary="make the setting that captures numbers read from tensors",
    doc=__doc__ or "",
    propose=propose,
    rank=90,
)
