"""`torch.equal`, `torch.allclose` and `in` as questions to tensors instead of Python booleans.

`torch.equal(a, b)` of tensors of one shape is `(a == b).all()`; `torch.allclose` is `torch.isclose`
and `all`; `0 in t` is `(t == 0).any()`, and `t in (0, 3)` is `(t == 0) | (t == 3)`. Knows these
questions and the values of their operands, nothing of what asks them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from gbfix.analysis.modules import Module
from gbfix.analysis.values import Value


def compared(
    test: ast.expr, values: Mapping[ast.AST, Value]
) -> tuple[str, ast.expr, ast.expr] | None:
    """`equal` or `allclose` and its two tensors, for a call of one of them."""
    if not isinstance(test, ast.Call) or not test.args:
        return None
    value = values.get(test.func)
    name = value.reference if value is not None and value.reference else ""
    operands = list(test.args)
    if isinstance(test.func, ast.Attribute) and not name.startswith("torch."):
        receiver = values.get(test.func.value)
        if receiver is None or not receiver.tensor:
            return None
        name, operands = f"torch.{test.func.attr}", [test.func.value, *operands]
    if name not in {"torch.equal", "torch.allclose"} or len(operands) < 2:
        return None
    a, b = operands[:2]
    if all((v := values.get(o)) is not None and v.tensor for o in (a, b)):
        return name.removeprefix("torch."), a, b
    return None


def same_shapes(test: ast.expr, values: Mapping[ast.AST, Value]) -> ast.expr | None:
    """`a.shape == b.shape`, under which `torch.equal(a, b)` is an elementwise question."""
    found = compared(test, values)
    if found is None or found[0] != "equal":
        return None
    _, a, b = found
    if not all(isinstance(n, (ast.Name, ast.Attribute)) for n in (a, b)):
        return None
    left, right = (ast.Attribute(n, "shape", ast.Load()) for n in (a, b))
    return ast.Compare(left, [ast.Eq()], [right])


def member(test: ast.expr) -> ast.Compare | None:
    """`t == 0` for `0 in t`, `t != 0` for `0 not in t`: of the one any, of the other all are true."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    if not isinstance(test.ops[0], (ast.In, ast.NotIn)) or one_of(test):
        return None
    operator = ast.Eq() if isinstance(test.ops[0], ast.In) else ast.NotEq()
    return ast.Compare(test.comparators[0], [operator], [test.left])


def one_of(test: ast.expr) -> list[ast.expr]:
    """The candidates of `t in (0, 3)`; none for anything else.

    A set is none of these: it asks for the hash of a tensor, which no number has.
    """
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return []
    if not isinstance(test.ops[0], (ast.In, ast.NotIn)):
        return []
    asked = test.comparators[0]
    return list(asked.elts) if isinstance(asked, (ast.Tuple, ast.List)) else []


def asks_element(test: ast.expr) -> str | None:
    """The name in `position[0] > 0`, of which a number is asked."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    limit, asked = test.comparators[0], test.left
    if not isinstance(limit, ast.Constant) or not isinstance(limit.value, (int, float)):
        return None
    known = isinstance(asked, ast.Subscript) and (
        isinstance(asked.slice, (ast.UnaryOp, ast.BinOp, ast.Name))
        or (isinstance(asked.slice, ast.Constant) and not isinstance(asked.slice.value, str))
    )
    base = asked.value if isinstance(asked, ast.Subscript) and known else None
    return base.id if isinstance(base, ast.Name) else None


def tensor_test(node: ast.expr, module: Module) -> ast.expr | None:
    """`isinstance(node, torch.Tensor)`, as it is written in a module; None for what has no name."""
    torch = next((n for n, b in module.bindings.items() if b and b[-1] == "torch"), None)
    asked = member(node)
    node = asked.left if asked is not None else node
    if isinstance(node, ast.Compare) and isinstance(node.comparators[0], ast.Constant):
        node = node.left  # an element of a tensor is one, too
        while isinstance(node, ast.Subscript):
            node = node.value
    base = node
    while isinstance(base, ast.Attribute) or (
        isinstance(base, ast.Subscript) and isinstance(base.slice, ast.Constant)
    ):
        base = base.value
    if torch is None or not isinstance(base, ast.Name):
        return None
    tensor = ast.Attribute(ast.Name(torch, ast.Load()), "Tensor", ast.Load())
    return ast.Call(ast.Name("isinstance", ast.Load()), [node, tensor], [])
