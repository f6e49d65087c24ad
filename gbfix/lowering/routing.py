"""Indices that `nonzero` or `where` finds, as the masks that they come from.

`index = torch.where(mask)[0]` names the rows that `mask` selects; `row, slot = torch.where(routed)`
names rows once for each slot that they are routed to. Knows how such indices are written, nothing of
what is done with the rows.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import operands, operation_name
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.codegen.expressions import flat, operand
from gbfix.codegen.names import used_names
from gbfix.fixes import Context
from gbfix.lowering.selection import Masks, Selection

_VIEWS = frozenset("squeeze unsqueeze flatten view reshape select transpose t".split())


@dataclass(frozen=True)
class Index:
    """A name that holds found indices.

    Attributes:
        selection: the rows that the indices point to.
        routed: text of the mask over rows and slots, for indices that were found in pairs.
        slot: it numbers slots, not rows.
    """

    selection: Selection
    routed: str | None = None
    slot: bool = False


def found_in(node: ast.expr, analysis: Analysis) -> ast.expr | None:
    """The mask of `torch.where(mask)` or `mask.nonzero(as_tuple=True)`."""
    if not isinstance(node, ast.Call):
        return None
    name = operation_name(node, analysis)
    given = operands(node, analysis)
    options = {k.arg: ast.unparse(k.value) for k in node.keywords}
    if name == "where" and len(given) == 1 and not options:
        return given[0]
    if name == "nonzero" and len(given) == 1 and options == {"as_tuple": "True"}:
        return given[0]
    return None


def found_rows(node: ast.expr, analysis: Analysis) -> ast.expr | None:
    """The mask of an expression that gives the rows found in a mask of one dimension."""
    if isinstance(node, ast.Subscript):
        if ast.unparse(node.slice) == "0":
            return found_in(node.value, analysis)
        if ast.unparse(node.slice) in {"(slice(None, None, None), 0)", ":, 0", "(:, 0)"}:
            return _plain_nonzero(node.value, analysis)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        arguments = [ast.unparse(a) for a in node.args]
        shape = (node.func.attr, arguments)
        if shape in [("squeeze", []), ("squeeze", ["-1"]), ("squeeze", ["1"]), ("flatten", []),
                     ("view", ["-1"]), ("reshape", ["-1"])]:  # fmt: skip
            return _plain_nonzero(node.func.value, analysis)
    return None


def counted_mask(node: ast.expr, analysis: Analysis) -> ast.expr | None:
    """The mask whose true elements an expression has as many rows as: `mask.nonzero()`."""
    mask = _plain_nonzero(node, analysis)
    if mask is None and isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "0":
        mask = found_in(node.value, analysis)
    return mask


def first_match(node: ast.Subscript, analysis: Analysis) -> tuple[ast.expr, bool] | None:
    """The mask of the first index that is found, and whether the result keeps one dimension.

    `torch.where(mask)[0][0]` and `mask.nonzero()[0, 0]` have none; `mask.nonzero()[0]` has one.
    """
    index = ast.unparse(node.slice)
    if index == "0":
        if isinstance(node.value, ast.Subscript) and ast.unparse(node.value.slice) == "0":
            mask = found_in(node.value.value, analysis) or _plain_nonzero(
                node.value.value, analysis
            )
            return (mask, False) if mask is not None else None
        mask = _plain_nonzero(node.value, analysis)
        return (mask, True) if mask is not None else None
    mask = _plain_nonzero(node.value, analysis) if index in {"(0, 0)", "0, 0"} else None
    return (mask, False) if mask is not None else None


def _plain_nonzero(node: ast.expr, analysis: Analysis) -> ast.expr | None:
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    given = operands(node, analysis)
    name = operation_name(node, analysis)
    return given[0] if name in {"nonzero", "argwhere"} and len(given) == 1 else None


def row_index(
    mask: ast.expr,
    masks: Masks,
    context: Context,
    *,
    computed: bool = True,
    bound: Collection[str] = (),
) -> Index:
    """The rows that a mask of one dimension selects.

    Without `computed` only a mask that is there already is asked how many dimensions it has. What is
    `bound` since then cannot be asked for before.

    Raises:
        Refused: where the mask is no boolean mask, or cannot be asked for its dimensions.
    """
    selection = masks.select(mask)
    if selection.rank is None:
        asked = masks.asked(selection)
        if asked is None or asked not in _names(mask):
            if not computed or not all(map(_may_be_asked_again, walk(mask))):
                raise Refused(
                    "mask-shape", f"`{ast.unparse(mask)}` is not proven to have one dimension"
                )
            asked = operand(context.view, mask)
        if not used_names(mask).isdisjoint(bound):
            raise Refused(
                "mask-shape", f"`{ast.unparse(mask)}` is not proven to have one dimension"
            )
        masks.require(f"{asked}.dim() == 1")
    elif selection.rank != 1:
        raise Refused("mask-shape", f"`{ast.unparse(mask)}` has more than one dimension")
    return Index(selection)


def _may_be_asked_again(node: ast.AST) -> bool:
    """Whether a part of a mask costs nothing where only the dimensions of the mask are asked for."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS
    return not isinstance(node, ast.NamedExpr)


def _names(node: ast.expr) -> set[str]:
    return {ast.unparse(n) for n in walk(node) if isinstance(n, (ast.Name, ast.Attribute))}


def pair_index(
    names: tuple[str, str],
    mask: ast.expr,
    masks: Masks,
    context: Context,
    numbered: str | None,
    *,
    row: str | None = None,
) -> dict[str, Index]:
    """Rows and slots found in a mask of two dimensions.

    `numbered` is a loop variable that was a tensor of one element and is an integer now; `row` tells
    which of the names holds rows, where that is known.

    Raises:
        Refused: where neither name is used as rows.
    """
    row = row or _row_name(names, context)
    if row is None:
        raise Refused("index-use", "the indices that are found are not used to gather and add rows")
    root = mask
    if numbered is not None and isinstance(root, ast.Call):
        text = ast.unparse(root)
        if text.endswith(".squeeze(0)") and isinstance(root.func, ast.Attribute):
            root = root.func.value
    value = context.analysis.values.get(mask)
    text = flat(context.view, root)
    text = (
        f"({text})"
        if not isinstance(root, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        else text
    )
    if names.index(row) == 1:
        text += ".T"
    if value is None or not (value.tensor and value.boolean):
        text += ".bool()"
    elif text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    routed = context.names.take("routed")
    chosen = context.names.take("chosen")
    masks.lines.append(f"{routed} = {text}")
    masks.lines.append(f"{chosen} = {routed}.any(dim=-1)")
    selection = Selection(chosen, chosen, False, 1, frozenset({chosen, routed}), -1)
    return {n: Index(selection, routed, slot=n != row) for n in names}


def _row_name(names: tuple[str, str], context: Context) -> str | None:
    """The name by which rows are taken and put back."""
    found: set[str] = set()
    for node in walk(context.info.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in {"index_add_", "index_add"} and len(node.args) > 1:
                found |= {n for n in names if ast.unparse(node.args[1]) == n}
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            found |= {n for n in names if ast.unparse(node.slice) == n}
    return found.pop() if len(found) == 1 else None


def distinct_rows(mask: ast.expr, context: Context) -> bool:
    """Whether a row is found once at most: `ids == e` where `ids` comes from `topk`."""
    if not isinstance(mask, ast.Compare) or not isinstance(mask.left, ast.Name):
        return False
    name, bound = mask.left.id, []
    for node in walk(context.info.node):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                stored = [t.id for t in walk(target) if isinstance(t, ast.Name)]
                if name in stored:
                    bound.append((target, node.value))
    if len(bound) != 1:
        return False
    target, value = bound[0]
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Call):
        return False
    last = [ast.unparse(e) for e in target.elts]
    return last[-1] == name and operation_name(value, context.analysis) == "topk"
