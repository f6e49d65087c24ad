"""Operations whose result has a shape that depends on tensor data, by kind.

Boolean masks that select, `nonzero` and its kin, `unique`, and sizes read from data. Knows values,
nothing of what is done with the result.
"""

from __future__ import annotations

import ast
import re

from gbfix.analysis import torch_table
from gbfix.analysis.dynamo_settings import DynamoSetting
from gbfix.analysis.flow import Analysis
from gbfix.analysis.modes import OF_OTHERS, Mode
from gbfix.analysis.values import Kind, Value
from gbfix.diagnoses import (
    DATA_SIZE,
    MASK_INDEX,
    NONZERO,
    UNIQUE,
    Diagnosis,
)

CAPTURE_SHAPES = DynamoSetting("capture_dynamic_output_shape_ops")
_NONZERO = frozenset({"nonzero", "argwhere", "where"})
_UNIQUE = frozenset({"unique", "unique_consecutive"})
_SIZED = frozenset({"repeat_interleave", "bincount", "one_hot"})
# How masks are named where nothing else tells; such a site is treated under a check of the dtype.
_MASK_NAME = re.compile(
    r"mask|keep|valid|hit|done|active|^pad|_pad|^m\d?$|^is_|^has_", re.IGNORECASE
)

_INDEX_NAME = re.compile(
    r"nonzero|index|indices|idx|ids|inds|position|token$|^last_|^first_", re.IGNORECASE
)
_STATIC_TEST = re.compile(
    r"id='isinstance'.*attr='(?:Tensor|ndarray)'|attr='dtype'.*attr='bool'|attr='dim'"
    rf"|{OF_OTHERS.pattern}"
)


def shape_from_data(node: ast.expr, analysis: Analysis) -> Diagnosis | None:
    """The diagnosis of an operation whose result's shape depends on data; None for any other."""
    if isinstance(node, ast.Subscript):
        return MASK_INDEX if selected_by(node, analysis) is not None else None
    if not isinstance(node, ast.Call):
        return None
    name = operation_name(node, analysis)
    if name is None:
        return None
    if name == "masked_select":
        return MASK_INDEX
    count = len(operands(node, analysis))
    if name in _NONZERO:
        return None if name == "where" and count > 1 else NONZERO
    if name in _UNIQUE:
        return UNIQUE
    if name in _SIZED and _size_from_data(node, name, analysis):
        return DATA_SIZE
    return None


def operation_name(node: ast.Call, analysis: Analysis) -> str | None:
    """The last name of an operation of torch, called as a function or as a tensor's method."""
    function = analysis.values.get(node.func)
    name = function.reference if function is not None and function.reference else None
    if name is not None and name.startswith("torch.") and torch_table.function(name) is not None:
        return name.rsplit(".", 1)[-1]
    if isinstance(node.func, ast.Attribute):
        receiver = analysis.values.get(node.func.value)
        method = torch_table.method(node.func.attr)
        if receiver is not None and receiver.may_be_tensor and method is not None:
            return node.func.attr
    return None


def operands(node: ast.Call, analysis: Analysis) -> list[ast.expr]:
    """The arguments of an operation; of a method call the receiver comes first."""
    function = analysis.values.get(node.func)
    name = function.reference if function is not None and function.reference else ""
    if isinstance(node.func, ast.Attribute) and not name.startswith("torch."):
        return [node.func.value, *node.args]
    return list(node.args)


def selected_by(node: ast.Subscript, analysis: Analysis) -> ast.expr | None:
    """The mask of `x[mask]`; None where the index is no mask, or gives no sign of being one."""
    base = analysis.values.get(node.value)
    if base is None or not base.kinds & (Kind.TENSOR | Kind.MAYBE) or base.kinds & Kind.OBJECT:
        return None
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    values = [analysis.values.get(part) for part in parts]
    # Beside numbers of rows, a name alone does not tell a mask from more of them.
    numbers = any(v is not None and v.tensor and v.integer for v in values)
    for part, value in zip(parts, values, strict=True):
        if value is None or (numbers and not value.boolean):
            continue
        if mask_like(part, value, base):
            return part
    return None


def mask_like(node: ast.expr, value: Value, base: Value) -> bool:
    """Whether an index is a boolean tensor, or is named and made like one."""
    if value.boolean and value.may_be_tensor:
        return base.tensor or value.tensor
    if not base.tensor or not value.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN):
        return False
    if value.integer or value.floating or value.zero_dim:
        return False
    inner = node
    while isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Invert):
        inner = inner.operand
    if inner is not node:
        return True
    if isinstance(inner, ast.Compare):
        return bool(value.kinds & (Kind.TENSOR | Kind.MAYBE))
    name = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")
    named = _MASK_NAME.search(name) and not _INDEX_NAME.search(name)
    return bool(named) and not value.only(Kind.UNKNOWN)


def _size_from_data(node: ast.Call, name: str, analysis: Analysis) -> bool:
    named = {k.arg: k.value for k in node.keywords}
    arguments = operands(node, analysis)
    if name == "repeat_interleave":
        given = named.get("repeats", arguments[1] if len(arguments) > 1 else None)
        repeats = None if given is None else analysis.values.get(given)
        return "output_size" not in named and (
            given is None or (repeats is not None and repeats.tensor)
        )
    if name == "one_hot":
        count = named.get("num_classes", arguments[1] if len(arguments) > 1 else None)
        return count is None or ast.unparse(count) == "-1"
    return True


def treated_beside(mode: Mode) -> bool:
    """Whether a compiled path stands beside, under tests that are decided while tracing.

    `if torch.compiler.is_compiling() and mask.dtype == torch.bool:` leaves to what follows only masks
    that are none.
    """
    if not mode.exclusions:
        return False
    for left in mode.undecided():
        if left and all(_STATIC_TEST.search(literal) for literal in left):
            return True
    return False
