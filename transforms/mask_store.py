"""Writes a number where a mask holds by the mask itself, not by the places where it holds.

`torch.where(mask)` and `mask.nonzero(as_tuple=True)` give as many places as there are, a shape that
depends on data. The store needs no list of them.

Before:

    def forward(self, mask: torch.Tensor):
        mask[torch.where(mask.sum(-1) == mask.shape[-1])] = False
        return mask

After:

    def forward(self, mask: torch.Tensor):
        mask[mask.sum(-1) == mask.shape[-1]] = False
        return mask

Both mean the same to PyTorch, in eager mode as well, if the condition is a boolean tensor. Rows that
are read, or that are given values of their own, are the business of other fixes.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.dynamic import operands, operation_name
from gbfix.analysis.flow import Analysis
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat
from gbfix.diagnoses import NONZERO
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.source.text import Edit


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to store by the mask.

    Raises:
        Refused: where the condition may be no mask, or rows get values of their own.
    """
    node, statement = site.node, site.statement
    parent = context.info.module.parents[node]
    if not (
        isinstance(node, ast.Call)
        and isinstance(parent, ast.Subscript)
        and parent.slice is node
        and isinstance(statement, ast.Assign)
        and statement.targets == [parent]
    ):
        raise NotApplicable("not-a-store", "the places are not the index of a store")
    mask = _mask(node, context.analysis)
    value = context.analysis.values.get(mask)
    if value is None or not value.boolean:
        raise Refused("mask-unproven", f"`{ast.unparse(mask)}` is not proven to be boolean")
    given = context.analysis.values.get(statement.value)
    if given is None or not (given.only(Kind.STATIC) or (given.tensor and given.zero_dim)):
        raise Refused("row-values", "the rows get values that are not one number")
    edit = Edit(context.view.start(node), context.view.end(node), flat(context.view, mask))
    return Fix("mask-store", Safety.SAFE, "indexing by a mask is the same store", (edit,))


def _mask(node: ast.Call, analysis: Analysis) -> ast.expr:
    """What is asked for the places where it holds, one index for each dimension.

    Raises:
        NotApplicable: if the places come in another form.
    """
    name, given = operation_name(node, analysis), operands(node, analysis)
    options = {k.arg: k.value for k in node.keywords}
    separate = options.pop("as_tuple", None)
    tupled = isinstance(separate, ast.Constant) and separate.value is True
    if len(given) != 1 or options or name not in {"where", "nonzero"}:
        raise NotApplicable("other-form", "the places are listed in another form")
    if (name == "nonzero") != tupled:
        raise NotApplicable("other-form", "the places are rows of one tensor")
    return given[0]


TRANSFORM = Transform(
    name="mask-store",
    codes=(NONZERO.code,),
    summary="store a number by a mask instead of by the places where it holds",
    doc=__doc__ or "",
    propose=propose,
    rank=8,
)
