"""Batch normalisation of selected rows: the statistics are taken over what the mask selects.

The layer itself would take them over all rows. A function beside the code takes the steps of the layer
with a mask, updates its running statistics, and leaves layers of another class to themselves.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.analysis.values import Kind, Value
from gbfix.lowering.dense.forms import need_evaluation, need_trailing, plain_call
from gbfix.lowering.rowwise import Needs, NotRowwise, module_is_rowwise
from gbfix.lowering.selection import Lowered

if TYPE_CHECKING:
    from gbfix.lowering.dense.block import DenseBlock

_LAYERS = frozenset(f"torch.nn.BatchNorm{n}d" for n in (1, 2, 3))
_NAME = "_masked_batch_norm"
TEXT = f'''\
def {_NAME}(norm, x, mask, asked=False):
    """What `norm(x[mask])` gives, in the places of `x` that the mask selects.

    If it was `asked` whether any are selected, nothing is done where none are.
    """
    if type(norm) not in (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d):
        if asked and not mask.any():
            return x
        found = norm(x[mask])
        out = found.new_zeros(x.shape)
        out[mask] = found
        return out
    rows = x.flatten(0, mask.dim() - 1)
    norm._check_input_dim(rows)
    keep = mask.reshape(-1, *[1] * (rows.dim() - 1))
    dims = [d for d in range(rows.dim()) if d != 1]
    channels = [1, -1] + [1] * (rows.dim() - 2)
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    if norm.training or (norm.running_mean is None and norm.running_var is None):
        count = mask.sum() * rows.shape[2:].numel()
        torch._assert_async(count != 1, "Expected more than 1 value per channel when training")
        total = count.clamp(min=1)
        mean = torch.where(keep, rows, 0).sum(dims) / total
        rows = torch.where(keep, rows - mean.reshape(channels), 0)
        var = rows.square().sum(dims) / total
        if norm.training and norm.track_running_stats and norm.running_mean is not None:
            with torch.no_grad():
                norm.num_batches_tracked.add_(count > 0 if asked else 1)
                rate = norm.momentum
                if rate is None:
                    rate = 1.0 / norm.num_batches_tracked.clamp(min=1)
                rate = torch.where(count > 0, rate, 0.0)
                unbiased = var * (count / (count - 1).clamp(min=1))
                norm.running_mean.copy_(rate * mean + (1 - rate) * norm.running_mean)
                norm.running_var.copy_(rate * unbiased + (1 - rate) * norm.running_var)
    else:
        var = norm.running_var
        rows = torch.where(keep, rows - norm.running_mean.reshape(channels), 0)
    out = rows * torch.rsqrt(var.reshape(channels) + norm.eps)
    if norm.weight is not None:
        out = out * norm.weight.reshape(channels) + norm.bias.reshape(channels)
    return out.to(x.dtype).reshape(x.shape)
'''


def lower_norm(block: DenseBlock, node: ast.Call) -> Lowered | None:
    """A call of a batch normalisation with selected rows; None for any other call.

    Raises:
        Refused: where it is not sure that the rows are what one mask selects.
    """
    layer = block.context.analysis.values.get(node.func)
    if layer is None or layer.kinds != Kind.MODULE or not _takes_statistics(layer):
        return None
    if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
        return None
    # The first layers of a sequence see all rows: what is not selected must do no harm there.
    inner = block.lower(node.args[0], 1 if layer.elements else None)
    if inner.rows is None:
        return plain_call(block, node, [(node.args[0], inner)])
    called = block.context.view.text(node.func)
    if inner.routed is not None or inner.weighted:
        raise Refused("not-row-wise", f"`{called}` takes statistics over its rows")
    if block.found.gated and block.gate != inner.rows.key:
        raise Refused("other-mask", f"`{called}` would run although nothing is selected")
    need_trailing(block, inner)
    block.found.normed.append(called)
    block.found.counts_nothing = block.found.counts_nothing or not block.found.gated
    text = _chain(block, node, layer, called, inner) if layer.elements else None
    text = text or _written(called, inner.text, inner, block)
    return Lowered(text, True, inner.rows, inner.extra, inner.sample, changed=True)


def _takes_statistics(layer: Value) -> bool:
    """Whether a layer is a batch normalisation, or a sequence with one."""
    if layer.reference == "torch.nn.Sequential":
        return any(part.reference in _LAYERS for part in layer.elements or ())
    return layer.reference in _LAYERS


def _written(called: str, given: str, inner: Lowered, block: DenseBlock) -> str:
    assert inner.rows is not None
    asked = ", asked=True" if block.found.gated else ""
    return f"{_NAME}({called}, {given}, {inner.rows.text}{asked})"


def _chain(block: DenseBlock, node: ast.Call, layer: Value, called: str, inner: Lowered) -> str:
    """The layers of a sequence one after the other."""
    text = inner.text
    needs = Needs()
    for position, part in enumerate(layer.elements or ()):
        own = f"{called}[{position}]"
        if part.reference in _LAYERS:
            text = _written(own, text, inner, block)
            continue
        try:
            module_is_rowwise(part, node, block.context.facts, needs)
        except NotRowwise as mixed:
            raise Refused("not-row-wise", f"`{mixed}` mixes rows") from None
        text = f"{own}({text})"
    if needs.evaluating:
        need_evaluation(block)
    return text
