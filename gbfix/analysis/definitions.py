"""The one definition that a local name has, where it has one, and whether it still holds later.

A name counts where the function binds it exactly once, in a block that encloses the use, and what its
value is made of is bound no later than that. Knows names and statements, nothing of tensors.
"""

from __future__ import annotations

import ast

from gbfix.analysis.project import Function, Module
from gbfix.analysis.trees import kept, loops_around, of_kind, walk

_CHANGES = frozenset("append extend insert remove pop clear sort reverse update add".split())


@kept
def definitions_of(function: Function, module: Module) -> Definitions:
    """The single definitions of a function's names, kept for who asks next."""
    return Definitions(function, module)


class Definitions:
    """The single definitions of one function's names."""

    def __init__(self, function: Function, module: Module) -> None:
        self.function = function
        self.module = module
        self.stores: dict[str, list[ast.Name]] = {}
        self.loads: dict[str, list[ast.Name]] = {}
        self.parameters = {a.arg for a in walk(function.args) if isinstance(a, ast.arg)}
        for use in of_kind(function, ast.Name):
            where = self.loads if isinstance(use.ctx, ast.Load) else self.stores
            where.setdefault(use.id, []).append(use)
        shared: tuple[ast.Global | ast.Nonlocal, ...]
        shared = (*of_kind(function, ast.Global), *of_kind(function, ast.Nonlocal))
        for statement in shared:
            for name in statement.names:  # bound by more than this function
                self.stores.setdefault(name, []).extend([ast.Name(name)] * 2)
        inner: tuple[Function, ...]
        inner = (*of_kind(function, ast.FunctionDef), *of_kind(function, ast.AsyncFunctionDef))
        for node in inner:
            if node is not function:
                for argument in walk(node.args):
                    if isinstance(argument, ast.arg):
                        self.stores.setdefault(argument.arg, []).extend([ast.Name("")] * 2)

    def of(self, use: ast.Name) -> ast.Assign | None:
        """The assignment that gives a used name its value: one target, bound once, before the use."""
        stores = self.stores.get(use.id, [])
        if len(stores) != 1 or use.id in self.parameters:
            return None
        statement = self.module.parents.get(stores[0])
        if not isinstance(statement, ast.Assign) or statement.targets != stores:
            return None
        return statement if self.encloses(statement, use) else None

    def latest(self, use: ast.Name) -> ast.Assign | None:
        """The assignment that gives a used name its value, where it is bound anew in one block.

        All assignments stand in the block of the use, which runs from top to bottom once.
        """
        made = self.of(use)
        if made is not None or use.id in self.parameters:
            return made
        before: list[ast.Assign] = []
        blocks: set[ast.AST | None] = set()
        for store in self.stores.get(use.id, []):
            statement = self.module.parents.get(store)
            if not isinstance(statement, ast.Assign) or statement.targets != [store]:
                return None
            blocks.add(self.module.parents.get(statement))
            if len(blocks) > 1:
                return None
            if self.encloses(statement, use):
                before.append(statement)
        return before[-1] if before and not self._is_repeated(before[0]) else None

    def last(self, name: str, binding: ast.Assign) -> list[ast.Name] | None:
        """The uses of what a statement binds, where it is the last to bind a name; None if it is not.

        What stands before it uses something else, and what follows it nothing else.
        """
        start = (binding.lineno, binding.col_offset)
        for store in self.stores.get(name, []):
            line = getattr(store, "lineno", None)
            if store not in binding.targets and (line is None or (line, store.col_offset) >= start):
                return None
        if self._is_repeated(binding):
            return None
        end = (binding.end_lineno or 0, binding.end_col_offset or 0)
        return [u for u in self.loads.get(name, []) if (u.lineno, u.col_offset) >= end]

    def _is_repeated(self, statement: ast.stmt) -> bool:
        """Whether a statement stands in a loop, so that what follows it may run before it."""
        return any(loops_around(statement, self.function, self.module.parents))

    def encloses(self, statement: ast.stmt, use: ast.AST) -> bool:
        """Whether a statement has always run when a later node is reached."""
        block = self.module.parents.get(statement)
        current: ast.AST = use
        while current is not block:
            parent = self.module.parents.get(current)
            if parent is None:
                return False
            if isinstance(parent, (ast.Lambda, ast.FunctionDef)) and parent is not block:
                return False
            current, below = parent, current
            if current is block:
                for field in ("body", "orelse", "finalbody"):
                    body = getattr(block, field, None)
                    if isinstance(body, list) and statement in body:
                        return below in body and body.index(statement) < body.index(below)
        return False

    def holds(self, node: ast.expr, since: ast.stmt) -> bool:
        """Whether an expression of plain names means the same after a statement, to the end."""
        for inner in walk(node):
            if isinstance(inner, ast.Name) and not self._unchanged(inner.id, since):
                return False
            if isinstance(inner, ast.Attribute) and self._sets(inner.attr):
                return False
        return True

    def holds_until(self, node: ast.expr, since: ast.stmt, use: ast.expr) -> bool:
        """Whether an expression of plain names means the same after a statement, up to a later use."""
        if any(loops_around(since, self.function, self.module.parents)):
            return False
        for inner in walk(node):
            if isinstance(inner, ast.Name):
                stores = self.stores.get(inner.id, [])
                lines = [getattr(store, "lineno", since.lineno) for store in stores]
                if self.is_changed(inner.id) or any(since.lineno <= n < use.lineno for n in lines):
                    return False
            if isinstance(inner, ast.Attribute) and self._sets(inner.attr):
                return False
        return not any(loops_around(use, self.function, self.module.parents))

    def _unchanged(self, name: str, since: ast.stmt) -> bool:
        """Whether a name is bound before a statement only, and its value not changed in place.

        The statement runs before the place of use in each round of a loop, so what is bound above
        it cannot come between.
        """
        stores = self.stores.get(name, [])
        if any(getattr(store, "lineno", since.lineno) >= since.lineno for store in stores):
            return False
        return not self.is_changed(name)

    def is_changed(self, name: str) -> bool:
        """Whether what a name holds is changed in place by the function."""
        for use in self.loads.get(name, []):
            parent = self.module.parents.get(use)
            if isinstance(parent, ast.Attribute) and (
                (parent.attr.endswith("_") and not parent.attr.endswith("__"))
                or parent.attr in _CHANGES
                or not isinstance(parent.ctx, ast.Load)
            ):
                return True
            if isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load):
                return True
        return any(
            isinstance(self.module.parents.get(store), ast.AugAssign)
            for store in self.stores.get(name, [])
        )

    def _sets(self, attribute: str) -> bool:
        return any(
            n.attr == attribute and not isinstance(n.ctx, ast.Load)
            for n in of_kind(self.function, ast.Attribute)
        )
