"""Attributes whose new values Dynamo would lose because of an operator with a body traced in between.

Once a plain attribute of an object was set, Dynamo (seen on torch 2.13) keeps a view of the object's
`__dict__` that writes to the side effects as they were then; tracing an arm of a `torch.cond` or a
round of a `while_loop` replaces those. What is set after the call goes nowhere, without a word. It does
not matter in which function of the graph the stores stand, so callers are looked at as well. Buffers
are kept elsewhere and are not lost.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gbfix.analysis.call_index import calls
from gbfix.analysis.conditions import Refused
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import loops_around, walk
from gbfix.analysis.values import Kind

_MOST_CALLERS = 200


@dataclass(frozen=True)
class _Write:
    """A plain attribute that a function sets, itself or in a method that it calls."""

    base: str
    name: str
    node: ast.AST


def check_stores(
    place: tuple[ast.stmt, ast.stmt],
    outputs: Iterable[str],
    analysis: Analysis,
    facts: Facts,
    operator: str = "cond",
) -> None:
    """Refuse an operator of torch between two stores to one object.

    `place` holds the first and the last statement that it takes up, `outputs` the attributes that are
    set from its results.

    Raises:
        Refused: naming both attributes.
    """
    writes = list(_writes(analysis, facts))
    inside = [w for w in writes if f"{w.base}.{w.name}" in set(outputs)]
    _check_around(place, writes, inside, analysis, operator)
    seen = {analysis.info.node}
    todo = [analysis.info]
    while todo and len(seen) < _MOST_CALLERS:
        called = todo.pop()
        for caller in facts.calling(called):
            found = list(_writes(caller, facts))
            for callee, node in calls(caller, facts) if found else ():
                statement = _statement(node, caller) if callee.node is called.node else None
                if statement is not None:
                    _check_around((statement, statement), found, [], caller, operator)
            if caller.info.node not in seen:
                seen.add(caller.info.node)
                todo.append(caller.info)


def _check_around(
    place: tuple[ast.stmt, ast.stmt],
    writes: list[_Write],
    outputs: list[_Write],
    analysis: Analysis,
    operator: str,
) -> None:
    first, last = place
    end = last.end_lineno or last.lineno
    repeated = _repeated(first, analysis)
    earlier = [w for w in writes if _line(w) < first.lineno or w.node in repeated]
    later = [w for w in writes if _line(w) > end or w.node in repeated] + outputs
    for before in earlier:
        for after in later:
            if before.base == after.base:
                raise Refused(
                    "lost-store",
                    f"`{before.base}.{before.name}` is set before a `torch.{operator}` would run, and "
                    f"Dynamo would then lose what is stored in `{after.base}.{after.name}` after it",
                )


def _line(write: _Write) -> int:
    line: int = write.node.lineno  # type: ignore[attr-defined]
    return line


def _repeated(node: ast.AST, analysis: Analysis) -> set[ast.AST]:
    """Everything in the loops around a statement."""
    parents, function = analysis.info.module.parents, analysis.info.node
    return {n for loop in loops_around(parents.get(node), function, parents) for n in walk(loop)}


def _writes(
    analysis: Analysis, facts: Facts, seen: frozenset[ast.AST] = frozenset()
) -> Iterator[_Write]:
    function = analysis.info.node
    if function.name in ("__init__", "__post_init__"):
        return
    for node in walk(function):
        if node.__class__ is not ast.Attribute and node.__class__ is not ast.Call:
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            base, value = dotted(node.value), analysis.values.get(node.value)
            if base is None or (value is not None and value.kinds & Kind.TENSOR):
                continue
            cls = facts.project.class_info(value.reference) if value is not None else None
            if cls is None or not facts.registered(cls, node.attr):
                yield _Write(base, node.attr, node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            base, value = dotted(node.func.value), analysis.values.get(node.func)
            if base != "self" or value is None or not value.kinds & Kind.REFERENCE:
                continue
            info = facts.project.function_info(value.reference) if value.reference else None
            if info is None or info.owner is None or info.node in seen or info.node is function:
                continue
            inner = facts.analysis(info)
            if inner is not None:
                for write in _writes(inner, facts, seen | {function}):
                    if write.base == "self":
                        yield _Write(write.base, write.name, node)


def _statement(node: ast.AST, analysis: Analysis) -> ast.stmt | None:
    parents = analysis.info.module.parents
    while not isinstance(node, ast.stmt):
        above = parents.get(node)
        if above is None:
            return None
        node = above
    return node
