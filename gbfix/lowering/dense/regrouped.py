"""Selected elements that are regrouped, `x[mask].view(-1, 4)`, and then taken all together.

They are the same elements in the same order, which is all that a loss or a sum over all of them asks
for, so the dense form leaves the view out. Knows views and their uses, nothing of masks.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import operation_name
from gbfix.analysis.trees import walk
from gbfix.lowering.dense.forms import is_there_before
from gbfix.lowering.reductions import LOSSES
from gbfix.lowering.selection import Lowered
from gbfix.lowering.views import in_loop_of

if TYPE_CHECKING:
    from gbfix.lowering.dense.block import DenseBlock

_WHOLE = frozenset({"sum", "nansum", "mean"})


def regrouped(block: DenseBlock, node: ast.Call, fill: int | None) -> Lowered | None:
    """Regrouped elements of a selection as those of all rows; None where the groups matter."""
    view = node.func
    if not isinstance(view, ast.Attribute) or view.attr not in {"view", "reshape"}:
        return None
    if not isinstance(view.value, ast.Subscript) or block.selected_by(view.value) is None:
        return None
    sizes = [ast.unparse(a) for a in node.args]
    known = sizes[:1] == ["-1"] and all(s.isdecimal() for s in sizes[1:]) and len(sizes) <= 2
    if not known or node.keywords or not _taken_whole(block, node):
        return None
    inner = block.lower(view.value, fill)
    _ask_alike(block, inner)
    if len(sizes) > 1:
        block.found.regrouped = True
    return replace(inner, groups=" ".join(sizes))


def _ask_alike(block: DenseBlock, value: Lowered) -> None:
    """Ask while tracing that what one mask selects has one shape: groups hide that it may broadcast.

    Raises:
        Refused: where a tensor cannot be asked.
    """
    assert value.rows is not None
    base = value.sample if is_there_before(block, value.sample) else ""
    first = block.grouped.setdefault(value.rows.key, base)
    if not first or not base:
        raise Refused("row-shape", f"the shape of `{value.sample}` cannot be asked")
    if first != base:
        block.masks.require(f"{base}.shape == {first}.shape")


def _taken_whole(block: DenseBlock, node: ast.expr) -> bool:
    """Whether a value, or the name that it is given, is only summed up or compared in a loss."""
    context = block.context
    statement = context.info.module.parents.get(node)
    if not isinstance(statement, ast.Assign):
        return _is_whole(block, node)
    name = statement.targets[0]
    if len(statement.targets) > 1 or not isinstance(name, ast.Name):
        return False
    if name.id in context.liveness.captured or in_loop_of(statement, walk(context.info.node)):
        return False
    return all(
        _is_whole(block, used)
        for used in walk(context.info.node)
        if isinstance(used, ast.Name)
        and used.id == name.id
        and isinstance(used.ctx, ast.Load)
        and used.lineno > (statement.end_lineno or 0)
    )


def _is_whole(block: DenseBlock, node: ast.expr) -> bool:
    parents = block.context.info.module.parents
    above = parents.get(node)
    if isinstance(above, ast.Attribute):
        call = parents.get(above)
        if not isinstance(call, ast.Call) or call.func is not above:
            return False
        return above.attr in _WHOLE and not call.args and not call.keywords
    if not isinstance(above, ast.Call) or node not in above.args or len(above.args) != 2:
        return False
    ways = [k.value for k in above.keywords if k.arg == "reduction"]
    return operation_name(above, block.context.analysis) in LOSSES and all(
        isinstance(way, ast.Constant) and way.value in {"sum", "mean"} for way in ways
    )
