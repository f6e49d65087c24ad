"""What code that validates may do besides, so that the check can be made inside a graph.

Knows statements and their effects, nothing of what is checked.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.catching import is_tried
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
    """A check inside the graph raises where nothing in the code can catch it.

    Raises:
        Refused: if the function, or one that calls it, would catch it.
    """
    if is_tried(node, context.info.node, context.info.module):
        raise Refused("caught-exception", "the exception is caught in the same function")
    catching = context.facts.caught_by(context.info)
    if catching is not None:
        raise Refused("caught-exception", f"the exception is caught in `{catching}`")
