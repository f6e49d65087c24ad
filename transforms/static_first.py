"""Asks what is known while tracing before it asks a tensor.

In `t.any() or flag` the tensor is asked first, so that the graph breaks even where the flag alone
decides. `flag or t.any()` has the same truth and breaks only where it must; what is left is a branch
that `where`, `cond` and the like can treat.

Before:

    def forward(self, x: torch.Tensor):
        h = self.inner(x)
        if h.abs().max() > self.limit or self.force:
            h = self.shrink(h)
        return self.outer(h)

After:

    def forward(self, x: torch.Tensor):
        h = self.inner(x)
        if torch.compiler.is_compiling() and not self.force:
            h = torch.cond(h.abs().max() > self.limit, lambda: self.shrink(h), lambda: h.clone())
        elif self.force or h.abs().max() > self.limit:
            h = self.shrink(h)
        return self.outer(h)

Only operands that cannot fail change places with tensors whose evaluation has no effects. Where they
decide, the tensor is not asked any more, in eager mode as well: `ref[0] > 0 or flag` raised for an
empty tensor whatever the flag, and does not where it is set. Such a test asks for a review.
"""

from __future__ import annotations

import ast
from itertools import pairwise
from string import whitespace

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import (
    NotApplicable,
    Refused,
    check_unconditional,
    data_kind,
    is_total,
    leaves,
)
from gbfix.analysis.modules import last_name
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.diagnoses import LOOP_EXIT, TENSOR_ASSERT, TENSOR_BRANCH, TENSOR_RAISE
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.source.text import Edit

_FAIL_FOR_NONE = frozenset("max min amax amin aminmax argmax argmin median item".split())


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer to put the static operands of a test first.

    Raises:
        Refused: where asking in another order could be noticed.
    """
    test = site.test
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if not isinstance(test, ast.BoolOp) or site.node is test:
        raise NotApplicable("no-order", "the test is not an `and` or `or` that only decides")
    analysis, view = context.analysis, context.view
    data = [v for v in test.values if any(data_kind(leaf, analysis) for leaf in leaves(v))]
    late = [v for v in test.values[test.values.index(data[0]) :] if v not in data] if data else []
    if not late:
        raise NotApplicable("no-order", "nothing static is asked after a tensor")
    for operand in late:
        if _is_stored(operand, context):
            raise Refused("mixed-condition", f"`{ast.unparse(operand)}` may be a tensor by then")
        if not is_total(operand):
            raise Refused(
                "partial-condition",
                f"`{ast.unparse(operand)}` is protected by the tensor test before it",
            )
    for operand in data:
        check_unconditional(operand, analysis, context.facts)
    start, end = view.start(test.values[0]), view.end(test.values[-1])
    if view.has_comment(start, end):
        raise Refused("unusual-place", "comments stand between the operands")
    ordered = [v for v in test.values if v not in data] + data
    texts = [_operand(v, context) for v in ordered]
    places = _places(test, context)
    if "\n" not in view.slice(start, end):
        start, end = places[0][0], places[-1][1]
        word = " and " if isinstance(test.op, ast.And) else " or "
        edits: tuple[Edit, ...] = (Edit(start, end, word.join(texts)),)
    else:
        edits = tuple(Edit(*place, text) for place, text in zip(places, texts, strict=True))
    failing = next((v for v in data if not _always_answers(v, context)), None)
    if failing is None:
        reason = "the operands are the same, and the tensor is asked last"
        return Fix("static-first", Safety.SAFE, reason, edits)
    reason = (
        f"where `{ast.unparse(failing)}` fails, it fails only if the other operands let it be asked"
    )
    return Fix("static-first", Safety.REVIEW, reason, edits)


def _always_answers(operand: ast.expr, context: Context) -> bool:
    """Whether asking an operand for its truth fails for no tensor, an empty one included."""
    if isinstance(operand, ast.UnaryOp) and isinstance(operand.op, ast.Not):
        return _always_answers(operand.operand, context)
    if isinstance(operand, ast.BoolOp):
        return all(_always_answers(v, context) for v in operand.values)
    value = context.analysis.values.get(operand)
    if value is None or not (value.zero_dim or value.only(Kind.SCALAR | Kind.STATIC)):
        return False
    return not any(
        isinstance(n, ast.Subscript)
        or (isinstance(n, ast.Call) and last_name(n.func) in _FAIL_FOR_NONE)
        for n in walk(operand)
    )


def _places(test: ast.BoolOp, context: Context) -> list[tuple[int, int]]:
    """Where the operands stand, with the parentheses around each."""
    view, values = context.view, test.values
    spans = [(view.start(v), view.end(v)) for v in values]
    between = [view.slice(a[1], b[0]) for a, b in pairwise(spans)]
    closed = [t.count(")") - t.lstrip(")" + whitespace).count(")") for t in between]
    opened = [t.count("(") - t.rstrip("(" + whitespace).count("(") for t in between]
    depths = [closed[0], *map(min, closed[1:], opened), opened[-1]]
    text = view.source.text
    places = []
    for (start, end), depth in zip(spans, depths, strict=True):
        for _ in range(depth):
            start, end = text.rindex("(", 0, start), text.index(")", end) + 1
        places.append((start, end))
    return places


def _is_stored(operand: ast.expr, context: Context) -> bool:
    """Whether an operand reads an attribute that the function itself sets."""
    read = {n.attr for n in walk(operand) if isinstance(n, ast.Attribute)}
    return any(
        isinstance(n, ast.Attribute) and n.attr in read and not isinstance(n.ctx, ast.Load)
        for n in walk(context.info.node)
    )


def _operand(node: ast.expr, context: Context) -> str:
    text = context.view.text(node)
    loose = isinstance(node, (ast.IfExp, ast.Lambda, ast.NamedExpr, ast.BoolOp))
    return f"({text})" if loose or "\n" in text else text


TRANSFORM = Transform(
    name="static-first",
    codes=(TENSOR_BRANCH.code, LOOP_EXIT.code, TENSOR_RAISE.code, TENSOR_ASSERT.code),
    summary="ask what is known while tracing before a tensor",
    doc=__doc__ or "",
    propose=propose,
    rank=6,
)
