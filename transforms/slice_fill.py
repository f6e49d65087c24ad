"""Fills a slice whose bounds a tensor says by a mask of positions.

Where a slice with a bound from data is given one number, the number is written where the position in
that dimension lies between the bounds.

Before:

    def forward(self, x: torch.Tensor):
        n = x.abs().sum().long()
        mask = torch.zeros(2, 8, device=x.device)
        mask[0, :n] = 1.0
        return mask

After:

    def forward(self, x: torch.Tensor):
        n = x.abs().sum().long()
        mask = torch.zeros(2, 8, device=x.device)
        if torch.compiler.is_compiling():
            part = mask[0]
            places = torch.arange(part.shape[0], device=part.device)
            part.masked_fill_(places < n, 1.0)
        else:
            mask[0, :n] = 1.0
        return mask

A loop over `lengths.tolist()` then runs over the tensor. A slice that is given the same slice of
another tensor, `out[i, :n] = x[i, :n]`, takes the elements of that.

Any number of dimensions may have such bounds. A bound beyond the end means the end, as in Python. A
bound that is a difference, `mask[i, n - 2 :] = 0`, counts from the end where it is negative, in the
compiled path too. Any other negative bound means the beginning there, which is why the fix asks for
a review; a bound that is written as negative is left alone.
"""

from __future__ import annotations

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable
from gbfix.analysis.reads import ReadKind
from gbfix.diagnoses import SCALAR_READ, TENSOR_POSITION, TENSOR_TO_LIST
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.fills import Fills


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to fill by a mask.

    Raises:
        Refused: where the slice is given more than one number, or a bound is needed as a number.
    """
    read = site.read
    if read is None or read.opaque or read.kind is ReadKind.INDEX:
        raise NotApplicable("no-slice", "no bound of a slice is read here")
    fills = Fills(context, context.torch(site.statement))
    if read.kind is ReadKind.LIST:
        fills.follow_list(read)
    else:
        fills.follow(read)
    return Fix(
        "slice-fill",
        Safety.REVIEW,
        "a negative bound counts from the end in eager code, and means the beginning when compiled",
        fills.edits(),
        context.needs_torch,
    )


TRANSFORM = Transform(
    name="slice-fill",
    codes=(TENSOR_POSITION.code, SCALAR_READ.code, TENSOR_TO_LIST.code),
    summary="fill a slice whose bounds a tensor says by a mask of positions",
    doc=__doc__ or "",
    propose=propose,
    rank=21,
)
