"""Statements of an arm that may run whichever way the branch goes.

Two idioms set an attribute inside an arm without deciding anything: the one-time initialisation of a
cache (`if not hasattr(self, "table"): self.table = ...`), and moving a tensor to the device it will
be used on (`self.table = self.table.to(device)`). The compiled path runs them before the branch.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.evaluate import dotted
from gbfix.analysis.liveness import bound, reads
from gbfix.analysis.trees import walk


def split_preparation(
    statements: Sequence[ast.stmt], live: frozenset[str]
) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The statements that may run always, and the rest, both in order.

    `live` holds the names that are read after the branch.
    """
    ready: list[ast.stmt] = []
    rest: list[ast.stmt] = []
    decided: set[str] = set()
    for statement in statements:
        if (
            _prepares(statement)
            and not (reads(statement) & decided)
            and not (_local_names(statement) & live)
        ):
            ready.append(statement)
        else:
            rest.append(statement)
            decided |= _local_names(statement)
    return ready, rest


def _local_names(statement: ast.stmt) -> set[str]:
    return {
        n.id for n in walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    } | set(bound(statement) if not isinstance(statement, ast.If) else ())


def _prepares(statement: ast.stmt) -> bool:
    return _initialises(statement) or _moves(statement)


def _initialises(statement: ast.stmt) -> bool:
    """`if not hasattr(x, "a"): x.a = ...` and `if x.a is None: x.a = ...`."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    missing = _asked_for(statement.test)
    if missing is None:
        return False
    for inner in statement.body:
        if not isinstance(inner, ast.Assign) or len(inner.targets) != 1:
            return False
        target = inner.targets[0]
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        attributes = [dotted(p) for p in parts if isinstance(p, ast.Attribute)]
        if any(a != missing for a in attributes):
            return False
        if any(not isinstance(p, (ast.Attribute, ast.Name)) for p in parts):
            return False
    return any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
               for s in statement.body for n in walk(s))  # fmt: skip


def _asked_for(test: ast.expr) -> str | None:
    """The attribute whose absence a test asks for."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        call = test.operand
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "hasattr"
            and len(call.args) == 2
            and isinstance(call.args[1], ast.Constant)
        ):
            return f"{dotted(call.args[0])}.{call.args[1].value!s}"
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        comparator = test.comparators[0]
        if isinstance(comparator, ast.Constant) and comparator.value is None:
            return dotted(test.left)
    return None


def _moves(statement: ast.stmt) -> bool:
    """`x.a = x.a.to(device)`."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Attribute) or not isinstance(value, ast.Call):
        return False
    function = value.func
    if not isinstance(function, ast.Attribute) or function.attr != "to":
        return False
    if dotted(function.value) != dotted(target) or len(value.args) + len(value.keywords) != 1:
        return False
    argument = value.args[0] if value.args else value.keywords[0].value
    name = dotted(argument) or ""
    return name.rsplit(".", 1)[-1] == "device"
