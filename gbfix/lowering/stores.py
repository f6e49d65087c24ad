"""In-place updates of a module's buffers as values: what `self.mean.mul_(0.9).add_(m)` would leave.

An arm that updates a buffer in place decides a value; the compiled path selects between the values
and copies the selected one into the buffer, so that whoever holds the buffer still sees the change.
Only buffers of `self` qualify: anything else in-place is refused elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
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
        if not has_value_form(node):
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


def has_value_form(node: ast.Call) -> bool:
    """Whether an in-place call of a method has a counterpart that gives the value alone."""
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
    return value_of(store.place, store.steps, lambda node: flat(view, node), torch, store.name)


def value_of(
    place: str,
    steps: Sequence[ast.Call],
    source: Callable[[ast.expr], str],
    torch: str,
    name: str | None = None,
) -> str:
    """The value that in-place calls on a place would leave in it.

    Args:
        place: the text of what is updated.
        steps: the calls, in the order in which they run.
        source: the text of an argument.
        torch: the module's name for torch.
        name: the text of what has its shape and dtype, if that is not the place.
    """
    text = place
    for step in steps:
        assert isinstance(step.func, ast.Attribute)
        method = step.func.attr
        arguments = [source(a) for a in step.args]
        arguments += [f"{k.arg}={source(k.value)}" for k in step.keywords if k.arg]
        if method == "copy_":
            text = arguments[0]
            if not isinstance(step.args[0], (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
                text = f"({text})" if len(steps) > 1 else text
        elif method == "fill_":
            text = f"{torch}.full_like({name or place}, {arguments[0]})"
        elif method == "zero_":
            text = f"{torch}.zeros_like({name or place})"
        else:
            text = f"{text}.{method[:-1]}({', '.join(arguments)})"
    return text


def stores_in(
    statements: Sequence[ast.stmt], analysis: Analysis, facts: Facts
) -> dict[ast.stmt, Store]:
    """The statements that update buffers, with their updates."""
    found = {s: store_of(s, analysis, facts) for s in statements}
    return {s: store for s, store in found.items() if store is not None}
