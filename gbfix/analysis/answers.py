"""Python values that are made of tensors or arrays otherwise than by reading one number of one tensor.

`torch.equal(a, b)`, `any(t > 0)` and `sorted` of tensors answer in Python; `float(t.numpy().mean())`
reads an array of NumPy; the functions of `math` read a number from a tensor that they are given.
"""

from __future__ import annotations

import ast

from gbfix.analysis.calls import item_of
from gbfix.analysis.record import Analysis
from gbfix.analysis.values import Value

NUMBERS = frozenset({"builtins.int", "builtins.float", "builtins.bool", "builtins.complex"})
# What answers in Python, outside of tests; `max` and `min` of tensors are traced.
ANSWERING = frozenset({"torch.equal", "torch.allclose", "torch.is_nonzero"}) | frozenset(
    {"builtins.any", "builtins.all", "builtins.sorted", "builtins.map"}
)
ANSWERING_METHODS = frozenset(
    "equal allclose is_nonzero __bool__ __float__ __int__ __index__".split()
)


def answers(node: ast.Call, analysis: Analysis) -> bool:
    """Whether a call makes Python values of what tensors hold: `torch.equal`, `any`, `sorted`."""
    function, values = node.func, analysis.values
    if not node.args:
        receiver = values.get(function.value) if isinstance(function, ast.Attribute) else None
        named = isinstance(function, ast.Attribute) and function.attr in ANSWERING_METHODS
        return named and _is_tensor(receiver)
    called = values.get(function)
    name = called.reference if called is not None else None
    if name is None or name not in ANSWERING:
        return isinstance(function, ast.Attribute) and (
            function.attr in ANSWERING_METHODS and _is_tensor(values.get(function.value))
        )
    given = values.get(node.args[-1])
    if name.startswith("torch."):
        return _is_tensor(given)
    if name == "builtins.map":
        made = values.get(node.args[0])
        if made is None or made.reference not in NUMBERS:
            return False
    return given is not None and item_of(given).tensor


def array_read(node: ast.Call, analysis: Analysis) -> ast.expr | None:
    """The array of `float(a)`, `a.item()` and `a.tolist()`; None for anything else."""
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in {"item", "tolist"}:
        read = function.value
    elif len(node.args) == 1 and not node.keywords:
        called = analysis.values.get(function)
        if called is None or called.reference not in NUMBERS:
            return None
        read = node.args[0]
    else:
        return None
    value = analysis.values.get(read)
    return read if value is not None and value.array else None


def takes_numbers(name: str) -> bool:
    """Whether a function computes with Python numbers, and reads one from a tensor that it is given."""
    return name.startswith("math.")


def _is_tensor(value: Value | None) -> bool:
    return value is not None and value.tensor
