"""Finds the elements of a slice by index, where it starts at a place that a tensor holds.

Python reads a number out of a tensor that is the bound of a slice, and Dynamo ends the graph there, as
in a cache that is written at its current position. Where the slice is as long for all data, the
compiled path counts its elements from the start that the tensor holds.

Before:

    def write(cache: torch.Tensor, key: torch.Tensor):
        at = key.sum(1).argmin()
        cache = cache.clone()
        cache[:, at : at + 1] = key[:, :1]
        return cache

After:

    def write(cache: torch.Tensor, key: torch.Tensor):
        at = key.sum(1).argmin()
        cache = cache.clone()
        if torch.compiler.is_compiling():
            places = at + torch.arange(1, device=cache.device)
            cache[:, places] = key[:, :1].to(cache)
        else:
            cache[:, at : at + 1] = key[:, :1]
        return cache

The write stays in place, and a value of another dtype is converted as the slice converts it. A start
that is read with `.item()` or `int()` stays a tensor in the compiled path if nothing but such slices
needs it.

Where the slice reaches beyond an end of the dimension, Python cuts it off, so that eager code writes
less or raises for the sizes. The compiled code raises IndexError beyond the last place, and counts a
negative place from the end. This is why the fix asks for a review. Slices whose
length depends on data are left alone: `x[:n]`, or two bounds that are not a known step apart. So is
what is read by a slice and then kept: the slice is a view, what is indexed is a copy.
"""

from __future__ import annotations

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable
from gbfix.analysis.reads import ReadKind
from gbfix.diagnoses import SCALAR_READ, TENSOR_POSITION
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.windows import Windows


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to index instead of slicing.

    Raises:
        Refused: where the length depends on data, or the start is needed as a number.
    """
    read = site.read
    if read is None or read.opaque or read.kind in (ReadKind.LIST, ReadKind.INDEX):
        raise NotApplicable("no-slice", "no bound of a slice is read here")
    windows = Windows(context, context.torch(site.statement))
    windows.follow(read)
    return Fix(
        "index-slice",
        Safety.REVIEW,
        "where the slice reaches beyond an end of the dimension, eager code cuts it off; compiled code "
        "raises IndexError, or counts a negative place from the end",
        windows.edits(),
        context.needs_torch,
    )


TRANSFORM = Transform(
    name="index-slice",
    codes=(TENSOR_POSITION.code, SCALAR_READ.code),
    summary="index the elements of a slice that starts where a tensor says",
    doc=__doc__ or "",
    propose=propose,
    rank=22,
)
