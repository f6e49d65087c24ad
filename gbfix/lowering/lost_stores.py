"""Attributes whose new values Dynamo would lose because of an operator with a body traced in between.

Once a plain attribute of an object was set, Dynamo (seen on torch 2.13) keeps a view of the object's
`__dict__` that writes to the side effects as they were then; tracing an arm of a `torch.cond` or a
round of a `while_loop` replaces those. What is set after the call goes nowhere, without a word. It does
not matter in which function of the graph the stores stand, so callers are looked at as well. Buffers
are kept elsewhere and are not lost.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gbfix.analysis.call_index import calls
from gbfix.analysis.conditions import Refused
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.trees import loops_around, statements, walk
from gbfix.analysis.values import Kind

_MOST_CALLERS = 200
_CONSTRUCTING = frozenset({"__init__", "__post_init__"})
_OWN_CALL = re.compile(r"\bself(?:\s|\\)*\.(?:\s|\\)*(\w+)(?:\s|\\)*\(")


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
    if not facts.led_to_by(analysis.info, lambda info: _may_lose(info, facts)):
        return
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


def _may_lose(info: FunctionInfo, facts: Facts) -> bool:
    """Whether a function may set attributes of one object before and after something it calls.

    Told by its syntax, since most functions do not: what it would take to analyse them is saved.
    """
    if info.node.name in _CONSTRUCTING:
        return False
    bases: set[str] = set()
    for target in _targets(info):
        base = dotted(target.value)
        around = loops_around(target, info.node, info.module.parents)
        if base is not None and (base in bases or next(around, None) is not None):
            return True
        bases.update([base] if base is not None else ())
    return _calls_writing(info, facts, frozenset())


def _calls_writing(info: FunctionInfo, facts: Facts, seen: frozenset[ast.AST]) -> bool:
    """Whether a function may call a method of its own object that sets attributes."""
    node, owner = info.node, info
    names = sorted(set(_OWN_CALL.findall(info.text)))
    while owner.owner is None and owner.outer is not None:
        owner = owner.outer
    if owner.owner is None:
        return bool(names)
    set_here = facts.writes(owner.owner)
    for name in names:
        if name in set_here and name not in owner.owner.methods:
            continue  # a layer, say
        method = facts.project.method(owner.owner, name)
        # By its name, as a call finds it: a property comes before the method that sets it.
        method = facts.project.function_info(method.qualified) if method is not None else None
        if method is None or method.node in seen or name in _CONSTRUCTING:
            continue
        if next(_targets(method), None) or _calls_writing(method, facts, seen | {node}):
            return True
    return False


def _targets(info: FunctionInfo) -> Iterator[ast.Attribute]:
    """The attributes that statements of a function bind."""
    for statement in statements(info.node):
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
            targets = [statement.target]
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            targets = [i.optional_vars for i in statement.items if i.optional_vars is not None]
        for target in targets:
            for node in walk(target) if target.__class__ is not ast.Name else ():
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    yield node


def _writes(
    analysis: Analysis, facts: Facts, seen: frozenset[ast.AST] = frozenset()
) -> Iterator[_Write]:
    function = analysis.info.node
    if function.name in _CONSTRUCTING:
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
