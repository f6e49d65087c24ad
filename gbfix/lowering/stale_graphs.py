"""Attributes that carry a graph from one call to the next.

A graph that is compiled as a whole runs its backward pass as a whole. Where it reads what an earlier
call stored with its graph, the backward pass goes through that graph again, although nothing that
the call returned needs it, and fails: its buffers are gone. A branch that is skipped over in eager
reads nothing, and a `torch.cond` or `torch.where` in its place does. (Seen on torch 2.13.)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from gbfix.analysis.evaluate import dotted
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.trees import walk
from gbfix.lowering.bound_values import bound_to
from gbfix.lowering.gradients import SETUP, Flow, gradients_are_off, store_flow, stores_of


def stale_graph(
    attributes: Iterable[str], place: ast.stmt, analysis: Analysis, facts: Facts
) -> str:
    """The first of some attributes that may hold the graph of an earlier call; "" for none.

    One that the call itself has set before `place` holds no older graph.
    """
    environment = analysis.before[place]
    for attribute in attributes:
        here = environment.get(attribute)
        if here is not None and not here.unbound:
            continue
        base = environment.get(attribute.split(".", 1)[0])
        cls = facts.project.class_info(base.reference) if base is not None else None
        if cls is None or attribute.count(".") != 1:
            continue
        name = attribute.rsplit(".", 1)[1]
        if not gradients_are_off(place, analysis.info) and any(
            method is not None
            and method.node.name not in SETUP
            and not _is_given(value, method, analysis.info)
            and store_flow(cls, name, method, value, facts) is Flow.YES
            for method, value in stores_of(cls, name, facts)
        ):
            return attribute
    return ""


def _is_given(value: ast.expr | None, method: FunctionInfo, here: FunctionInfo) -> bool:
    """Whether another method stores what it is given, as a setter does: nothing is known of that."""
    if not isinstance(value, ast.Name) or method.node is here.node or method.node.name == "forward":
        return False
    return all(bound is None for bound in bound_to(value.id, method.node))


def held_attributes(nodes: Iterable[ast.AST], analysis: Analysis) -> Iterator[str]:
    """Attributes that code reads, by name: there, or through a local name that stands for one."""
    for node in nodes:
        for inner in walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Load):
                name = dotted(inner)
                if name is not None:
                    yield name
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                yield from standing_for(inner.id, analysis)


def standing_for(name: str, analysis: Analysis) -> Iterator[str]:
    """The attributes that a function gives a local name to, as in `last = self.last`."""
    for value in bound_to(name, analysis.info.node):
        attribute = dotted(value) if isinstance(value, ast.Attribute) else None
        if attribute is not None:
            yield attribute


def stale_reason(attribute: str) -> str:
    """Why a fix that reads such an attribute in every call is unsafe."""
    return (
        f"`{attribute}` keeps the graph of the call that set it, and the compiled backward pass "
        "would go through it a second time, which fails; it is right where nothing is trained"
    )
