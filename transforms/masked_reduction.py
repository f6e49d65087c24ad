"""Reduces rows that a mask selects without selecting them.

`x[mask].sum()` is the sum of `x` with zeros elsewhere, `x[mask].mean()` that sum over the number of
true elements, and so on for `max`, `min`, `any`, `all`, `prod`, `norm`, `std`, `var`, and losses of
two selections, also with `reduction="none"`. Where a setting says how to reduce,
`if self.reduction == "sum": return losses.sum()`, each way gets its dense form. The eager path stays
the original.

Before:

    def forward(self, y: torch.Tensor):
        known = y >= 0
        return y[known].square().mean()

After:

    def forward(self, y: torch.Tensor):
        known = y >= 0
        if torch.compiler.is_compiling() and y.dtype != torch.float16:
            return y.masked_fill(~known, 0).square().sum() / known.sum()
        return y[known].square().mean()

The sum is formed in another order, so that the last bits may differ. A mean of `float16` stays what
it is, since the sum could overflow. The mean of nothing is NaN in both; one that is taken only if
something is selected, as in `y[known].mean() if known.any() else 0`, or returned early, before the
`return` of a number, is divided by one at least. The largest of nothing raises in eager; the compiled
path raises a RuntimeError from inside the graph.
"""

from __future__ import annotations

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable
from gbfix.diagnoses import MASK_INDEX, NONZERO
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.dense_region import region_edits, region_of
from gbfix.lowering.reductions import OVERFLOWING

_REGROUPED = "compiled code does not raise where the selected elements do not divide into groups"


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to reduce all rows, leaving out what is not selected.

    Raises:
        Refused: where something else is done with the selected rows.
    """
    torch = context.torch(site.statement)
    region = region_of(site, context, torch)
    if region.found.stores:
        raise NotApplicable("not-a-reduction", "selected rows are written, not only reduced")
    safety, reason = Safety.SAFE, "what is not selected is neutral to the reduction"
    if region.found.asserted:
        safety, reason = Safety.REVIEW, "of nothing, compiled code raises RuntimeError in the graph"
    elif region.found.retyped:
        safety, reason = Safety.UNSAFE, "of nothing, compiled code gives a tensor for a number"
    elif region.found.guarded:
        safety, reason = Safety.REVIEW, "of nothing, compiled code gives a tensor of this type"
    elif region.found.unwarned:
        safety, reason = Safety.REVIEW, "compiled code does not warn about fewer than two elements"
    elif region.found.regrouped:
        safety, reason = Safety.REVIEW, _REGROUPED
    elif region.found.overflowing:
        safety, reason = Safety.REVIEW, OVERFLOWING
    elif region.found.reordered:
        reason = "the same up to rounding: the sum is formed in another order"
    if region.found.normed:
        safety, reason = Safety.REVIEW, region.found.told_of_norms
    if region.found.bins:
        safety, reason = Safety.REVIEW, region.found.told_of_bins
    return Fix(
        "masked-reduction",
        safety,
        reason,
        region_edits(region, torch, context),
        context.needs_torch,
        whole=bool(region.found.bins),
    )


TRANSFORM = Transform(
    name="masked-reduction",
    codes=(MASK_INDEX.code, NONZERO.code),
    summary="reduce rows that a mask selects without selecting them",
    doc=__doc__ or "",
    propose=propose,
    rank=9,
)
