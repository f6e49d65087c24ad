"""Statements that stay in Python, taken apart around the one expression in them that has to.

`x = h + noise(h * 2)` becomes `given = h * 2`, `made = noise(given)` and `x = h + made`, of which only
the call of `noise` is left to Python. Knows statements and names, nothing of the runs they become.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from gbfix.analysis.liveness import reads
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.lowering.bindings import stored, surely_bound
from gbfix.lowering.stages.parts import Item
from gbfix.lowering.stages.pivots import above, evaluated, may_part, pivot_of
from gbfix.lowering.stages.staying import Staying, is_compiled_alone, is_exit, names_kept, work


def taken_apart(statement: ast.stmt, staying: Staying, *, final: bool) -> tuple[Item, ...] | None:
    """A statement taken apart around the one expression in it that stays in Python."""
    value = evaluated(statement)
    pivot = pivot_of(statement, value, staying) if value is not None else None
    if value is None or pivot is None:
        return None
    view, names = staying.context.view, staying.context.names
    returns = any(isinstance(n, ast.Return) for n in walk(statement))
    before = [a for a in _computed(pivot) if work(a, staying) and not names_kept(a, staying)]
    after = isinstance(statement, ast.If) or (
        pivot is not value and _works_around(value, pivot, staying)
    )
    if not before and not after:
        return None
    if pivot in staying.kept_calls and pivot is not value:
        return None
    if isinstance(statement, ast.If) and is_exit(statement, final=final):
        return None
    if not may_part(value, pivot, staying) or "\n" in view.text(value):
        return None
    items: list[Item] = []
    base, text = view.start(pivot), view.text(pivot)
    for argument in reversed(before):
        name = names.take("given")
        start = view.start(argument) - base
        text = f"{text[:start]}{name}{text[start + len(view.text(argument)) :]}"
        items.insert(
            0,
            _made(
                statement,
                f"{name} = {view.text(argument)}",
                argument,
                name,
                work(argument, staying),
            ),
        )
    made = frozenset(n for i in items for n in i.binds)
    moved = {id(n) for a in before for n in walk(a)}
    needs = made | frozenset(
        n.id for n in walk(pivot) if isinstance(n, ast.Name) and id(n) not in moved
    )
    name = text
    if after:
        name = names.take("drawn" if isinstance(statement, ast.If) else "made")
        item = _made(statement, f"{name} = {text}", pivot, name, 0)
        items.append(replace(item, needs=needs, stays=True))
        needs = frozenset({name})
    whole = view.slice(view.start(statement), base) + name
    whole += view.slice(view.end(pivot), view.end(statement))
    inner = view.indent(statement)
    unmoved = _reads_without(statement, pivot)
    stays = not after or bool(unmoved & staying.kept) or is_exit(statement, final=final)
    items.append(
        Item(
            statement,
            "\n".join(line.removeprefix(inner) for line in whole.split("\n")),
            unmoved | needs,
            surely_bound(statement),
            stored(statement),
            stays,
            max(work(value, staying) - work(pivot, staying), 1) if after else 0,
            returns,
        )
    )
    for index, item in enumerate(items):
        later = frozenset(n for i in items[index + 1 :] for n in i.needs)
        items[index] = replace(item, later=later)
    return tuple(items)


def _made(statement: ast.stmt, text: str, node: ast.expr, name: str, work: int) -> Item:
    names = frozenset({name})
    return Item(statement, text, frozenset(reads(node)), names, names, False, work)


def _works_around(value: ast.expr, call: ast.expr, staying: Staying) -> bool:
    """Whether an expression computes with tensors besides a call in it, and calls no part."""
    around = [n for n in above(value, call) if isinstance(n, (ast.BinOp, ast.Call))]
    calls = [n for n in around if isinstance(n, ast.Call)]
    if len(around) == 1 and calls and is_compiled_alone(calls[0], staying):
        return False
    values = staying.context.analysis.values
    return any(
        (v := values.get(n)) is not None and v.kinds & (Kind.TENSOR | Kind.MAYBE) for n in around
    )


def _computed(node: ast.expr) -> Iterator[ast.expr]:
    """The operands of an expression that are more than a name or a constant."""
    operands: list[ast.expr] = []
    if isinstance(node, ast.Call):
        operands = [*node.args, *(k.value for k in node.keywords)]
    elif isinstance(node, ast.BinOp):
        operands = [node.left, node.right]
    for argument in operands:
        if not isinstance(argument, (ast.Name, ast.Attribute, ast.Constant, ast.Starred)):
            yield argument


def _reads_without(statement: ast.stmt, call: ast.expr) -> frozenset[str]:
    inside = {id(n) for n in walk(call)}
    return frozenset(
        n.id
        for n in walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in inside
    )
