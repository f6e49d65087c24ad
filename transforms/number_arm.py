"""Computes a branch that gives a name a number or a tensor with `torch.cond`, the number as a tensor.

Where a ratio is only taken if it can be, and is 1 otherwise, the two ways give a tensor and a Python
number. If the name only meets tensors afterwards, a tensor of one element does the same as the number.

Before:

    def step(p: torch.Tensor, update: torch.Tensor):
        size, change = p.norm(), update.norm()
        if size > 0:
            ratio = size / change
        else:
            ratio = 1.0
        return p - update * ratio

After:

    def step(p: torch.Tensor, update: torch.Tensor):
        size, change = p.norm(), update.norm()
        if torch.compiler.is_compiling():
            ratio = torch.cond(
                size > 0, lambda: size / change, lambda: torch.full_like(size / change, 1.0)
            )
        elif size > 0:
            ratio = size / change
        else:
            ratio = 1.0
        return p - update * ratio

The tensor has to be one without dimensions, so that it changes no shape. In eager mode the number stays
one. A number that is returned, stored or handed on is left alone.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable, Refused, split
from gbfix.analysis.effects import effects
from gbfix.codegen import layout
from gbfix.codegen.expressions import flat
from gbfix.codegen.predicates import Renderer, single
from gbfix.diagnoses import TENSOR_BRANCH
from gbfix.findings import Safety
from gbfix.fixes import Context, Fix, Transform
from gbfix.lowering.choices import BranchChoice, literal
from gbfix.lowering.numbers import follow_choice
from gbfix.lowering.placement import around, compiled_block, width_for
from gbfix.lowering.views import block_of, is_elif

_REASON = "a tensor of one element takes the place of the number, and only meets tensors"


@dataclass(frozen=True)
class _Choice:
    """A name that is given a number or a tensor.

    Attributes:
        choice: the name, where it is bound, and the two values.
        statement: the branch, or the assignment of a conditional expression.
        tensor: the value that is no number.
    """

    choice: BranchChoice
    statement: ast.If | ast.Assign
    tensor: ast.expr


def propose(site: BreakSite, context: Context) -> Fix:
    """Offer `torch.cond` with a tensor in the place of the number.

    Raises:
        Refused: where the number may be needed as one.
    """
    found = _found(site.node, context)
    value = context.analysis.values.get(found.tensor)
    if value is None or not value.tensor:
        raise NotApplicable("no-number-arm", "neither way gives a tensor")
    if not (value.zero_dim and value.floating and value.unshared):
        text = ast.unparse(found.tensor)
        raise Refused("shape-unproven", f"`{text}` is not proven to be one new floating number")
    done = effects([found.tensor], context.analysis, context.facts)
    if not done.pure or done.random or done.dynamic or done.scalar:
        raise Refused("impure-arm", f"`{ast.unparse(found.tensor)}` does more than compute")
    _check_uses(found, context)
    torch = context.torch(found.statement)
    parts = split(found.choice.number.test, context.analysis, context.facts)
    if parts.guards:
        raise Refused("static-in-test", "the test also asks what is known while tracing")
    predicate = single(Renderer(context.view, context.analysis, torch).render(parts.predicate))
    arms = [
        _arm(arm, found.tensor, torch, context)
        for arm in (found.choice.number.body, found.choice.number.orelse)
    ]
    text = layout.call(
        f"{found.choice.name} = {torch}.cond",
        [predicate.text, *arms],
        width=width_for(context, found.statement),
        unit=context.unit,
    )
    if isinstance(found.statement, ast.Assign):
        edits = around(found.statement, text, torch, (), context)
    else:
        edits = (compiled_block(found.statement, text, torch, (), context, join="el"),)
    return Fix("number-arm", Safety.REVIEW, _REASON, edits, context.needs_torch)


def _found(node: ast.AST, context: Context) -> _Choice:
    """The choice that a branch or a conditional expression is."""
    parents = context.info.module.parents
    if isinstance(node, ast.IfExp):
        statement = parents[node]
        assigned = _assigned([statement]) if isinstance(statement, ast.Assign) else None
        if assigned is not None and assigned[1] is node:
            assert isinstance(statement, ast.Assign)
            return _made(node, (assigned[0],), statement)
    if isinstance(node, ast.If) and not is_elif(node, context.info.module):
        own = _assigned(node.body)
        block = block_of(node, context.info.module)
        at = block.index(node)
        other = _assigned(node.orelse) if node.orelse else _assigned(block[at - 1 : at])
        if own is not None and other is not None and own[0].id == other[0].id:
            return _made(ast.IfExp(node.test, own[1], other[1]), (own[0], other[0]), node)
    raise NotApplicable("no-number-arm", "no name is given a number or a tensor")


def _made(
    number: ast.IfExp, stores: tuple[ast.Name, ...], statement: ast.If | ast.Assign
) -> _Choice:
    numbers = [arm for arm in (number.body, number.orelse) if literal(arm) is not None]
    if len(numbers) != 1:
        raise NotApplicable("no-number-arm", "not one of the two ways gives a number")
    tensor = number.orelse if numbers[0] is number.body else number.body
    return _Choice(BranchChoice(stores[0].id, stores, number), statement, tensor)


def _assigned(body: list[ast.stmt]) -> tuple[ast.Name, ast.expr] | None:
    statement = body[0] if len(body) == 1 else None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Name):
            return target, statement.value
    return None


def _check_uses(found: _Choice, context: Context) -> None:
    """The name, as it is, only meets tensors."""
    course = follow_choice(found.choice, found.statement, context.analysis)
    direct = all(isinstance(m.number, ast.Name) and not m.scales for m in course.meetings)
    if not course.meetings or not direct or course.tests or course.functions:
        name = found.choice.name
        raise Refused("scalar-escapes", f"more is done with `{name}` than to compute with tensors")
    number = found.choice.number
    plain = number.orelse if number.body is found.tensor else number.body
    for meeting in course.meetings:
        value = context.analysis.values.get(meeting.partner)
        # Integers become floating with a float as well.
        if value is None or not (value.floating or isinstance(literal(plain), float)):
            text = ast.unparse(meeting.partner)
            raise Refused("dtype-unproven", f"`{text}` is not proven to be floating")


def _arm(arm: ast.expr, tensor: ast.expr, torch: str, context: Context) -> str:
    text = flat(context.view, tensor)
    if arm is tensor:
        return f"lambda: {text}"
    return f"lambda: {torch}.full_like({text}, {flat(context.view, arm)})"


TRANSFORM = Transform(
    name="number-arm",
    codes=(TENSOR_BRANCH.code,),
    summary="compute a branch between a number and a tensor with torch.cond",
    doc=__doc__ or "",
    propose=propose,
    rank=38,
)
