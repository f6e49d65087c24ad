"""Counts of selected integers into as many bins as are asked for: what is not selected adds zero."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import operands
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat
from gbfix.lowering.dense.forms import filled
from gbfix.lowering.selection import Lowered

if TYPE_CHECKING:
    from gbfix.lowering.dense.block import DenseBlock

_PARAMETERS = ("input", "weights", "minlength")


def counted_in_bins(block: DenseBlock, node: ast.Call) -> Lowered | None:
    """`torch.bincount(x[mask], minlength=n)`; None where what is counted was not selected.

    Raises:
        Refused: for weights, or an unknown number of bins.
    """
    given = operands(node, block.context.analysis)
    named = {k.arg: k.value for k in node.keywords} | dict(zip(_PARAMETERS, given, strict=False))
    if "input" not in named or not named.keys() <= set(_PARAMETERS):
        return None
    inner = block.lower(named["input"])
    if inner.rows is None:
        return None
    length = named.get("minlength")
    value = block.context.analysis.values.get(length) if length is not None else None
    number = value is not None and not value.kinds & (Kind.TENSOR | Kind.SCALAR)
    if length is None or not number or "weights" in named:
        raise Refused("reduction-form", f"`{ast.unparse(node)}` has no dense form here")
    rows = inner.rows
    chosen = f"({rows.text})" if rows.inverted else rows.text
    flattened = "" if rows.rank == 1 else ".flatten()"
    size = flat(block.context.view, length)
    bins = block.context.names.take("bins")
    block.lines.append(f"{bins} = {filled(block, inner, 0).text}.long(){flattened}")
    block.found.reductions += 1
    block.found.bins = size
    return Lowered(
        f"{bins}.new_zeros({size}).scatter_add(0, {bins}, {chosen}.long(){flattened})",
        True,
        changed=True,
    )
