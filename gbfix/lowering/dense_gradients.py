"""Sums in an arm of a tensor from outside of it, such as the `x.sum() * 0` of an empty loss.

The gradient of a sum is one number for all elements, a tensor of stride 0, and `torch.cond` fails in
the backward pass where the other arm gives a dense one. `(x * 1).sum()` has the same value and a dense
gradient. Knows expressions and their texts, nothing of how arms are written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.codegen.expressions import flat
from gbfix.codegen.view import View
from gbfix.lowering.aliases import shared_root

Replacement = tuple[re.Pattern[str], str]


def dense_sums(
    nodes: Iterable[ast.AST], own: frozenset[str], analysis: Analysis, view: View
) -> list[Replacement]:
    """The texts of sums that code computes with, and what to write for them.

    `own` holds the names that the code has made from new storage.
    """
    found: list[Replacement] = []
    parents = analysis.info.module.parents
    for node in (n for top in nodes for n in walk(top)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr != "sum" or not isinstance(parents.get(node), (ast.BinOp, ast.UnaryOp)):
            continue
        function = analysis.values.get(node.func)
        of_torch = function is not None and function.reference == "torch.sum"
        summed = node.args[0] if of_torch and node.args else node.func.value
        value = analysis.values.get(summed)
        if value is None or not value.tensor or value.integer or value.boolean:
            continue
        if not shared_root(summed, analysis, own) or _counts(summed):
            continue
        text = flat(view, summed)
        before = rf"{re.escape(flat(view, node.func))}\(" if of_torch else r"(?<![\w.])"
        after = r"(?=[,)])" if of_torch else r"(?=\.sum\()"
        head = f"{flat(view, node.func)}(" if of_torch else ""
        new = f"{head}{text} * 1" if of_torch else f"({text} * 1)"
        found.append((re.compile(f"{before}{re.escape(text)}{after}"), new))
    return found


def _counts(node: ast.expr) -> bool:
    """Whether a sum counts the elements of a mask: `rows.expand_as(x).sum()`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"expand", "expand_as"}
    )


def with_dense_sums(text: str, replacements: Iterable[Replacement]) -> str:
    """A text with the sums in it replaced."""
    for pattern, new in replacements:
        text = pattern.sub(lambda _, new=new: new, text)  # type: ignore[misc]
    return text
