"""What calls return, as shape, dtype, device, memory and gradients, from those of their arguments.

Knows functions of torch and NumPy and methods of tensors by name, not how arguments are written.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from gbfix.analysis.conditions import Refused
from gbfix.lowering import operator_values as known
from gbfix.lowering.operator_layouts import from_array, moved, written_out
from gbfix.lowering.operator_scope import Scope
from gbfix.lowering.operator_sizes import RESHAPING, reshaped, with_sizes
from gbfix.lowering.operator_values import NUMBER, Holds, Known, arithmetic, truth

_CASTS = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16"}
_WHOLE = {"long": "int64", "int": "int32", "bool": "bool"}


def function(
    scope: Scope, node: ast.Call, name: str, given: Sequence[Known], values: Sequence[Known]
) -> Known:
    """What a function of a module returns.

    Args:
        scope: the function that calls it.
        node: the call.
        name: the function, with its module.
        given: the positional arguments.
        values: all arguments.
    """
    short = name.rpartition(".")[2]
    if name in known.NUMERIC_CALLS or name.startswith("math."):
        return NUMBER
    if name in ("builtins.range", "builtins.min", "builtins.max", "builtins.sum") and all(
        v.holds is Holds.NUMBER for v in values
    ):
        return NUMBER
    if name in known.COLLECTING:
        grads, bases = known.of(*values)
        return Known(Holds.OTHER, grads=grads, bases=bases)
    if name.startswith(("numpy.", "scipy.")) and not name.startswith("numpy.random"):
        return _numpy(scope, name, short, values)
    if name in ("torch.from_numpy", "torch.as_tensor", "torch.tensor"):
        return from_array(scope, node, short, values, given)
    if name.startswith(("torch.nn.functional.", "torch.special.")) or name.count(".") == 1:
        if name.startswith("torch."):
            return _torch(scope, node, short, values, given)
    scope.results.unknown.append(ast.unparse(node.func))
    grads, bases = known.of(*values)
    return Known(Holds.OTHER, grads=None if grads else grads, bases=bases)


def _torch(
    scope: Scope, node: ast.Call, short: str, values: Sequence[Known], given: Sequence[Known]
) -> Known:
    if short in ("zeros", "ones", "empty", "full", "eye"):
        return written_out(scope, node, short)
    if (given and given[0].holds is not Holds.NUMBER) or short in known.POINTWISE:
        return _operation(scope, node, short, values)
    grads, bases = known.of(*values)
    return Known(Holds.OTHER, grads=grads, bases=bases)


def _operation(scope: Scope, node: ast.Call, short: str, values: Sequence[Known]) -> Known:
    """A function of torch, or the method of that name."""
    grads, bases = known.of(*values)
    base = next((v for v in values if v.holds is not Holds.NUMBER), NUMBER)
    options = {k.arg for k in node.keywords}
    scope.results.autocast |= short in known.AUTOCAST
    plain = not options & {"dtype", "device", "memory_format", "inplace"}
    if short == "where" and len(values) == 3 and values[0].shaped:
        mask, kept = values[0], arithmetic(values[1:])
        if kept.shaped and kept.holds is Holds.TENSOR and not kept.shape:
            like = tuple(dict.fromkeys([*kept.like, *mask.like]))
            return kept.fresh(like=like, grads=known.of(*values[1:])[0])
    elif short in known.POINTWISE and short != "where" and plain:
        return replace(arithmetic(values), grads=grads)
    if base.shaped and base.holds is Holds.TENSOR and plain:
        if short in known.EXACT:
            only = values[:1] if short == "masked_fill" else values
            if short == "masked_fill" and not (base.like and values[1].like == base.like):
                return Known(Holds.OTHER, grads=grads)
            return base.fresh(grads=known.of(*only)[0])
        if short in known.LIKE:
            return base.fresh(grads=frozenset())
        if short in known.TRUTHS:
            return truth(values)
        if short == "argsort":
            return base.fresh(dtype="int64", grads=frozenset())
        if short in known.REDUCED and len(values) == 1 and not base.dtype:
            return base.fresh(shape="()", exact=False)
        if short in known.SAME:
            return base if short == "contiguous" else replace(base, cpu=True)
    if short in known.LIKE and base.shaped and base.holds is Holds.TENSOR:
        placed = moved(scope, ast.Call(node.func, [], node.keywords), base)
        if placed.shaped:
            return placed.fresh(grads=frozenset())
    if short in ("nonzero", "argmax", "argmin", "bincount", "any", "all") or short in known.TRUTHS:
        return Known(Holds.OTHER)
    return Known(Holds.OTHER, grads=grads, bases=bases)


def method(
    scope: Scope,
    node: ast.Call,
    short: str,
    base: Known,
    values: list[Known],
    named: dict[str, Known],
) -> Known:
    """What a method returns; `values` begins with the object, `base`, itself."""
    grads, bases = known.of(*values, *named.values())
    if short in known.SCALARS:
        return NUMBER
    if base.holds is Holds.ARRAY:
        if short == "copy":
            return base.fresh()
        if short == "astype" and base.shaped and len(node.args) == 1 and not named:
            return base.fresh(dtype=scope.dtype(node.args[0]) or known.UNKNOWN_DTYPE)
        return Known(Holds.OTHER, bases=base.bases)
    if short in ("append", "extend", "update", "add", "insert", "pop") and (
        base.holds is Holds.OTHER
    ):
        scope.written(node.func.value, _mixed(values, named))  # type: ignore[attr-defined]
        return Known(Holds.OTHER, grads=grads, bases=bases)
    if short == "detach":
        return replace(base, grads=frozenset())
    if short == "numpy":
        if base.grads is None or base.grads:
            scope.results.untracked |= base.bases or base.grads or set()
        if base.holds is Holds.TENSOR:
            return replace(base, holds=Holds.ARRAY, cpu=True, grads=frozenset())
        return Known(Holds.OTHER, bases=bases)
    if short in known.RESHAPED:
        raise Refused("not-followed", f"`{short}` changes what the tensor is")
    if short.endswith("_") and not short.startswith("_"):
        scope.written(node.func.value, _mixed(values, named))  # type: ignore[attr-defined]
        return base
    if short.startswith("new_"):
        return written_out(scope, node, short, base)
    if short in ("to", "type_as") and base.shaped and base.holds is Holds.TENSOR:
        return moved(scope, node, base)
    if short in RESHAPING and base.holds is Holds.TENSOR and base.shape is not None:
        if not named and all(map(scope.fixed, node.args)):
            wanted = [with_sizes(a, scope.sizes) for a in node.args]
            shape = reshaped(base.shape, short, wanted)
            if shape is not None:
                bases = frozenset() if short == "repeat" else base.bases
                return replace(base, shape=shape, bases=bases)
    if short in _CASTS and base.shaped and base.holds is Holds.TENSOR:
        return replace(base, dtype=_CASTS[short])
    if short in _WHOLE:
        if base.shaped and base.holds is Holds.TENSOR:
            return replace(base, dtype=_WHOLE[short], grads=frozenset())
        return Known(Holds.OTHER, bases=bases)
    return _operation(scope, node, short, [*values, *named.values()])


def _numpy(scope: Scope, name: str, short: str, values: Sequence[Known]) -> Known:
    grads, bases = known.of(*values)
    arrays = [v for v in values if v.holds is not Holds.NUMBER]
    if grads is None or grads:
        scope.results.untracked |= bases
    alike = arrays and all(v.holds is Holds.ARRAY and v.like and not v.shape for v in arrays)
    alike = alike and len({v.like for v in arrays}) == 1
    if name == f"numpy.{short}" and short in known.NUMPY_LIKE and alike:
        values = arrays[1:] if short == "where" and len(arrays) > 1 else arrays
        dtypes = {v.dtype for v in values}
        dtype = dtypes.pop() if len(dtypes) == 1 else known.UNKNOWN_DTYPE
        return arrays[0].fresh(dtype=dtype, exact=False)
    if name.startswith("scipy.ndimage.") and short in known.FILTERS and len(arrays) == 1 and alike:
        return arrays[0].fresh(exact=False)
    copied = short in ("quantile", "percentile", "mean", "max", "min", "sum", "std", "median")
    return Known(Holds.OTHER, bases=frozenset() if copied else bases)


def _mixed(values: Sequence[Known], named: dict[str, Known]) -> Known:
    grads, _ = known.of(*values, *named.values())
    return Known(Holds.OTHER, grads=grads)
