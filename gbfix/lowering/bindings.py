"""Which names a statement needs before it has bound them itself, and which it binds.

Stricter than liveness, which asks for the names after a statement. Knows syntax only.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.liveness import bound, reads
from gbfix.analysis.trees import walk


def stored(node: ast.AST) -> frozenset[str]:
    """Names that are bound somewhere in a node."""
    return frozenset(
        n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )


def defined(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Names that a function binds by other means than an assignment: definitions, imports, handlers."""
    found: set[str] = set()
    for node in walk(function):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= bound(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found |= {node.name} if node is not function else set()
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
    return frozenset(found)


def surely_bound(statement: ast.stmt) -> frozenset[str]:
    """Names that are bound once a statement is done, whatever happens."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        if isinstance(statement, ast.AnnAssign) and statement.value is None:
            return frozenset()
        return stored(statement)
    if isinstance(statement, ast.If) and statement.orelse:
        return _all_bound(statement.body) & _all_bound(statement.orelse)
    if isinstance(statement, ast.With):
        plain = not any("suppress" in ast.unparse(item) for item in statement.items)
        return _all_bound(statement.body) if plain else frozenset()
    return frozenset()


def _all_bound(block: Sequence[ast.stmt]) -> frozenset[str]:
    return frozenset().union(*map(surely_bound, block))


def needed_names(statement: ast.stmt) -> frozenset[str]:
    """Names that a statement reads, without those that it has bound itself by then."""
    if isinstance(statement, (ast.If, ast.While)):
        inner = needed_by(statement.body) | needed_by(statement.orelse)
        return reads(statement.test) | inner
    if isinstance(statement, ast.For):
        inner = needed_by(statement.body) - stored(statement.target)
        return reads(statement.iter) | inner | needed_by(statement.orelse)
    if isinstance(statement, ast.With):
        named = [i.optional_vars for i in statement.items if i.optional_vars is not None]
        inner = needed_by(statement.body) - frozenset().union(*map(stored, named))
        return inner | frozenset().union(*(reads(i.context_expr) for i in statement.items))
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        return reads(statement) | {statement.target.id}
    return reads(statement)


def needed_by(block: Sequence[ast.stmt]) -> frozenset[str]:
    """Names that consecutive statements read, without those that they have bound by then."""
    needed: set[str] = set()
    bound: set[str] = set()
    for statement in block:
        needed |= needed_names(statement) - bound
        bound |= surely_bound(statement)
    return frozenset(needed)
