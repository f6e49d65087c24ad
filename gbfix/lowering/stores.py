"""In-place updates of a module's buffers as values: what `self.mean.mul_(0.9).add_(m)` would leave.

An arm that updates a buffer in place decides a value; the compiled path selects between the values
and copies the selected one into the buffer, so that whoever holds the buffer still sees the change.
Only buffers of `self` qualify: anything else in-place is refused elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from gbfix.analysis import torch_table
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.codegen.expressions import flat
from gbfix.codegen.view import View


@dataclass(frozen=True)
class Store:
    """An in-place update of a buffer.

    Attributes:
        name: the buffer, such as `self.mean`.
        place: the buffer as the source reaches it, such as `self.mean.data`.
        steps: the in-place calls, in the order in which they run.
    """

    name: str
    place: str
    steps: tuple[ast.Call, ...]


def store_of(statement: ast.stmt, analysis: Analysis, facts: Facts) -> Store | None:
    """The update that a statement makes, if it is one of a buffer of `self`."""
    if not isinstance(statement, ast.Expr):
        return None
    steps: list[ast.Call] = []
    node = statement.value
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if not _has_value_form(node):
            return None
        steps.append(node)
        node = node.func.value
    place = dotted(node)
    if not steps or place is None:
        return None
    name = place.removesuffix(".data")
    owner, _, attribute = name.rpartition(".")
    base = analysis.before[statement].get(owner)
    cls = facts.project.class_info(base.reference) if base is not None else None
    if cls is None or not facts.registered(cls, attribute, parameters=False):
        return None
    return Store(name, place, tuple(reversed(steps)))


def _has_value_form(node: ast.Call) -> bool:
    assert isinstance(node.func, ast.Attribute)
    method = node.func.attr
    if not method.endswith("_") or method.endswith("__"):
        return False
    if method in {"copy_", "fill_"}:
        return len(node.args) == 1 and not node.keywords
    if method == "zero_":
        return not node.args
    operation = torch_table.method(method[:-1])
    return operation is not None and operation.pointwise


def value_text(store: Store, view: View, torch: str) -> str:
    """The value that the update would leave in the buffer."""
    text = store.place
    for step in store.steps:
        assert isinstance(step.func, ast.Attribute)
        method = step.func.attr
        arguments = [flat(view, a) for a in step.args]
        arguments += [f"{k.arg}={flat(view, k.value)}" for k in step.keywords if k.arg]
        if method == "copy_":
            text = arguments[0]
            if not isinstance(step.args[0], (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
                text = f"({text})" if len(store.steps) > 1 else text
        elif method == "fill_":
            text = f"{torch}.full_like({store.name}, {arguments[0]})"
        elif method == "zero_":
            text = f"{torch}.zeros_like({store.name})"
        else:
            text = f"{text}.{method[:-1]}({', '.join(arguments)})"
    return text


def stores_in(
    statements: Sequence[ast.stmt], analysis: Analysis, facts: Facts
) -> dict[ast.stmt, Store]:
    """The statements that update buffers, with their updates."""
    found = {s: store_of(s, analysis, facts) for s in statements}
    return {s: store for s, store in found.items() if store is not None}
