"""What would be lost if code ran in Python: layers and functions that Dynamo compiles by themselves.

Knows calls and kinds, nothing of where the code stands.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind


def calls_layers(
    nodes: Iterable[ast.AST], analysis: Analysis, facts: Facts, seen: set[ast.AST]
) -> bool:
    """Whether code calls a layer, or what is not known, itself or through another function."""
    for node in (inner for outer in nodes for inner in walk(outer)):
        if not isinstance(node, ast.Call):
            continue
        called = analysis.values.get(node.func)
        if called is None or called.kinds & (Kind.MODULE | Kind.UNKNOWN | Kind.MAYBE):
            if _is_unknown(node.func, analysis):
                return True
            continue
        inner = facts.project.function_info(called.reference) if called.reference else None
        if inner is None or inner.node in seen:
            continue
        seen.add(inner.node)
        other = facts.analysis(inner)
        if other is None or calls_layers(inner.node.body, other, facts, seen):
            return True
    return False


def calls_functions(nodes: Iterable[ast.AST], analysis: Analysis, facts: Facts) -> bool:
    """Whether code calls a function of the project with tensors, which is compiled by itself."""
    for node in (inner for outer in nodes for inner in walk(outer)):
        called = analysis.values.get(node.func) if isinstance(node, ast.Call) else None
        if called is None or facts.project.function_info(called.reference) is None:
            continue
        assert isinstance(node, ast.Call)
        values = [analysis.values.get(n) for n in (node, *node.args)]
        if any(v is not None and v.kinds & (Kind.TENSOR | Kind.MAYBE) for v in values):
            return True
    return False


def _is_unknown(function: ast.expr, analysis: Analysis) -> bool:
    """Whether a call of no known function may run a layer: no method of a tensor or container does."""
    if not isinstance(function, ast.Attribute):
        return True
    receiver = analysis.values.get(function.value)
    if receiver is not None and receiver.kinds & Kind.MODULE:
        return function.attr != "register_buffer"
    return receiver is None or bool(receiver.kinds & Kind.UNKNOWN)
