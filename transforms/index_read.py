"""Indexes with a tensor instead of with the number that was read from it.

`x[i.item()]` and `x[int(i)]` read a number only to select with it, and `x[scores.argmax()]` makes
Dynamo read one. A tensor of one index selects the same, and stays in the graph. It is given one
dimension, which is taken away again, for Dynamo makes a number of an index of shape `[]`.

Before:

    def forward(self, x: torch.Tensor):
        best = x.sum(-1).argmax().item()
        return x[best] * 2

After:

    def forward(self, x: torch.Tensor):
        if torch.compiler.is_compiling():
            best = x.sum(-1).argmax().reshape(1)
            return x[best].squeeze(0) * 2
        best = x.sum(-1).argmax().item()
        return x[best] * 2

A number selects a view, a tensor a copy. Where the view could be told from a copy, because it is
returned, stored, handed on or changed in place, nothing is done. The index is taken to be an integer:
eager code fails for a float.
"""

from __future__ import annotations

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable
from gbfix.analysis.reads import ReadKind
from gbfix.diagnoses import SCALAR_READ, TENSOR_POSITION
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.index_selection import Selection


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to select with the tensor.

    Raises:
        Refused: where the number is used for more, or the copy could be told from a view.
    """
    read = site.read
    if read is None or read.kind not in (ReadKind.NUMBER, ReadKind.INDEX):
        raise NotApplicable("no-number", "no number is read here")
    return Selection(context).fix(read.node, read.tensor)


TRANSFORM = Transform(
    name="index-read",
    codes=(SCALAR_READ.code, TENSOR_POSITION.code),
    summary="select with a tensor instead of a number read from it",
    doc=__doc__ or "",
    propose=propose,
    rank=22,
)
