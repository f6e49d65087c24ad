"""Writes one update of a tensor so that it only counts where the predicate holds.

`p.sub_(lr * g)` becomes `p.copy_(torch.where(holds, p.sub(lr * g), p))`, or binds the name anew where
that is the only way to the tensor. Knows one statement, nothing of the block that it stands in.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from gbfix.analysis.conditions import Refused
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.values import Kind
from gbfix.lowering.conditional.checks import check_computed, check_index, check_place
from gbfix.lowering.conditional.scope import Scope
from gbfix.lowering.gradients import gradients_are_off, without_gradient
from gbfix.lowering.owned import is_own
from gbfix.lowering.stores import has_value_form, value_of

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|",
}  # fmt: skip


@dataclass
class Written:
    """What was written so far.

    Attributes:
        stored: how many updates.
        held: whether one is of a tensor that others may hold.
        kept: what is updated and held by an object, with gradients recorded.
        unset: attributes that are not set, since nothing reads them.
        nested: whether branches inside of the arms are decided as well.
        unbounded: operations with gradients whose derivative may be infinite where they do not count.
    """

    stored: int = 0
    held: bool = False
    kept: list[str] = field(default_factory=list)
    unset: list[str] = field(default_factory=list)
    nested: bool = False
    unbounded: list[str] = field(default_factory=list)


def update_calls(node: ast.expr) -> tuple[ast.expr, list[ast.Call]]:
    """What a chain of calls updates in place, and the calls in the order in which they are made."""
    calls: list[ast.Call] = []
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if not has_value_form(node):
            break
        calls.insert(0, node)
        node = node.func.value
    return node, calls


def called_update(statement: ast.Expr, scope: Scope, written: Written) -> str:
    """`p.mul_(decay).add_(step)`, under the predicate."""
    node, calls = update_calls(statement.value)
    given = [a for c in calls for a in (*c.args, *(k.value for k in c.keywords))]
    check_computed(given, scope)
    check_place(node, scope)
    place = scope.text(node)
    own = _is_own(node, statement, scope)
    start = place
    if not own and not _is_linear(calls, scope):
        if not gradients_are_off(statement, scope.analysis.info):
            start = f"{place}.clone()"  # what autograd keeps of it may not change
    value = value_of(start, calls, scope.text, scope.torch, place)
    last = calls[-1].func
    assert isinstance(last, ast.Attribute)
    if last.attr == "copy_":
        copied = scope.analysis.values.get(calls[-1].args[0])
        mine = scope.analysis.values.get(node)
        if copied is None or not copied.tensor:
            raise Refused("value-unproven", f"`{value}` is not proven to be a tensor")
        if mine is None or mine.dtype != copied.dtype:
            value = f"{_operand(value)}.to({place}.dtype)"
        given = []
    _keep(node, [a for c in calls for a in c.args], statement, scope, written)
    if own:
        return _rebound(node, place, value, given, scope, written)
    return _stored(place, value, scope, written)


def augmented_update(statement: ast.AugAssign, scope: Scope, written: Written) -> str:
    """`p += step`, under the predicate."""
    symbol = _OPERATORS.get(type(statement.op))
    value = scope.analysis.values.get(statement.target)
    if symbol is None or dotted(statement.target) is None:
        raise Refused("statement-in-arm", f"line {statement.lineno} is no update in place")
    if value is None or not value.tensor:
        name = ast.unparse(statement.target)
        raise Refused("unknown-result", f"`{name}` is not proven to be a tensor")
    _keep(statement.target, [statement.value], statement, scope, written)
    check_computed([statement.value], scope)
    place = scope.text(statement.target)
    right = scope.text(statement.value)
    loose = not isinstance(statement.value, (ast.Name, ast.Attribute, ast.Call, ast.Constant))
    right = f"({right})" if loose else right
    text = f"{place} {symbol} {right}"
    if _is_own(statement.target, statement, scope):
        given = [statement.value]
        return _rebound(statement.target, place, text, given, scope, written)
    factor = scope.analysis.values.get(statement.value)
    linear = isinstance(statement.op, (ast.Add, ast.Sub)) or (factor is not None and factor.static)
    if not linear and not gradients_are_off(statement, scope.analysis.info):
        text = f"{place}.clone() {symbol} {right}"
    return _stored(place, text, scope, written)


def part_update(
    statement: ast.Assign, target: ast.Subscript, scope: Scope, written: Written
) -> list[str]:
    """`p[i] = value`, under the predicate."""
    base = scope.analysis.values.get(target.value)
    given = scope.analysis.values.get(statement.value)
    if base is None or not base.tensor or dotted(target.value) is None:
        raise Refused("statement-in-arm", f"an arm assigns `{ast.unparse(target)}`")
    mask = scope.analysis.values.get(target.slice)
    if mask is not None and mask.tensor and mask.boolean and given is not None:
        if not given.only(Kind.STATIC):
            raise Refused("mask-index", f"`{ast.unparse(target)}` is written by a mask as well")
        check_computed([statement.value, target.slice], scope)
        written.stored += 1
        index = _operand(scope.text(target.slice))
        place = f"{scope.text(target.value)}[{index} & {scope.predicate}]"
        return [f"{place} = {scope.text(statement.value)}"]
    check_index(target.slice, scope)
    check_computed([statement.value], scope)
    place, value = scope.text(target), scope.text(statement.value)
    if given is None or not (given.tensor or given.static):
        raise Refused("value-unproven", f"`{value}` is not proven to be a tensor or a number")
    if given.tensor and given.dtype != base.dtype:
        value = f"{_operand(value)}.to({scope.text(target.value)}.dtype)"
    whole = isinstance(statement.value, ast.Constant) and type(statement.value.value) is int
    if not given.tensor and not (base.floating or whole):
        raise Refused("dtype-unproven", f"`{place}` is not proven to be of a floating dtype")
    written.stored += 1
    lines: list[str] = []
    _keep(target.value, [statement.value], statement, scope, written)
    if _is_own(target.value, statement, scope):  # what autograd keeps of it may not change
        name = scope.text(target.value)
        lines.append(f"{name} = {name}.clone()")
    return [*lines, f"{place} = {scope.torch}.where({scope.predicate}, {value}, {place})"]


def part_augmented(
    statement: ast.AugAssign, target: ast.Subscript, scope: Scope, written: Written
) -> list[str]:
    """`p[i] += step`, under the predicate."""
    symbol = _OPERATORS.get(type(statement.op))
    base = scope.analysis.values.get(target.value)
    given = scope.analysis.values.get(statement.value)
    if symbol is None or base is None or not base.tensor or dotted(target.value) is None:
        raise Refused("statement-in-arm", f"an arm changes `{ast.unparse(target)}`")
    if given is None or not (given.tensor or given.static):
        value = scope.text(statement.value)
        raise Refused("value-unproven", f"`{value}` is not proven to be a tensor or a number")
    check_index(target.slice, scope)
    check_computed([statement.value], scope)
    place, name = scope.text(target), scope.text(target.value)
    value = f"{place} {symbol} {_operand(scope.text(statement.value))}"
    same = given.tensor and (given.dtype == base.dtype or (given.boolean and base.boolean))
    if not same and not (given.static and base.floating):
        value = f"({value}).to({name}.dtype)"
    written.stored += 1
    lines: list[str] = []
    _keep(target.value, [statement.value], statement, scope, written)
    whole = base.boolean or base.integer or symbol in {"&", "|"}
    if not whole and not gradients_are_off(statement, scope.analysis.info):
        if _is_own(target.value, statement, scope):
            lines.append(f"{name} = {name}.clone()")
        elif symbol not in {"+", "-"} and not given.static:
            raise Refused("mutates-operand", f"the product keeps `{name}` as it was for autograd")
    return [*lines, f"{place} = {scope.torch}.where({scope.predicate}, {value}, {place})"]


def _keep(
    node: ast.expr,
    given: Sequence[ast.expr],
    statement: ast.stmt,
    scope: Scope,
    written: Written,
) -> None:
    """Note what is updated, if an object holds it and its graph."""
    name = ast.unparse(node)
    if "." in name and not name.endswith(".data"):
        facts = scope.context.facts
        data = all(without_gradient(n, scope.analysis, facts) for n in (node, *given))
        if not data and not gradients_are_off(statement, scope.analysis.info):
            written.kept.append(name)


def _is_own(node: ast.expr, statement: ast.stmt, scope: Scope) -> bool:
    """Whether a local name is the only way to what is updated, so that it may be rebound."""
    if scope.depth or not isinstance(node, ast.Name):
        return False
    return is_own(node.id, statement, scope.context)


def _is_linear(calls: Sequence[ast.Call], scope: Scope) -> bool:
    """Whether no derivative of the calls needs what was there before."""
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        values = [scope.analysis.values.get(a) for a in call.args]
        numbers = all(v is not None and v.static for v in values)
        if call.func.attr not in {"add_", "sub_", "copy_", "fill_", "zero_"} and not (
            call.func.attr in {"mul_", "div_"} and numbers
        ):
            return False
    return True


def _rebound(
    node: ast.expr,
    place: str,
    value: str,
    given: Sequence[ast.expr],
    scope: Scope,
    written: Written,
) -> str:
    written.stored += 1
    mine = scope.analysis.values.get(node)
    values = [scope.analysis.values.get(a) for a in given]
    same = mine is not None and all(
        v is not None and ((v.tensor and v.dtype == mine.dtype) or (v.static and mine.floating))
        for v in values
    )
    cast = "" if same else f".to({place}.dtype)"
    return f"{place} = {scope.torch}.where({scope.predicate}, {value}, {place}){cast}"


def _stored(place: str, value: str, scope: Scope, written: Written) -> str:
    written.stored += 1
    written.held = True
    return f"{place}.copy_({scope.torch}.where({scope.predicate}, {value}, {place}))"


def _operand(text: str) -> str:
    node = ast.parse(text, mode="eval").body
    bare = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant))
    return text if bare else f"({text})"
