"""Writes rows that a mask selects with `torch.where`, over all rows.

`x[mask] = f(x[mask])` takes out as many rows as the mask has true elements, a number that Dynamo
cannot know. Where `f` treats each row alone, the compiled path computes it for all rows and selects
afterwards. The eager path stays the original.

Before:

    def forward(self, inter: torch.Tensor, area: torch.Tensor):
        iou = torch.zeros_like(inter)
        found = area > 0
        iou[found] = inter[found] / area[found]
        return iou

After:

    def forward(self, inter: torch.Tensor, area: torch.Tensor):
        iou = torch.zeros_like(inter)
        found = area > 0
        if torch.compiler.is_compiling():
            iou = torch.where(found, inter / area.masked_fill(~found, 1), iou)
        else:
            iou[found] = inter[found] / area[found]
        return iou

Rows that are not selected are filled with a harmless value where the operation could fail on them or
has an unbounded derivative: `where` alone would pass a NaN back to them. Where something else may
share the storage of what is written, the result is copied into it instead. Layers such as `nn.Linear`
and `nn.LayerNorm` are row-wise, and modules of the project are looked into. Batch normalisation is not:
its steps are written out beside the code, with statistics over the selected rows only. A softmax over
the selected rows is left alone. A layer that runs on every row costs more than one that runs on the
selected rows. Where a branch spares the work if nothing is selected, gradients of what it computes with
are zero in the compiled path, or NaN where a derivative is infinite, instead of None.

Rows found with `torch.where(mask)` or `nonzero` are treated alike. In a mixture of experts, where
`row, slot = torch.where(ids == e)` routes rows to an expert, every expert runs on every row and its
result is weighed with zero where it was not routed: with `n` experts, of which each row uses `k`,
that is `n / k` times the arithmetic, without any synchronisation. Loops over the experts that are hit
become loops over all of them. Where a row may be found twice, or a weight goes through more than a
product, the routing is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.dynamic import shape_from_data
from gbfix.analysis.trees import walk
from gbfix.codegen.names import used_names
from gbfix.diagnoses import MASK_INDEX, NONZERO, TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.dense_region import region_edits, region_of
from gbfix.lowering.gates import is_gate
from gbfix.lowering.gradients import gradients_are_off, reads_gradients
from gbfix.lowering.reductions import OVERFLOWING


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to write selected rows without selecting them.

    Raises:
        Refused: where something is done to the rows that is not row-wise, or they are kept.
    """
    if site.diagnosis is TENSOR_BRANCH and not _spares_selection(site, context):
        raise NotApplicable("no-update", "the branch does not spare a selection of rows")
    torch = context.torch(site.statement)
    region = region_of(site, context, torch)
    if not region.found.stores:
        raise NotApplicable("no-update", "nothing is written to selected rows")
    reason = "every row is computed, and the selected ones are written"
    if region.found.applied:
        layers = ", ".join(f"`{name}`" for name in dict.fromkeys(region.found.applied))
        verb = "runs" if layers.count("`") == 2 else "run"
        reason = f"{layers} {verb} on every row, not only on the selected ones"
        if region.found.routed:
            reason += "; the work grows with the number of experts, not of those a row is routed to"
    elif region.found.reordered:
        reason = "rows that are not selected add zero; the order of a sum may change"
    safety = Safety.SAFE
    if region.found.regrouped:
        raise Refused("not-row-wise", "selected elements are viewed in groups")
    if region.found.overflowing:
        safety, reason = Safety.REVIEW, OVERFLOWING
    if region.found.normed:
        safety, reason = Safety.REVIEW, region.found.told_of_norms
    if region.found.bins:
        safety, reason = Safety.REVIEW, region.found.told_of_bins
    if region.found.gated and (region.found.applied or region.found.normed):
        safety = Safety.REVIEW
        reason += "; gradients of what nothing is routed to are zero instead of None"
    elif region.found.gated and _carries_gradients(region.statements, context):
        safety = Safety.REVIEW
        reason += "; gradients are zero, or NaN, instead of None where nothing is selected"
    if region.found.asserted:
        safety, reason = Safety.REVIEW, "of nothing, compiled code raises RuntimeError in the graph"
    return Fix(
        "masked-update",
        safety,
        reason,
        region_edits(region, torch, context),
        context.needs_torch,
        whole=bool(region.found.bins),
    )


def _carries_gradients(statements: Sequence[ast.stmt], context: Context) -> bool:
    """Whether branches compute with what takes part in gradients, besides what they store in."""
    read: list[ast.AST] = []
    for branch in (n for s in statements for n in walk(s) if isinstance(n, (ast.If, ast.For))):
        if gradients_are_off(branch, context.info):
            continue
        for node in (n for s in branch.body for n in walk(s)):
            if isinstance(node, (ast.Assign, ast.AugAssign)):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                stored = ast.unparse(target.value) if isinstance(target, ast.Subscript) else ""
                names = (n for n in walk(node.value) if isinstance(n, (ast.Name, ast.Attribute)))
                read += [n for n in names if stored not in used_names(n)]
    return reads_gradients(read, context.analysis, context.facts)


def _spares_selection(site: BreakSite, context: Context) -> bool:
    """Whether a branch asks if anything is selected, and selects rows in its body."""
    node = site.node
    if not isinstance(node, ast.If) or not is_gate(node, context):
        return False
    inner = (n for s in node.body for n in walk(s) if isinstance(n, (ast.Subscript, ast.Call)))
    return any(
        n in context.analysis.places and shape_from_data(n, context.analysis) is not None
        for n in inner
    )


TRANSFORM = Transform(
    name="masked-update",
    codes=(MASK_INDEX.code, NONZERO.code, TENSOR_BRANCH.code),
    summary="write rows that a mask selects with `torch.where`",
    doc=__doc__ or "",
    propose=propose,
    rank=7,
)
