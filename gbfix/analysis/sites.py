"""All break sites of a function: its conditions, and what it calls and reads.

Reads the results of abstract execution. Says what is wrong where; knows nothing of treatment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gbfix.analysis.break_site import BreakSite, shortened
from gbfix.analysis.captured_reads import CAPTURE, is_captured
from gbfix.analysis.checkers import checker_call
from gbfix.analysis.condition_sites import condition_sites
from gbfix.analysis.conditions import data_kind, leaves
from gbfix.analysis.decorators import disabled
from gbfix.analysis.dynamic import CAPTURE_SHAPES, shape_from_data, treated_beside
from gbfix.analysis.effects import function_effects
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.log_settings import log_settings
from gbfix.analysis.logs import log_family
from gbfix.analysis.reads import ReadKind, reads
from gbfix.analysis.untraced import find_untraced
from gbfix.diagnoses import (
    LOGGING_CALL,
    PRINT_CALL,
    SCALAR_READ,
    TENSOR_POSITION,
    TENSOR_RAISE,
    TENSOR_TO_LIST,
    WARNINGS_CALL,
)

_READS = {
    ReadKind.NUMBER: (SCALAR_READ, "`{}` reads a number from a tensor"),
    ReadKind.LIST: (TENSOR_TO_LIST, "`{}` reads a list from a tensor"),
    ReadKind.POSITION: (TENSOR_POSITION, "`{}` is a tensor where an integer is needed"),
    ReadKind.ARRAY: (SCALAR_READ, "`{}` reads a number from an array of NumPy"),
    ReadKind.ARRAY_LIST: (TENSOR_TO_LIST, "`{}` reads a list from an array of NumPy"),
    ReadKind.ANSWER: (SCALAR_READ, "`{}` makes a Python value of what tensors hold"),
    ReadKind.INDEX: (TENSOR_POSITION, "a number is made of `{}`, a single index from the graph"),
}
_FAMILIES = {"print": PRINT_CALL, "logging": LOGGING_CALL, "warnings": WARNINGS_CALL}


def find_sites(analysis: Analysis, facts: Facts) -> list[BreakSite]:
    """The break sites of one analyzed function, in source order."""
    return [] if disabled(analysis.info) else break_sites(analysis, facts)


def break_sites(analysis: Analysis, facts: Facts) -> list[BreakSite]:
    """The same, also of a function that is kept from being traced."""
    found = [
        *condition_sites(analysis, facts),
        *_log_calls(analysis, facts),
        *_reads(analysis, facts),
        *_data_shapes(analysis, facts),
        *_untraced(analysis, facts),
    ]
    return sorted(found, key=lambda s: (s.span.lineno, s.span.col_offset))


def _data_shapes(analysis: Analysis, facts: Facts) -> Iterator[BreakSite]:
    """Operations whose result has a shape that depends on data."""
    for node, place in analysis.places.items():
        if place.mode.eager or place.statement in analysis.eager:
            continue
        diagnosis = shape_from_data(node, analysis)
        if diagnosis is None or treated_beside(place.mode):
            continue
        if facts.is_made(CAPTURE_SHAPES, analysis.info):
            continue
        yield BreakSite(
            diagnosis,
            analysis.info,
            analysis,
            node,
            place.statement,
            node,
            f"the shape of `{shortened(node)}` depends on tensor data",
        )


def _log_calls(analysis: Analysis, facts: Facts) -> Iterator[BreakSite]:
    for statement, eager in analysis.statements.items():
        if eager or statement in analysis.eager:
            continue
        check = _check_call(statement, analysis, facts)
        if check is not None:
            yield check
            continue
        family = log_family(statement.value, analysis, facts)
        if family is None or _guarded_inside(statement.value, analysis, facts):
            continue
        diagnosis = _FAMILIES[family]
        call = statement.value
        if isinstance(call, ast.Call) and any(
            facts.is_made(setting, analysis.info)
            for setting in log_settings(call, family, analysis)
        ):
            continue
        text = shortened(call.func) if isinstance(call, ast.Call) else ""
        yield BreakSite(
            diagnosis,
            analysis.info,
            analysis,
            call,
            statement,
            None,
            f"`{text}` cannot be part of a graph",
        )


def _reads(analysis: Analysis, facts: Facts) -> Iterator[BreakSite]:
    for read in reads(analysis):
        if facts.is_made(CAPTURE, analysis.info) and is_captured(read, analysis):
            continue
        diagnosis, message = _READS[read.kind]
        yield BreakSite(
            diagnosis,
            analysis.info,
            analysis,
            read.node,
            read.statement,
            None,
            message.format(shortened(read.node)),
            read=read,
        )


def _check_call(statement: ast.Expr, analysis: Analysis, facts: Facts) -> BreakSite | None:
    """A call of a checking helper with a condition on tensor data."""
    call = statement.value
    if not isinstance(call, ast.Call):
        return None
    check = checker_call(call, analysis, facts)
    if check is None:
        return None
    kinds = {k for leaf in leaves(check.condition) if (k := data_kind(leaf, analysis))}
    if not kinds & {"tensor", "scalar"}:
        return None
    text = shortened(check.condition)
    return BreakSite(
        TENSOR_RAISE,
        analysis.info,
        analysis,
        call,
        statement,
        check.condition,
        f"whether `{shortened(call.func)}` raises depends on tensor data: `{text}`",
    )


def _guarded_inside(call: ast.expr, analysis: Analysis, facts: Facts) -> bool:
    """A call of a plain helper of the project: the site is the call inside the helper."""
    value = analysis.values.get(call.func) if isinstance(call, ast.Call) else None
    if value is None or value.reference is None:
        return False
    info = facts.project.function_info(value.reference)
    if info is None:
        return False
    return not info.node.decorator_list and function_effects(info, facts) is not None


def _untraced(analysis: Analysis, facts: Facts) -> Iterator[BreakSite]:
    """Calls and statements that Dynamo does not trace, outside of what only runs in eager mode."""
    for found in find_untraced(analysis, facts):
        yield BreakSite(
            found.diagnosis,
            analysis.info,
            analysis,
            found.node,
            found.statement,
            None,
            found.message,
            shown=found.node,
        )
