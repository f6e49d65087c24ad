"""Keeps a Python number that went into a tensor, where it would be read back from it.

A shape stored with `torch.tensor([h, w])`, lengths that are all the same, the steps of an `arange`:
the number was there before the tensor was, and Dynamo knows it. Reading it back from the tensor ends
the graph for nothing.

Before:

    def forward(self, x: torch.Tensor):
        size = torch.tensor(x.shape)
        height, width = size[0].item(), size[1].item()
        return x * height / width + size.sum()

After:

    def forward(self, x: torch.Tensor):
        size = torch.tensor(x.shape)
        height, width = x.shape[0], x.shape[1]
        return x * height / width + size.sum()

Only integers are kept: a float is rounded when it is put into a tensor. Where a read would fail for
an empty tensor, eager code still reads.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.reads import ReadKind
from gbfix.diagnoses import SCALAR_READ, TENSOR_POSITION, TENSOR_TO_LIST
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.contents import Number, Reader
from gbfix.lowering.doubling import beside_read
from gbfix.source.text import Edit

_FLOATS = {"builtins.float": "float({})", "builtins.bool": "bool({})"}


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to keep the number.

    Raises:
        Refused: where it is not known what the tensor was made of.
    """
    read = site.read
    if read is None or read.opaque:
        raise NotApplicable("no-read", "nothing is read here")
    reader = Reader(context.analysis, context.view)
    if read.kind is ReadKind.LIST:
        row = reader.row(read.tensor)
        if row is None:
            raise NotApplicable("not-kept", "the tensor was not made of Python integers here")
        return _plain(row, site, context)
    number = reader.number(read.tensor)
    if number is None:
        raise NotApplicable("not-kept", "the tensor was not made of Python integers here")
    text = _text(number, read.node, site, context)
    if not number.guarded:
        return _plain(text, site, context)
    if read.kind is ReadKind.POSITION:
        raise Refused("may-be-empty", "eager code would fail for an empty tensor")
    edits = beside_read(read.node, text, read.statement, context)
    reason = "every element is this number; an empty tensor only fails in eager code"
    return Fix("keep-number", Safety.REVIEW, reason, edits, context.needs_torch)


def _plain(text: str, site: BreakSite, context: Context) -> Fix:
    assert site.read is not None
    view = context.view
    edit = Edit(view.start(site.read.node), view.end(site.read.node), text)
    reason = "the tensor was made of this number, which Dynamo knows"
    return Fix("keep-number", Safety.SAFE, reason, (edit,))


def _text(number: Number, node: ast.expr, site: BreakSite, context: Context) -> str:
    """The number as the read gives it: a float from `float(t)`, in parentheses where needed."""
    value = context.analysis.values.get(node.func) if isinstance(node, ast.Call) else None
    wrapped = _FLOATS.get(value.reference or "") if value is not None else None
    if wrapped is not None:
        return wrapped.format(number.text)
    parent = context.info.module.parents.get(node)
    tight = isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.Attribute, ast.Subscript, ast.Compare))
    return f"({number.text})" if number.loose and tight else number.text


TRANSFORM = Transform(
    name="keep-number",
    codes=(SCALAR_READ.code, TENSOR_TO_LIST.code, TENSOR_POSITION.code),
    summary="keep a Python number instead of reading it back from a tensor",
    doc=__doc__ or "",
    propose=propose,
    rank=4,
)
