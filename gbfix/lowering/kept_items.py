"""Arms that end by storing values under the same keys: `losses["box"] = a` and `losses["box"] = b`.

Such arms decide values as returning ones do, and what they store is stored once, after the branch.
Knows statements and names, nothing of how the choice is written.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.trees import walk
from gbfix.lowering.views import walk_scope

_PLAIN = (
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.UnaryOp,
    ast.USub,
    ast.Tuple,
    ast.Load,
    ast.Store,
)


def kept_items(
    body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], live: frozenset[str]
) -> tuple[tuple[ast.expr, ...], list[ast.stmt], list[ast.stmt]] | None:
    """The targets of the last statements of two arms, with arms that return the values instead.

    None if the arms do not end by storing under the same keys, or decide something else as well.
    """
    one, other = _stores(body), _stores(orelse)
    count = min(len(one), len(other))
    while count and not _alike(one[-count:], other[-count:]):
        count -= 1
    if not count:
        return None
    stores = (one[-count:], other[-count:])
    rest = (list(body[:-count]), list(orelse[:-count]))
    targets = [s.targets[0] for s in stores[0]]
    bound = {
        n.id
        for s in (*rest[0], *rest[1])
        for n in walk_scope(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    named = {n.id for t in targets for n in walk(t) if isinstance(n, ast.Name)}
    if bound & (live | named) or any(_reads(s, targets) for kept in stores for s in kept):
        return None
    return tuple(targets), [*rest[0], _returned(stores[0])], [*rest[1], _returned(stores[1])]


def _stores(block: Sequence[ast.stmt]) -> list[ast.Assign]:
    """The last statements of a block that each store a value under a key."""
    found: list[ast.Assign] = []
    for statement in reversed(block):
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            break
        target = statement.targets[0]
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
            break
        if not all(isinstance(n, _PLAIN) for n in walk(target.slice)):
            break
        found.insert(0, statement)
    return found


def _alike(one: Sequence[ast.Assign], other: Sequence[ast.Assign]) -> bool:
    return all(
        ast.dump(a.targets[0]) == ast.dump(b.targets[0]) for a, b in zip(one, other, strict=True)
    )


def _reads(statement: ast.Assign, targets: Sequence[ast.expr]) -> bool:
    """Whether a value is made of what another of the statements stores."""
    holders = {n.value.id for n in targets if isinstance(n, ast.Subscript)
               and isinstance(n.value, ast.Name)}  # fmt: skip
    read = {n.id for n in walk(statement.value) if isinstance(n, ast.Name)}
    return len(targets) > 1 and bool(read & holders)


def _returned(stores: Sequence[ast.Assign]) -> ast.Return:
    values = [s.value for s in stores]
    value = values[0]
    if len(values) > 1:
        value = ast.copy_location(ast.Tuple(values, ast.Load()), stores[0])
    return ast.copy_location(ast.Return(value), stores[0])
