"""What has to hold for a function to be an operator, and what its fake kernel returns.

An operator may not print, draw or keep state, and gives results of a shape and dtype that can be told;
where that depends on what it is given, the conditions are told as text. Writes no operator.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.effects import effects
from gbfix.analysis.trees import walk
from gbfix.fixes import Context
from gbfix.lowering.operator_schema import TENSOR
from gbfix.lowering.operator_scope import Results
from gbfix.lowering.operator_values import UNKNOWN_DTYPE, Holds, Known, joined

_OPTIONAL = f"{TENSOR} | None"


def check_effects(context: Context, found: Results) -> None:
    """Make sure that the function does nothing else than to compute its results.

    Raises:
        Refused: where it prints, draws random numbers, or changes what outlives the call.
    """
    seen = effects(context.info.node.body, context.analysis, context.facts)
    own = {
        n.id
        for n in walk(context.info.node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    } | set(context.facts.parameters(context.info))
    for target, _ in seen.mutated:
        root = target
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if isinstance(root, ast.Name) and root.id not in own:
            raise Refused("keeps-state", f"`{root.id}` outlives the call")
    if seen.attributes:
        raise Refused("keeps-state", f"`{next(iter(seen.attributes))}` outlives the call")
    if seen.output:
        raise Refused("prints", "an operator whose result is not used would print nothing")
    if seen.random:
        raise Refused("draws-random", "an operator that changes nothing has to be repeatable")
    if seen.stateful:
        raise Refused("keeps-state", "a layer that is called changes its own state")


def returned(found: Results) -> tuple[list[Known], str | None]:
    """What an operator returns, and the parameter that the function hands back beside it.

    Raises:
        Refused: where shape, dtype or memory of a result cannot be told.
    """
    if not found.returned:
        raise Refused("no-result", "the function never returns")
    counts = {len(values) for values in found.returned}
    if len(counts) > 1:
        raise Refused("results-differ", "it does not return as many values on each way out")
    merged: list[Known] = []
    for place in zip(*found.returned, strict=True):
        value = place[0][0]
        for other, _ in place[1:]:
            value = joined(value, other)
        merged.append(value)
    if len(merged) == 1 and found.mutated and merged[0].bases:
        # The tensor that was changed is handed back: `return x`.
        names = {e.id if isinstance(e, ast.Name) else "" for ((_, e),) in found.returned}
        if names == merged[0].bases and names <= found.mutated and merged[0].like == tuple(names):
            if merged[0].dtype is None and not merged[0].cpu and merged[0].exact:
                return [], names.pop()
    if not merged and not found.mutated:
        raise Refused("no-result", "the function returns nothing and changes no argument")
    for value in merged:
        if value.holds is not Holds.TENSOR or not value.shaped:
            raise Refused("shape-unknown", "the shape of a result cannot be told from the text")
        if value.bases:
            shared = " or ".join(f"`{n}`" for n in sorted(value.bases))
            raise Refused("returns-argument", f"a result may share memory with {shared}")
        if value.dtype == UNKNOWN_DTYPE:
            raise Refused("dtype-unknown", "the dtype of a result cannot be told from the text")
    if len({value.ident for value in merged}) < len(merged):
        raise Refused("returns-argument", "two results may be the same tensor")
    return merged, None


def conditions(
    types: dict[str, str], values: Sequence[Known], found: Results, torch: str
) -> tuple[list[str], list[str]]:
    """What has to hold for the operator to be right, and the tensors that get gradients."""
    needed: list[str] = []
    for value in values:
        if value.dtype is None and not value.exact:
            needed.append(f"{value.like[0]}.is_floating_point()")
        for other in value.like[1:]:
            if value.dtype is None:
                needed.append(f"{other}.dtype == {value.like[0]}.dtype")
            needed.append(f"{other}.device == {value.like[0]}.device")
    if found.autocast and any(v.dtype is None for v in values):
        needed.append(f"not {torch}.is_autocast_enabled({values[0].like[0]}.device.type)")
    carried = {value.grads for value in values}
    one = next(iter(carried)) if len(carried) == 1 and len(values) == 1 else None
    if not found.mutated and not found.untracked and (one or carried == {frozenset()}):
        plain = one or frozenset()
        if all(types[name] == TENSOR for name in plain) and not (
            plain and any(kind == _OPTIONAL for kind in types.values())
        ):
            needed += [f"{n}.is_floating_point()" for n in types if n in plain]
            return list(dict.fromkeys(needed)), [n for n in types if n in plain]
    for name, kind in types.items():
        if kind == TENSOR:
            needed.append(f"not {name}.requires_grad")
        elif kind == _OPTIONAL:
            needed.append(f"({name} is None or not {name}.requires_grad)")
    return list(dict.fromkeys(needed)), []


def empty_like(value: Known, torch: str) -> str:
    """An expression in the parameters that makes an empty tensor like a result."""
    options = [f"dtype={torch}.{value.dtype}"] if value.dtype is not None else []
    options += ['device="cpu"'] if value.cpu else []
    first = value.like[0]
    if value.shape is not None:
        return f"{first}.new_empty({', '.join([value.shape, *options])})"
    if len(value.like) > 1:
        shapes = ", ".join(f"{name}.shape" for name in value.like)
        return f"{first}.new_empty({', '.join([f'{torch}.broadcast_shapes({shapes})', *options])})"
    options.append(f"memory_format={torch}.contiguous_format")
    return f"{torch}.empty_like({', '.join([first, *options])})"


def is_cut(name: str, differentiable: Sequence[str], guards: Sequence[str]) -> bool:
    """Whether an argument may require a gradient of which the result carries nothing."""
    return name not in differentiable and f"not {name}.requires_grad" not in guards
