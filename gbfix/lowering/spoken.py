"""Numbers that are read from tensors only to be shown, and functions that do nothing but show.

Compiled code that is silent needs neither. Knows effects and names, nothing of guards.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.conditions import NotApplicable
from gbfix.analysis.effects import function_effects
from gbfix.analysis.facts import Facts
from gbfix.analysis.logs import is_log_call
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.sites import find_sites
from gbfix.diagnoses import LOGGING_CALL, PRINT_CALL, WARNINGS_CALL
from gbfix.fixes import Context
from gbfix.lowering.output import check_arguments
from gbfix.lowering.reporting import shown_slice

_SPOKEN = frozenset({PRINT_CALL, LOGGING_CALL, WARNINGS_CALL})


def does_nothing_but_speak(info: FunctionInfo, facts: Facts) -> bool:
    """Whether a function prints, logs or warns, gives nothing back, and changes nothing."""
    node = info.node
    if isinstance(node, ast.AsyncFunctionDef) or node.name in {"forward", "__call__", "__init__"}:
        return False
    found = function_effects(info, facts)
    if found is None or not found.output or found.random or found.stateful:
        return False
    if found.attributes or found.mutated or found.unknown:
        return False
    return all(isinstance(c, ast.Return) and c.value is None for c in found.control)


def is_left_at_once(context: Context) -> bool:
    """Whether a function only speaks, and breaks the graph by more than what it says."""
    if context.info.outer is not None or context.info.node.decorator_list:
        return False
    if not does_nothing_but_speak(context.info, context.facts):
        return False
    sites = find_sites(context.analysis, context.facts)
    return any(s.diagnosis not in _SPOKEN for s in sites)


def shown_with(site: BreakSite, context: Context) -> list[ast.stmt]:
    """The statements that go with a read whose number is only shown.

    Raises:
        NotApplicable: where it is needed for more.
        Refused: where something else would be skipped with them.
    """
    statement = site.statement
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        if not _speaks(statement.value, context):
            raise NotApplicable("not-only-output", "the call does more than print, log or warn")
        check_arguments(statement, context.analysis, context.facts)
        return [statement]
    if not isinstance(statement, ast.Assign):
        raise NotApplicable("not-only-output", "the number is not only shown")
    return shown_slice(statement, context)


def _speaks(call: ast.Call, context: Context) -> bool:
    if is_log_call(call, context.analysis, context.facts):
        return True
    value = context.analysis.values.get(call.func)
    name = value.reference if value is not None else None
    info = context.facts.project.function_info(name) if name is not None else None
    if info is None or info.node.decorator_list:
        return False
    return does_nothing_but_speak(info, context.facts)
