"""The settings of Dynamo that take a log call out of the graph: moved to its end, or ignored.

Reads calls; does not know where a setting is made.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gbfix.analysis.dynamo_settings import DynamoSetting
from gbfix.analysis.flow import Analysis

REORDER = "reorderable_logging_functions"
IGNORE = "ignore_logging_functions"


def log_function(call: ast.Call, family: str, analysis: Analysis) -> str | None:
    """The text by which a module names the function of a log call in such a setting, if it can."""
    module = analysis.info.module
    if family == "print":
        return "print" if module.qualify(call.func) == "builtins.print" else None
    if family == "warnings":
        known = module.qualify(call.func) == "warnings.warn"
        return ast.unparse(call.func) if known else None
    if not isinstance(call.func, ast.Attribute):
        return None
    for name, bound in module.bindings.items():
        if bound and bound[-1] == "logging":
            return f"{name}.Logger.{call.func.attr}"
    return None


def log_settings(call: ast.Call, family: str, analysis: Analysis) -> Iterator[DynamoSetting]:
    """Every setting that would take the call out of the graph."""
    name = log_function(call, family, analysis)
    if name is None:
        return
    if not call.keywords and family != "logging":
        yield DynamoSetting(REORDER, name, member=True)
    yield DynamoSetting(IGNORE, name, member=True)
