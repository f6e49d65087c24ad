"""Calls in dense form: layers and operations that treat each row alone run on all rows."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import operands, operation_name, shape_from_data
from gbfix.lowering.dense.bins import counted_in_bins
from gbfix.lowering.dense.counts import at_least, counted_rows, number_found, size
from gbfix.lowering.dense.forms import (
    check_sides,
    compose_call,
    filled,
    need_evaluation,
    need_trailing,
    plain_call,
    resizes,
    with_one_dimension,
)
from gbfix.lowering.dense.indexing import rows_taken
from gbfix.lowering.dense.norms import lower_norm
from gbfix.lowering.dense.regrouped import regrouped
from gbfix.lowering.dense.zeros import zero_filled
from gbfix.lowering.reductions import REDUCTIONS, losses, reduced
from gbfix.lowering.rowwise import Needs, NotRowwise, call_is_rowwise, keeps_elements
from gbfix.lowering.selection import Lowered

if TYPE_CHECKING:
    from gbfix.lowering.dense.block import DenseBlock

_OF_TWO = {"max": "maximum", "min": "minimum"}  # of two tensors, element by element
_PASSING = frozenset("to float double half bfloat16 clone detach contiguous type_as neg".split())
_REDUCING = frozenset("sum mean var std amax amin logsumexp norm any all".split())
_NO_SHAPE = frozenset("to type type_as float unsqueeze softmax log_softmax sum mean linear".split())


def lower_call(block: DenseBlock, node: ast.Call, fill: int | None) -> Lowered:
    name = operation_name(node, block.context.analysis)
    if name == "masked_select":
        return masked_select(block, node, fill)
    reference = block.context.analysis.values.get(node.func)
    known = reference.reference if reference is not None else None
    if known == "builtins.len" and len(node.args) == 1:
        index = block.index(node.args[0])
        if index is not None:
            return Lowered(index.selection.count, True, count=index.selection, changed=True)
        found = number_found(block, node.args[0])
        if found is not None:
            return found
        inner = block.lower(node.args[0])
        return counted_rows(block, node, inner, [(node.args[0], inner)])
    if known == "builtins.max" and len(node.args) == 2:
        return at_least(block, node)
    if name in {"size", "numel"} or name is None:
        counted = size(block, node)
        if counted is not None:
            return counted
    binned = counted_in_bins(block, node) if name == "bincount" else None
    if binned is not None:
        return binned
    if node in block.context.analysis.places and shape_from_data(node, block.context.analysis):
        raise Refused("shape-needed", f"the shape of `{ast.unparse(node)}` is used itself")
    wrapped = unwrapped(block, node) or lower_norm(block, node) or regrouped(block, node, fill)
    if wrapped is not None:
        return wrapped
    loss = losses(block, node, name)
    if loss is not None:
        return loss
    name = name or _reduction_of_rows(block, node)
    given = operands(node, block.context.analysis) if name in REDUCTIONS else []
    if name in _OF_TWO and len(given) == 2 and is_tensor(block, given[1]):
        name = _OF_TWO[name]
    if name in REDUCTIONS:
        alone = len(given) == 1 and not node.keywords and name in {"sum", "nansum", "mean"}
        inner = (zero_filled(block, given[0]) if alone else None) or block.lower(given[0])
        if inner.rows is not None:
            made = reduced(block, node, name, given, inner)
            if made is not None:
                block.found.reductions += 1
                return made
    return applied_to_rows(block, node, name, fill)


def _reduction_of_rows(block: DenseBlock, node: ast.Call) -> str | None:
    """The reduction that a method of selected rows is: rows are a tensor, whatever they come from."""
    method = node.func
    if not isinstance(method, ast.Attribute) or method.attr not in REDUCTIONS:
        return None
    return method.attr if _are_rows(block, method.value) else None


def _are_rows(block: DenseBlock, node: ast.expr) -> bool:
    """Whether an expression is selected rows, or computed with some by operators."""
    if isinstance(node, ast.BinOp):
        return _are_rows(block, node.left) or _are_rows(block, node.right)
    if isinstance(node, ast.UnaryOp):
        return _are_rows(block, node.operand)
    if isinstance(node, ast.Subscript):
        return block.selected_by(node) is not None
    held = block.held.get(node.id) if isinstance(node, ast.Name) else None
    return held is not None and held.rows is not None


def is_tensor(block: DenseBlock, node: ast.expr) -> bool:
    value = block.context.analysis.values.get(node)
    return value is not None and value.tensor


def unwrapped(block: DenseBlock, node: ast.Call) -> Lowered | None:
    """`x[None, index].reshape(-1, dim)`, which is `x[index]` of a matrix; `index_select`."""
    if not isinstance(node.func, ast.Attribute):
        return None
    inner = node.func.value
    if node.func.attr == "index_select" and len(node.args) == 2:
        index = block.index(node.args[1])
        if index is not None and ast.unparse(node.args[0]) == "0":
            made = ast.copy_location(ast.Subscript(inner, node.args[1], ast.Load()), node)
            return rows_taken(block, made, block.lower(inner))
    if node.func.attr not in {"reshape", "view"} or len(node.args) != 2:
        return None
    if not isinstance(inner, ast.Subscript) or not isinstance(inner.slice, ast.Tuple):
        return None
    parts = inner.slice.elts
    if len(parts) != 2 or ast.unparse(parts[0]) != "None" or block.index(parts[1]) is None:
        return None
    if ast.unparse(node.args[0]) != "-1":
        return None
    made = ast.copy_location(ast.Subscript(inner.value, parts[1], ast.Load()), inner)
    found = rows_taken(block, made, block.lower(inner.value))
    return None if found is None else replace(found, extra=1)


def applied_to_rows(
    block: DenseBlock, node: ast.Call, name: str | None, fill: int | None
) -> Lowered:
    """A call whose arguments may hold rows, allowed if it treats each row alone."""
    parts: list[ast.expr] = [*node.args, *(k.value for k in node.keywords)]
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    last = name or getattr(node.func, "attr", "")
    inner = fill if last in _PASSING else 0 if is_embedding(block, node) else 1
    lowered = [(p, block.lower(p, inner)) for p in parts if not isinstance(p, ast.Starred)]
    children = list(lowered)
    if receiver is not None:
        own = block.lower(receiver, inner)
        if own.rows is not None and isinstance(node.func, ast.Attribute):
            name = name or node.func.attr  # rows are a tensor, whatever they were taken from
        children.append((receiver, own))
        if own.rows is not None or own.count is not None:
            lowered.append((receiver, own))
    held = [(p, v) for p, v in lowered if v.rows is not None]
    if any(v.count is not None for _, v in lowered):
        raise Refused("count-leaves", f"`{ast.unparse(node)}` takes the number of selected rows")
    if not held:
        text_children = children
        if receiver is not None:
            text_children = [c for c in children if c[0] is not receiver]
            text_children.append((receiver, children[-1][1]))
        return plain_call(block, node, text_children)
    if any(v.weighted for _, v in held) and name not in {
        *_PASSING,
        "unsqueeze",
        "view",
        "reshape",
    }:
        raise Refused("weights-used", f"`{ast.unparse(node)}` does more than weigh rows")
    needs = Needs()
    try:
        call_is_rowwise(
            node, block.context.analysis, block.context.facts, {p for p, _ in held}, needs, name
        )
    except NotRowwise as mixed:
        raise Refused("not-row-wise", f"`{mixed}` is not known to treat each row alone") from None
    mine = held[0][1]
    for part, value in lowered:
        if (value.rows is not None or name is not None) and part is not receiver:
            if name is not None and name in _NO_SHAPE:
                continue
            check_sides(block, mine, value, part)
    layer = name is None and last not in _PASSING
    kept = name not in _REDUCING or _keeps_dimension(block, node, name)
    if not kept:
        mine = with_one_dimension(block, mine)
    if needs.trailing and not layer:
        need_trailing(block, mine)
    if needs.evaluating:
        need_evaluation(block)
    if layer:
        block.found.applied.append(ast.unparse(node.func))
        block.found.routed = block.found.routed or mine.routed is not None
    text = compose_call(block, node, children)
    extra = mine.extra
    if last == "unsqueeze" and extra is not None:
        extra += 1
    if name in _REDUCING:
        if extra is not None and not kept:
            extra -= 1
        sample = mine.sample if kept and extra is None else text
        resized = sample is not text
        return replace(mine, text=text, bare=True, extra=extra, sample=sample, resized=resized)
    sample = text if last == "unsqueeze" or is_embedding(block, node) else mine.sample
    if is_embedding(block, node):
        extra = None if extra is None else extra + 1
    resized = sample is not text and (
        not keeps_elements(node, name, block.context.analysis) or resizes(block, mine, lowered)
    )
    return replace(mine, text=text, bare=True, extra=extra, sample=sample, resized=resized)


def _keeps_dimension(block: DenseBlock, node: ast.Call, name: str) -> bool:
    """Whether a reduction leaves the dimension along which it works, with one element.

    Raises:
        Refused: where that is not written out.
    """
    options = [k.value for k in node.keywords if k.arg == "keepdim"]
    behind = operands(node, block.context.analysis)[2:]
    if behind and name in {"var", "std", "norm"}:  # of which the third is something else
        raise Refused("reduction-form", f"`{ast.unparse(node)}` is called in an unusual way")
    flag = next(iter([*options, *behind]), None)
    if flag is None:
        return False
    if not isinstance(flag, ast.Constant) or not isinstance(flag.value, bool):
        raise Refused("reduction-form", f"whether `{ast.unparse(node)}` keeps a dimension is open")
    return flag.value


def is_embedding(block: DenseBlock, node: ast.Call) -> bool:
    value = block.context.analysis.values.get(node.func)
    reference = value.reference if value is not None else None
    return (reference or "").rsplit(".", 1)[-1] in {"Embedding", "embedding"}


def masked_select(block: DenseBlock, node: ast.Call, fill: int | None) -> Lowered:
    given = operands(node, block.context.analysis)
    if len(given) != 2 or node.keywords:
        raise Refused("mask-unproven", "`masked_select` is called in an unusual way")
    base = block.lower(given[0])
    if base.rows is not None:
        raise Refused("nested-selection", "rows are selected from what was itself selected")
    selection = block.masks.select(given[1])
    if block.masks.extra(selection, given[0]) != 0:
        raise Refused("shapes-unproven", "the mask is not proven to have the shape of the tensor")
    found = Lowered(base.text, base.bare, selection, 0, base.operand, changed=True)
    return found if fill is None else filled(block, found, fill)
