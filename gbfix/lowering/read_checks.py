"""Numbers that are read from tensors only to be checked: `n = x.max().item()`, `if n > 9: raise ...`.

What raises shows the number as a rule, so the name has to stay a number in eager code. In the compiled
path the check is made on the tensor, and nothing is read. Knows statements and names, nothing of edits.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from gbfix.analysis.effects import effects
from gbfix.analysis.trees import walk
from gbfix.fixes import Context
from gbfix.lowering.views import block_of, is_eager


@dataclass(frozen=True)
class ReadChecks:
    """Statements that read numbers, and the checks behind them.

    Attributes:
        statements: all of them, one after the other.
        checks: those that raise.
        tensors: for the names of the numbers, the tensors that they are read from.
        truncated: the names of those that `int` makes whole, as far as is known.
    """

    statements: tuple[ast.stmt, ...]
    checks: tuple[ast.If | ast.Assert, ...]
    tensors: Mapping[str, ast.expr]
    truncated: frozenset[str]


def read_checks(check: ast.stmt, context: Context) -> ReadChecks | None:
    """The statements that only serve a check, if what it tests is read right before it."""
    block = block_of(check, context.info.module)
    first = last = next(i for i, s in enumerate(block) if s is check)
    while first > 0 and (_reads(block[first - 1], context) or _raises(block[first - 1])):
        first -= 1
    while last + 1 < len(block) and (_reads(block[last + 1], context) or _raises(block[last + 1])):
        last += 1
    statements = _together(check, block[first : last + 1], context)
    tensors = _bound(statements, context)
    tested = {n.id for n in walk(_test(check)) if isinstance(n, ast.Name)}
    if not tensors or not tested & tensors.keys():
        return None
    inside = {id(n) for s in statements for n in walk(s)}
    for node in walk(context.info.node):
        if isinstance(node, ast.Name) and node.id in tensors and id(node) not in inside:
            if not is_eager(node, context.analysis):
                return None
    for node in (n for s in statements for n in walk(s)):
        if isinstance(node, ast.Name) and node.id in tensors and isinstance(node.ctx, ast.Store):
            if sum(node.id in _bound([s], context) for s in statements) != 1:
                return None
    checks = tuple(s for s in statements if isinstance(s, (ast.If, ast.Assert)))
    values, parents = context.analysis.values, context.info.module.parents
    truncated = frozenset(
        name
        for name, tensor in tensors.items()
        if not values[tensor].integer
        and isinstance(call := parents[tensor], ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "int"
    )
    return ReadChecks(tuple(statements), checks, tensors, truncated)


def _together(check: ast.stmt, run: list[ast.stmt], context: Context) -> list[ast.stmt]:
    """The part of a run of reads and checks that is tied to a check by the names that are read."""
    spans: list[tuple[int, int]] = []
    for at, statement in enumerate(run):
        for name in _bound([statement], context):
            uses = [i for i, s in enumerate(run) if i >= at and _names(s, name)]
            spans.append((at, max(uses)))
    place = next(i for i, s in enumerate(run) if s is check)
    first = last = place
    while True:
        near = [s for s in spans if s[0] <= last and first <= s[1]]
        wide = (min([first, *(a for a, _ in near)]), max([last, *(b for _, b in near)]))
        if wide == (first, last):
            return run[first : last + 1]
        first, last = wide


def _names(statement: ast.stmt, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in walk(statement))


def _test(check: ast.stmt) -> ast.expr:
    assert isinstance(check, (ast.If, ast.Assert))
    return check.test


def _raises(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return isinstance(statement.body[-1], ast.Raise) and not statement.orelse
    return isinstance(statement, ast.Assert)


def _reads(statement: ast.stmt, context: Context) -> bool:
    return bool(_bound([statement], context))


def _bound(statements: list[ast.stmt], context: Context) -> dict[str, ast.expr]:
    """The names that assignments of nothing but numbers read from tensors bind."""
    found: dict[str, ast.expr] = {}
    for statement in statements:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        targets, values = [statement.targets[0]], [statement.value]
        if isinstance(targets[0], ast.Tuple) and isinstance(values[0], ast.Tuple):
            targets, values = targets[0].elts, values[0].elts
        tensors = [_tensor(v, context) for v in values]
        if len(targets) != len(values) or not all(isinstance(t, ast.Name) for t in targets):
            continue
        if not effects([statement.value], context.analysis, context.facts).pure:
            continue
        for target, tensor in zip(targets, tensors, strict=True):
            if tensor is None:
                break
            assert isinstance(target, ast.Name)
            found[target.id] = tensor
        else:
            continue
        for target in targets:
            found.pop(target.id if isinstance(target, ast.Name) else "", None)
    return found


def _tensor(node: ast.expr, context: Context) -> ast.expr | None:
    """The tensor of `t.item()`, `float(t)`, and `int(t)`, which fails for numbers that are none."""
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    inner: ast.expr | None = None
    integer = False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
        inner = node.func.value
    elif isinstance(node.func, ast.Name) and len(node.args) == 1:
        if node.func.id in {"float", "int"}:
            inner, integer = node.args[0], node.func.id == "int"
    value = context.analysis.values.get(inner) if inner is not None else None
    if value is None or not value.tensor or (integer and value.floating):
        return None
    return inner
