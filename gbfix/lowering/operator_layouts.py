"""Where tensors go and what new ones look like: `to`, `from_numpy`, `new_zeros` and their kind.

Computes shape, dtype and device with abstract values; knows no other calls.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from gbfix.lowering.operator_scope import Scope
from gbfix.lowering.operator_sizes import with_sizes
from gbfix.lowering.operator_values import NUMBER, UNKNOWN_DTYPE, Holds, Known, of


def moved(scope: Scope, node: ast.Call, base: Known) -> Known:
    """`to(x)`, `to(x.dtype)`, `to(x.device)` and keywords; `x` is a parameter."""
    wanted = [*node.args, *(k.value for k in node.keywords)]
    if any(k.arg not in ("dtype", "device") for k in node.keywords):
        return Known(Holds.OTHER, grads=base.grads, bases=base.bases)
    for part in wanted:
        whole = isinstance(part, ast.Name)
        root = part.value if isinstance(part, ast.Attribute) else part
        of = scope.environment.get(root.id) if isinstance(root, ast.Name) else None
        attribute = part.attr if isinstance(part, ast.Attribute) else None
        is_first = of is not None and of.like[:1] == base.like[:1] and not of.cpu
        if is_first and of is not None and (whole or attribute == "device"):
            base = replace(base, cpu=False)
        if is_first and of is not None and (whole or attribute == "dtype"):
            base = replace(base, dtype=of.dtype, exact=of.exact)
        if is_first and (whole or attribute in ("device", "dtype")):
            continue
        dtype = scope.dtype(part)
        if dtype is None:
            return Known(Holds.OTHER, grads=base.grads, bases=base.bases)
        base = replace(base, dtype=dtype)
    if base.dtype and not base.dtype.startswith(("float", "bfloat", "?")):
        base = replace(base, grads=frozenset())
    return base


def from_array(
    scope: Scope, node: ast.Call, short: str, values: Sequence[Known], given: Sequence[Known]
) -> Known:
    grads, bases = of(*values)
    base = given[0] if given else NUMBER
    if base.holds is not Holds.ARRAY or not base.shaped or len(node.args) != 1:
        return Known(Holds.OTHER, grads=None if grads else grads, bases=bases)
    tensor = replace(base, holds=Holds.TENSOR, cpu=True)
    if node.keywords:
        tensor = moved(scope, ast.Call(node.func, [], node.keywords), tensor)
    return tensor.fresh() if short == "tensor" else tensor


def written_out(scope: Scope, node: ast.Call, short: str, base: Known | None = None) -> Known:
    """A new tensor whose shape is written out in terms of the parameters."""
    count = 1 if short.endswith("full") else len(node.args)
    sizes = node.args[:count] * (2 if short == "eye" and count == 1 else 1)
    options = {k.arg: k.value for k in node.keywords}
    if not sizes or options.keys() - {"dtype", "device"} or not all(map(scope.fixed, sizes)):
        return Known(Holds.OTHER)
    text = ", ".join(with_sizes(s, scope.sizes) for s in sizes)
    if len(sizes) > 1 or isinstance(sizes[0], ast.Constant):
        text = f"({text},)" if len(sizes) == 1 else f"({text})"
    like = base.like[:1] if base is not None and base.like else ()
    device = options.get("device")
    if isinstance(device, ast.Attribute) and device.attr == "device":
        root = device.value
        owner = scope.environment.get(root.id) if isinstance(root, ast.Name) else None
        if owner is None or not owner.like or owner.cpu:
            return Known(Holds.OTHER)
        like = owner.like[:1]
    elif device is not None or not like:
        return Known(Holds.OTHER)
    dtype = base.dtype if base is not None else UNKNOWN_DTYPE
    exact = base is not None and base.exact
    wanted = options.get("dtype")
    if isinstance(wanted, ast.Attribute) and wanted.attr == "dtype":
        root = wanted.value
        owner = scope.environment.get(root.id) if isinstance(root, ast.Name) else None
        if owner is None or owner.like[:1] != like:
            return Known(Holds.OTHER)
        dtype, exact = owner.dtype, owner.exact
    elif wanted is not None:
        dtype = scope.dtype(wanted) or UNKNOWN_DTYPE
    elif base is None and short != "full":
        dtype = UNKNOWN_DTYPE
    cpu = bool(base and base.cpu)
    return Known(Holds.TENSOR, like, shape=text, dtype=dtype, exact=exact, cpu=cpu)
