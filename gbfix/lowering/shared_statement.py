"""An `if` whose two arms are the same statement but for one value, `out.append(a)` and `out.append(b)`.

What the statement does is then done either way, and only the value is chosen. Knows statements, not
how the choice is written.
"""

from __future__ import annotations

import ast

from gbfix.lowering.expression import Selection


def shared_statement(node: ast.If) -> Selection | None:
    """The statement that both arms are, with the values that differ; None if they differ in more."""
    if len(node.body) != 1 or len(node.orelse) != 1:
        return None
    one, other = node.body[0], node.orelse[0]
    pair = _calls(one, other) or _stores(one, other)
    if pair is None:
        return None
    return Selection(node.test, pair[0], pair[1], pair[0], one, node)


def _calls(one: ast.stmt, other: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
    """The arguments in which two calls of a method differ."""
    if not (isinstance(one, ast.Expr) and isinstance(other, ast.Expr)):
        return None
    a, b = one.value, other.value
    if not (isinstance(a, ast.Call) and isinstance(b, ast.Call)):
        return None
    if not isinstance(a.func, ast.Attribute) or a.keywords or b.keywords:
        return None
    return _difference([a.func, *a.args], [b.func, *b.args])


def _stores(one: ast.stmt, other: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
    """The values that two assignments give to one item of a container."""
    if not (isinstance(one, ast.Assign) and isinstance(other, ast.Assign)):
        return None
    if not all(isinstance(t, ast.Subscript) for t in (*one.targets, *other.targets)):
        return None
    return _difference([*one.targets, one.value], [*other.targets, other.value], last=True)


def _difference(
    one: list[ast.expr], other: list[ast.expr], *, last: bool = False
) -> tuple[ast.expr, ast.expr] | None:
    """The only two expressions at one place that are not the same, which is not the first place."""
    if len(one) != len(other):
        return None
    differing = [i for i, pair in enumerate(zip(one, other, strict=True)) if not _same(*pair)]
    if len(differing) != 1 or differing[0] == 0 or (last and differing[0] != len(one) - 1):
        return None
    return one[differing[0]], other[differing[0]]


def _same(one: ast.expr, other: ast.expr) -> bool:
    return ast.dump(one) == ast.dump(other)
