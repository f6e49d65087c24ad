"""What code that validates may do besides, so that the check can be made inside a graph.

Knows statements and their effects, nothing of what is checked.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.effects import effects
from gbfix.fixes import Context

RAISES = "a failing check raises RuntimeError instead of the original exception when compiled"
SKIPS = "the check is not made in the compiled path"


def check_only_raises(body: Sequence[ast.stmt], context: Context) -> None:
    """What stands before the `raise` is skipped when compiled, so it may only prepare or report.

    Raises:
        Refused: if it does more.
    """
    found = effects(body[:-1], context.analysis, context.facts)
    if found.attributes or found.mutated or found.random:
        raise Refused("work-before-raise", "the branch changes something before it raises")
    for statement in body[:-1]:
        if isinstance(statement, (ast.For, ast.While, ast.With, ast.Try, ast.Return)):
            raise Refused("work-before-raise", "the branch does more than prepare an exception")


def check_not_caught(node: ast.stmt, context: Context) -> None:
    """A check inside the graph raises where nothing in the function can catch it.

    Raises:
        Refused: if the function would catch it.
    """
    parents = context.info.module.parents
    current: ast.AST = node
    while current is not context.info.node:
        parent = parents[current]
        if isinstance(parent, ast.Try) and current in parent.body and parent.handlers:
            raise Refused("caught-exception", "the exception is caught in the same function")
        current = parent
