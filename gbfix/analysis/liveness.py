"""Which names are read later: backward liveness over the statements of one function.

The classic analysis on structured code: a name is live before a statement if some path from there
reads it before binding it. Names that nested functions or lambdas read count as read wherever the
function is defined or later. Knows names only; attributes live with their base name.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.project import Function
from gbfix.analysis.trees import kept, of_kind, walk

Names = frozenset[str]
_EMPTY: Names = frozenset()


class Liveness:
    """Names live after each statement of a function."""

    def __init__(self, function: Function) -> None:
        self.after: dict[ast.stmt, Names] = {}
        # What nested scopes read may be read whenever they are called; the branches of a
        # `torch.cond` are called where they stand.
        branches = _branches(function)
        self.captured = frozenset(
            n.id
            for inner in walk(function)
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            and inner is not function
            and inner not in branches
            for n in walk(inner)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        )
        self._loops: list[tuple[Names, Names]] = []
        self._block(function.body, _EMPTY)

    def _block(self, body: Sequence[ast.stmt], after: Names) -> Names:
        live = after
        for statement in reversed(body):
            previous = self.after.get(statement, _EMPTY)
            self.after[statement] = live | previous
            live = self._statement(statement, live)
        return live

    def _statement(self, node: ast.stmt, after: Names) -> Names:
        if isinstance(node, ast.Return):
            return reads(node)
        if isinstance(node, ast.Raise):
            return reads(node)
        if isinstance(node, ast.Break):
            return self._loops[-1][1] if self._loops else after
        if isinstance(node, ast.Continue):
            return self._loops[-1][0] if self._loops else after
        if isinstance(node, ast.If):
            return (
                reads(node.test) | self._block(node.body, after) | self._block(node.orelse, after)
            )
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            return self._loop(node, after)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            live = self._block(node.body, after)
            for item in reversed(node.items):
                if item.optional_vars is not None:
                    live -= bound(item.optional_vars)
                live |= reads(item.context_expr)
            return live
        if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            return self._try(node, after)  # type: ignore[arg-type]
        if isinstance(node, ast.Match):
            live = after
            for case in node.cases:
                live |= self._block(case.body, after)
                live |= reads(case.guard) if case.guard else _EMPTY
            return live | reads(node.subject)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return (after - {node.name}) | reads(node)
        if isinstance(node, ast.AugAssign):
            return after | reads(node) | bound(node.target)
        return (after - bound(node)) | reads(node)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, after: Names) -> Names:
        out = self._block(node.orelse, after) if node.orelse else after
        header = reads(node.test) if isinstance(node, ast.While) else reads(node.iter)
        target = _EMPTY if isinstance(node, ast.While) else bound(node.target)
        top = out | (reads(node.test) if isinstance(node, ast.While) else _EMPTY)
        for _ in range(3):  # the lattice is shallow: names only flow once around the loop
            self._loops.append((top, after))
            body = self._block(node.body, top)
            self._loops.pop()
            new = top | (body - target)
            if new == top:
                break
            top = new
        return header | top

    def _try(self, node: ast.Try, after: Names) -> Names:
        final = self._block(node.finalbody, after) if node.finalbody else after
        handlers = final
        for handler in node.handlers:
            live = self._block(handler.body, final)
            handlers |= (live - {handler.name}) if handler.name else live
            handlers |= reads(handler.type) if handler.type else _EMPTY
        end = self._block(node.orelse, final) if node.orelse else final
        # An exception can leave the body anywhere, so what a handler reads is live throughout.
        return self._block(node.body, end | handlers) | handlers


def _branches(function: Function) -> set[ast.AST]:
    """Lambdas and local functions that are used as branches of a `cond` and for nothing else."""
    found: set[ast.AST] = set()
    arguments: set[ast.AST] = set()
    for call in of_kind(function, ast.Call):
        if getattr(call.func, "attr", "") == "cond":
            arguments |= {a for a in call.args[1:3] if isinstance(a, (ast.Lambda, ast.Name))}
    found |= {a for a in arguments if isinstance(a, ast.Lambda)}
    for node in of_kind(function, ast.FunctionDef):
        if node is not function:
            uses = [n for n in of_kind(function, ast.Name) if n.id == node.name]
            if uses and all(u in arguments for u in uses):
                found.add(node)
    return found


@kept
def reads(node: ast.AST) -> Names:
    """Names that evaluating a node reads, nested scopes included."""
    return frozenset(
        n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )


@kept
def bound(node: ast.AST) -> Names:
    """Names that a simple statement or target surely binds."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return frozenset(a.asname or a.name.split(".")[0] for a in node.names)
    return frozenset(
        n.id
        for n in walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del))
    )
