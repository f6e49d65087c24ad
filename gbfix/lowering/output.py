"""Output statements that can be left out of compiled code, and those that cannot.

A print may be skipped; what its arguments do besides being shown may not. Knows log calls and effects.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import Refused
from gbfix.analysis.effects import effects
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.logs import is_log_call
from gbfix.analysis.trees import walk


def only_speaks(statement: ast.stmt, analysis: Analysis, facts: Facts) -> bool:
    """Whether a statement prints, logs or warns and does nothing else that matters."""
    if not isinstance(statement, ast.Expr):
        return False
    if not is_log_call(statement.value, analysis, facts):
        return False
    try:
        check_arguments(statement, analysis, facts)
    except Refused:
        return False
    return True


def check_arguments(statement: ast.Expr, analysis: Analysis, facts: Facts) -> None:
    """Refuse a call whose arguments do something that the program needs.

    Raises:
        Refused: naming what would be skipped with the call.
    """
    call = statement.value
    assert isinstance(call, ast.Call)
    parts: list[ast.expr] = [*call.args, *(k.value for k in call.keywords)]
    found = effects(parts, analysis, facts)
    if any(isinstance(n, ast.NamedExpr) for p in parts for n in walk(p)):
        raise Refused("effectful-arguments", "an argument assigns a name that may be needed")
    if found.mutated or found.attributes or found.random:
        raise Refused("effectful-arguments", "an argument changes something besides being shown")
    for text in found.unknown.values():
        if text.rsplit(".", 1)[-1] in {"next", "input", "pop", "read", "readline", "get_nowait"}:
            raise Refused("effectful-arguments", f"`{text}` in an argument changes something")
    if any(isinstance(n, (ast.Yield, ast.YieldFrom, ast.Await)) for n in walk(statement)):
        raise Refused("effectful-arguments", "an argument yields or awaits")
