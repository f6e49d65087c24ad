"""The expressions that a name may have been bound to, in a function or where it is read.

Knows statements and targets, nothing of what the expressions mean.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.trees import walk


def reaching(node: ast.Name, info: FunctionInfo) -> Iterator[ast.expr | None]:
    """What a name may have been bound to where it is read; None for what has no expression."""
    parents, name = info.module.parents, node.id
    here: ast.AST = node
    while here is not info.node:
        above = parents.get(here)
        if above is None:
            break
        if isinstance(above, (ast.For, ast.AsyncFor, ast.While)):
            yield from bound_to(name, above)
        for statement in _before(here, above):
            values = list(bound_to(name, statement))
            yield from values
            if values and isinstance(statement, (ast.Assign, ast.AnnAssign)):
                return
        here = above
    arguments = {a.arg for a in walk(info.node.args) if isinstance(a, ast.arg)}
    if name in arguments or not any(bound_to(name, info.node)):
        yield None


def _before(node: ast.AST, above: ast.AST) -> Iterator[ast.stmt]:
    """The statements before one in its block, the last first."""
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(above, block, None)
        if isinstance(statements, list) and any(s is node for s in statements):
            place = next(i for i, s in enumerate(statements) if s is node)
            yield from reversed(statements[:place])


_BINDING = frozenset({ast.arg, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Name})


def bound_to(name: str, function: ast.AST) -> Iterator[ast.expr | None]:
    """What code binds to a name; None for a parameter, a loop and the like."""
    plain: set[ast.AST] = set()
    for node in walk(function):
        if node.__class__ not in _BINDING:
            continue
        if isinstance(node, ast.arg) and node.arg == name:
            yield None
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for one, value in taken_apart(target, node.value):
                    if isinstance(one, ast.Name) and one.id == name:
                        plain.add(one)
                        yield value
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            if isinstance(node.target, ast.Name) and node.target.id == name:
                plain.add(node.target)
                if node.value is not None:
                    yield node.value
        elif isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            if node not in plain:
                yield None


def taken_apart(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets in a target with the parts of a value that they get, or all of it."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
        return
    apart = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
    for position, one in enumerate(target.elts):
        part = value.elts[position] if apart else value  # type: ignore[attr-defined]
        yield from taken_apart(one, part)
