"""Entries of tables of numbers that a tensor picks: `STRIDES[level.item()]`.

Says which expression is such an entry, and how a tensor selects it. Knows tables and subscripts,
nothing of what follows from the number.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import Refused
from gbfix.analysis.flow import Analysis
from gbfix.analysis.reads import is_number, read_tensor
from gbfix.analysis.stability import check_stable_attribute
from gbfix.codegen.expressions import flat, operand
from gbfix.fixes import Context
from gbfix.lowering.constant_tables import Table, table


def entry_of(read: ast.expr, analysis: Analysis) -> ast.Subscript | None:
    """The entry of a list or dict that a read number is the key of; None where it is no key."""
    parents = analysis.info.module.parents
    parent = parents[read]
    if isinstance(parent, ast.Call) and parent.args == [read] and not parent.keywords:
        if analysis.info.module.qualify(parent.func) == "builtins.str":
            read, parent = parent, parents[parent]
    if not isinstance(parent, ast.Subscript) or parent.slice is not read:
        return None
    value = analysis.values.get(parent.value)
    known = isinstance(parent.ctx, ast.Load) and not (value is not None and value.may_be_tensor)
    return parent if known else None


def is_entry(node: ast.AST, analysis: Analysis) -> bool:
    """Whether an expression is an entry that a number picks, which a tensor holds."""
    if not isinstance(node, ast.Subscript):
        return False
    key = _key(node)
    return is_number(key, analysis) and entry_of(key, analysis) is node


def entries(node: ast.Subscript, analysis: Analysis) -> Table:
    """The table of an entry.

    Raises:
        Refused: where it is not known, or its numbers are of several types.
    """
    assert analysis.evaluator is not None
    facts, info = analysis.evaluator.facts, analysis.info
    found = table(node.value, info, facts)
    if isinstance(node.value, ast.Attribute) and info.owner is not None:
        check_stable_attribute(node.value.attr, info.owner, facts)
    if not (found.floats or found.integers):
        raise Refused("dtype-unproven", f"`{ast.unparse(node.value)}` holds integers and floats")
    if found.textual != (_key(node) is not node.slice):
        text = ast.unparse(node.value)
        raise Refused("key-unproven", f"the keys of `{text}` are of another type")
    return found


def entry_text(node: ast.Subscript, torch: str, context: Context) -> tuple[list[str], str]:
    """The entry as a tensor of shape `[]`, of int64, or of float64 as Python has it.

    Returns:
        The lines that come before, and the expression.

    Raises:
        Refused: for a key that would be computed more than once.
    """
    found, view = entries(node, context.analysis), context.view
    tensor = read_tensor(_key(node), context.analysis)
    assert tensor is not None
    if not isinstance(tensor, (ast.Name, ast.Attribute)):
        raise Refused("complex-expression", f"`{ast.unparse(tensor)}` would be computed twice")
    held, key = flat(view, node.value), operand(view, tensor)
    value = context.analysis.values.get(tensor)
    if value is not None and (value.boolean or (value.floating and found.textual)):
        raise Refused("key-unproven", f"`{key}` holds no integer")
    device = f"device={key}.device"
    options = f"dtype={torch}.float64, {device}" if found.floats else device
    if not found.keyed:
        cast = "" if value is not None and value.integer else ".long()"
        return [], f"{torch}.tensor({held}, {options})[{key}.reshape(1){cast}].squeeze(0)"
    numbers = f"[int(key) for key in {held}]" if found.textual else f"list({held})"
    whole = "" if found.textual or _by_item(_key(node)) else ".long()"
    keys, matches = context.names.take("keys"), context.names.take("matches")
    entry = context.names.take("entries")
    lines = [
        f"{keys} = {torch}.tensor({numbers}, {device})",
        f"{matches} = {keys} == {key}{whole}.reshape(())",
        f'{torch}._assert_async({matches}.any(), "a key is not in `{held}`")',
        f"{entry} = {torch}.tensor(list({held}.values()), {options})",
    ]
    return lines, f"{entry}[{matches}.int().argmax(0, keepdim=True)].squeeze(0)"


def _by_item(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)


def _key(node: ast.Subscript) -> ast.expr:
    """The number that picks an entry, also where it is looked up as text."""
    key = node.slice
    if isinstance(key, ast.Call) and isinstance(key.func, ast.Name) and key.func.id == "str":
        return key.args[0] if key.args else key
    return key
