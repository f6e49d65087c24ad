"""Tests that ask whether there is anything to do: `mask.any()`, `not keep.all()`, `count == 0`.

Code under such a test is often only skipped to save work. The module says for which truth of a test
there is nothing to do, and which masks then select nothing or everything. That skipping really changes
nothing is for others to prove, or to run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gbfix.analysis.conditions import Combined, Negated, Predicate
from gbfix.analysis.equality import member
from gbfix.analysis.values import Value
from gbfix.lowering.neutral import Neutral, reduced, zero_test

Values = Mapping[ast.AST, Value]

_COUNTS = frozenset({"sum", "count_nonzero", "max", "amax", "norm"})
_READS = frozenset({"item", "bool", "cpu", "detach"})


@dataclass(frozen=True)
class Idle:
    """The truth of a test for which there is nothing to do, and what is known then."""

    truth: bool
    masks: tuple[Neutral, ...]


def idle(predicate: Predicate, values: Values) -> Idle | None:
    """What a predicate says, or None if it asks something else."""
    if isinstance(predicate, Negated):
        found = idle(predicate.part, values)
        return None if found is None else Idle(not found.truth, found.masks)
    if isinstance(predicate, Combined):
        return _combined([idle(part, values) for part in predicate.parts], predicate.conjunction)
    return _test(predicate.node, values)


def _combined(parts: Sequence[Idle | None], conjunction: bool) -> Idle | None:
    """`a.any() or b.any()`: nothing to do if neither has; `a.any() and b.any()` would know less."""
    found = [part for part in parts if part is not None]
    if len(found) != len(parts) or any(part.truth is not conjunction for part in found):
        return None
    return Idle(conjunction, tuple(mask for part in found for mask in part.masks))


def _test(node: ast.expr, values: Values) -> Idle | None:
    node = _read(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        found = _test(node.operand, values)
        return None if found is None else Idle(not found.truth, found.masks)
    if isinstance(node, ast.Compare) and member(node) is None:
        return _counted(node, values)
    reduction = reduced(node)
    if reduction is None:
        return None
    name, inner = reduction
    if name == "any":
        return Idle(False, (_mask(inner, values, nothing=True),))
    return Idle(True, (_mask(inner, values, nothing=False),))


def _mask(node: ast.expr, values: Values, *, nothing: bool) -> Neutral:
    """What is known of a mask that is false everywhere, or true everywhere."""
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        node, nothing = node.operand, not nothing
    zero = zero_test(node, ast.Eq)
    if zero is not None:  # `(mask == 0).any()` is false: no zero
        return Neutral(zero, False, not nothing)
    zero = zero_test(node, ast.NotEq)
    if zero is not None:
        return Neutral(zero, False, nothing)
    return Neutral(ast.unparse(node), _is_boolean(node, values), nothing)


def _counted(node: ast.Compare, values: Values) -> Idle | None:
    """`mask.sum() == 0`, `count_nonzero(x) > 0`, `d.abs().max() == 0`, `keep.sum() == keep.numel()`."""
    if len(node.ops) != 1:
        return None
    left, right, operator = _read(node.left), _read(node.comparators[0]), type(node.ops[0])
    if isinstance(right, ast.Call) and ast.unparse(right).endswith(".numel()"):
        counted = _counts(left, values)
        if counted is None or operator not in (ast.Eq, ast.NotEq, ast.Lt):
            return None
        return Idle(operator is ast.Eq, (_mask(counted, values, nothing=False),))
    if not isinstance(right, ast.Constant) or type(right.value) not in (int, float, bool):
        return None
    counted = _counts(left, values)
    if counted is None:
        return None
    empty = {(ast.Eq, 0), (ast.LtE, 0), (ast.Lt, 1)}
    some = {(ast.NotEq, 0), (ast.Gt, 0), (ast.GtE, 1)}
    known = (_mask(counted, values, nothing=True),)
    if (operator, right.value) in empty:
        return Idle(True, known)
    return Idle(False, known) if (operator, right.value) in some else None


def _counts(node: ast.expr, values: Values) -> ast.expr | None:
    """What a reduction counts: it is zero only if every element is.

    The sum of a tensor of any sign is no count: `x.sum() > 0` asks something else.
    """
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    name = node.func.attr
    on_torch = isinstance(node.func.value, ast.Name) and node.func.value.id in {"torch", "th"}
    if name not in _COUNTS or node.keywords or len(node.args) != int(on_torch):
        return None
    inner = node.args[0] if on_torch else node.func.value
    if name in {"count_nonzero", "norm"} or _is_boolean(inner, values):
        return inner
    absolute = isinstance(inner, ast.Call) and (
        isinstance(inner.func, ast.Attribute) and inner.func.attr in {"abs", "square"}
    )
    return inner if absolute else None


def _read(node: ast.expr) -> ast.expr:
    """The tensor behind `bool(t)` and `t.item()`."""
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in {"bool", "int"}:
            if len(node.args) != 1:
                break
            node = node.args[0]
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _READS and not node.args:
            node = node.func.value
        else:
            break
    return node


def _is_boolean(node: ast.expr, values: Values) -> bool:
    """Whether an expression is known to be a tensor of dtype bool."""
    value = values.get(node)
    return value is not None and value.tensor and value.boolean
