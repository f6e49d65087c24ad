"""What Python's operators make of values: `-x`, `not x`, `x + y`, `x > y`, `x in y`.

Knows kinds, dtypes and shapes of values, nothing of names or of where an operator stands.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.calls import item_of
from gbfix.analysis.equality import one_of
from gbfix.analysis.values import (
    ARRAY,
    MAYBE,
    SCALAR,
    STATIC,
    UNKNOWN,
    Kind,
    Value,
    container,
    join,
    replace,
    tensor,
)


def unary(operator: ast.unaryop, value: Value) -> Value:
    """The value of `operator value`."""
    if isinstance(operator, ast.Not):
        if value.kinds & (Kind.TENSOR | Kind.SCALAR) or value.array:
            return SCALAR
        return MAYBE if value.kinds & Kind.MAYBE else STATIC
    if value.tensor:
        return replace(tensor(like=value), unshared=True)
    return value


def binary(operator: ast.operator, left: Value, right: Value) -> Value:
    """The value of `left operator right`."""
    if not (left.tensor or right.tensor):
        kinds = left.kinds | right.kinds
        if left.array or right.array:
            return ARRAY
        if kinds & Kind.TENSOR:
            return Value(kinds & (Kind.TENSOR | Kind.MAYBE | Kind.SCALAR | Kind.STATIC))
        for kind, value in (
            (Kind.MAYBE, MAYBE),
            (Kind.SCALAR, SCALAR),
            (Kind.UNKNOWN, UNKNOWN),
        ):
            if kinds & kind:
                return value
        if isinstance(operator, ast.Add) and left.kinds & right.kinds & Kind.OBJECT:
            return container(join(item_of(left), item_of(right)))
        return STATIC
    result = tensor(unshared=True)
    tensors = [v for v in (left, right) if v.tensor]
    others = [v for v in (left, right) if not v.tensor]
    if isinstance(operator, ast.MatMult):
        return replace(result, floating=left.floating)
    numbers = all(v.only(Kind.STATIC | Kind.SCALAR) for v in others)
    first = tensors[0]
    if (len(tensors) == 1 and numbers) or all(v.shape == first.shape for v in tensors):
        result = replace(result, shape=first.shape, zero_dim=first.zero_dim)
    elif all(v.zero_dim for v in tensors):
        result = replace(result, zero_dim=True)
    logical = isinstance(operator, (ast.BitAnd, ast.BitOr, ast.BitXor))
    if logical and all(v.boolean for v in tensors) and not others:
        return replace(result, boolean=True)
    floating = any(v.floating for v in tensors)
    result = replace(
        result,
        floating=floating or isinstance(operator, ast.Div),
        turned=any(v.turned for v in tensors),
    )
    if (floating and len(tensors) == 1 and numbers) or (
        all(v.dtype == first.dtype for v in tensors) and floating and not others
    ):
        result = replace(result, dtype=first.dtype)
    return result


def compared(node: ast.Compare, values: Sequence[Value]) -> Value:
    """The value of a comparison, by those of its operands from left to right."""
    if all(isinstance(o, (ast.Is, ast.IsNot)) for o in node.ops):
        return STATIC
    if any(isinstance(o, (ast.In, ast.NotIn)) for o in node.ops):
        if values[-1].may_be_tensor and not _is_text(node.left):
            return SCALAR
        if item_of(values[-1]).kinds & Kind.SCALAR and not _is_text(node.left):
            return SCALAR
        listed = one_of(node) or values[-1].elements is not None
        if len(values) == 2 and values[0].tensor and listed:
            return SCALAR
        unknown = values[-1].only(Kind.UNKNOWN | Kind.MAYBE | Kind.NONE)
        return MAYBE if unknown and _asks_tensor(node) else STATIC
    kinds = 0
    for value in values:
        kinds |= value.kinds
    if any(_is_text(n) for n in (node.left, *node.comparators)):
        return STATIC  # no tensor is compared with a string
    if any(v.tensor for v in values):
        tensors = [v for v in values if v.tensor]
        same = all(v.shape == tensors[0].shape for v in tensors) and all(
            v.tensor or v.only(Kind.STATIC | Kind.SCALAR) for v in values
        )
        made = tensor(boolean=True, unshared=True, zero_dim=all(v.zero_dim for v in tensors))
        return replace(made, shape=tensors[0].shape) if same else made
    if any(v.array for v in values):
        return ARRAY
    if kinds & Kind.TENSOR:
        return Value(Kind.TENSOR | Kind.STATIC, boolean=True)
    if kinds & Kind.SCALAR:
        return SCALAR
    if kinds & Kind.MAYBE:
        return MAYBE
    return UNKNOWN if kinds & Kind.UNKNOWN else STATIC


def _asks_tensor(node: ast.Compare) -> bool:
    """`0.0 in x` and `0 in mask`: no list or dict is asked for a float, nor called a mask."""
    number, asked = node.left, node.comparators[-1]
    if not isinstance(number, ast.Constant) or type(number.value) not in (int, float):
        return False
    name = asked.id if isinstance(asked, ast.Name) else getattr(asked, "attr", "")
    return isinstance(number.value, float) or name.endswith("mask")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
