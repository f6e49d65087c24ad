"""Tests that ask whether all numbers of a list are the same, as a shortcut for regular data asks.

Knows the ways in which this is written, nothing of what is done about it.
"""

from __future__ import annotations

import ast


def alike(test: ast.expr) -> str | None:
    """The name of the list of which `all(n == ns[0] for n in ns)` and its like ask; None for others."""
    if isinstance(test, ast.Call):
        return _all_equal(test)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right = test.left, test.comparators[0]
    if isinstance(test.ops[0], ast.Eq):
        ends = [_argument(left, "min") or _argument(left, "max")]
        ends.append(_argument(right, "max") or _argument(right, "min"))
        called = {ast.unparse(n.func) for n in (left, right) if isinstance(n, ast.Call)}
        if ends[0] is not None and ends[0] == ends[1] and called == {"min", "max"}:
            return ends[0]
    one = isinstance(right, ast.Constant) and right.value == 1
    if one and isinstance(test.ops[0], (ast.Eq, ast.LtE)) and _is_named_call(left):
        assert isinstance(left, ast.Call)
        return _argument(left.args[0], "set") if ast.unparse(left.func) == "len" else None
    return None


def _all_equal(test: ast.Call) -> str | None:
    over = test.args[0] if ast.unparse(test.func) == "all" and len(test.args) == 1 else None
    if not isinstance(over, (ast.GeneratorExp, ast.ListComp)) or len(over.generators) != 1:
        return None
    generator, asked = over.generators[0], over.elt
    if (
        generator.ifs
        or not isinstance(asked, ast.Compare)
        or not isinstance(generator.iter, ast.Name)
    ):
        return None
    if len(asked.ops) != 1 or not isinstance(asked.ops[0], ast.Eq):
        return None
    name = generator.iter.id
    sides = {ast.unparse(asked.left), ast.unparse(asked.comparators[0])}
    return name if sides == {ast.unparse(generator.target), f"{name}[0]"} else None


def _is_named_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1


def _argument(node: ast.expr, function: str) -> str | None:
    """The name that a function is called with, alone."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != function or node.keywords:
        return None
    given = node.args[0] if len(node.args) == 1 else None
    return given.id if isinstance(given, ast.Name) else None
