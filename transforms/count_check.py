"""Checks how many rows a mask selects without selecting them.

Where a selection is made only to compare its size with a number, and to raise if it differs, the true
elements of the mask are counted inside the graph instead.

Before:

    def forward(self, x: torch.Tensor):
        if x[x > 0].shape[0] == x.numel():
            raise ValueError("nothing is negative")
        return self.net(x)

After:

    def forward(self, x: torch.Tensor):
        if torch.compiler.is_compiling():
            mask = x > 0
            torch._assert_async(mask.sum() != x.numel(), "nothing is negative")
        elif x[x > 0].shape[0] == x.numel():
            raise ValueError("nothing is negative")
        return self.net(x)

In the compiled path a failing check raises `RuntimeError`, as with the fix `check`. The setting
`check = "skip"` leaves the check to the eager path. `len(torch.unique(x)) > 1` asks whether elements
differ: in the graph each is compared with the one before it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused
from gbfix.analysis.values import Kind
from gbfix.codegen import layout
from gbfix.codegen.comparisons import OPPOSITE, SYMBOLS
from gbfix.codegen.expressions import operand
from gbfix.codegen.messages import assertion_message
from gbfix.diagnoses import MASK_INDEX, NONZERO, UNIQUE
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.dense.block import DenseBlock
from gbfix.lowering.dense_region import Region, region_edits
from gbfix.lowering.distinct import Distinct, distinct
from gbfix.lowering.placement import eager_only_test, width_for
from gbfix.lowering.validations import RAISES, SKIPS, check_not_caught, check_only_raises
from gbfix.lowering.views import is_elif
from gbfix.settings import CheckStyle


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to count what a mask selects where only the number is checked.

    Raises:
        Refused: where the branch does more than raise, or more than the number is asked for.
    """
    node = site.statement
    view, analysis = context.view, context.analysis
    if isinstance(node, ast.Assert):
        symbols = SYMBOLS
        message = assertion_message(node.msg, view, analysis, test=node.test)
    elif isinstance(node, ast.If) and node.body and isinstance(node.body[-1], ast.Raise):
        if node.orelse or is_elif(node, context.info.module):
            raise Refused("check-with-else", "the check has other arms")
        check_only_raises(node.body, context)
        symbols = OPPOSITE
        message = assertion_message(node.body[-1].exc, view, analysis)
    else:
        raise NotApplicable("not-a-check", "nothing is raised for the number of rows")
    check_not_caught(node, context)
    torch = context.torch(node)
    if context.settings.check is CheckStyle.SKIP and isinstance(node, ast.If):
        edits = eager_only_test(node, torch, context)
        return Fix("count-check", Safety.REVIEW, SKIPS, edits, context.needs_torch)
    block = DenseBlock(context, torch)
    block.statement = node
    asked = distinct(node.test, analysis)
    if asked is not None:
        fine = _alike(asked, isinstance(node, ast.Assert), block)
    else:
        fine = _fine(node.test, symbols, block)
    call = layout.call(
        f"{torch}._assert_async",
        [fine, message],
        width=width_for(context, node),
        unit=context.unit,
    )
    lines = (*block.lines, call)
    region = Region((node,), lines, tuple(block.masks.tests), block.found)
    edits = region_edits(region, torch, context)
    return Fix("count-check", Safety.REVIEW, RAISES, edits, context.needs_torch)


def _alike(asked: Distinct, is_assertion: bool, block: DenseBlock) -> str:
    """The elements are all the same, as what is to hold."""
    if asked.alike is not is_assertion:
        raise Refused("unusual-condition", "the check is that elements differ")
    context = block.context
    values = context.names.take("values")
    block.lines.append(f"{values} = {operand(context.view, asked.tensor)}.flatten()")
    alike = f"({values}[1:] == {values}[:-1]).all()"
    return f"{alike} & ({values}.numel() > 0)" if asked.some else alike


def _fine(test: ast.expr, symbols: Mapping[type[ast.cmpop], str], block: DenseBlock) -> str:
    """The comparison that is to hold, with the number of selected rows as a tensor."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or type(test.ops[0]) not in symbols:
        raise Refused("unusual-condition", "the number of rows is not compared with a number")
    sides = [(node, block.lower(node)) for node in (test.left, test.comparators[0])]
    if not any(side.count is not None for _, side in sides):
        raise NotApplicable("not-a-count", "more than the number of selected rows is checked")
    for node, side in sides:
        known = block.context.analysis.values.get(node)
        if side.rows is not None:
            raise Refused("rows-leave", f"`{ast.unparse(node)}` is compared itself")
        if side.count is None and (
            known is None or not known.only(Kind.STATIC) or known.reference is not None
        ):
            raise Refused("unusual-condition", f"`{ast.unparse(node)}` may not be a number")
    return f"{sides[0][1].operand} {symbols[type(test.ops[0])]} {sides[1][1].operand}"


TRANSFORM = Transform(
    name="count-check",
    codes=(MASK_INDEX.code, NONZERO.code, UNIQUE.code),
    summary="check how many rows a mask selects without selecting them",
    doc=__doc__ or "",
    propose=propose,
    rank=8,
)
