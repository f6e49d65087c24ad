"""What would be lost if code ran in Python: layers and functions that Dynamo compiles by themselves.

Knows calls and kinds, nothing of where the code stands.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.modules import FunctionInfo
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind

# What arrays are asked for.
_OF_ARRAYS = frozenset(
    "item tolist reshape max min sum mean any all astype copy flatten argmax argmin".split()
)


def calls_layers(
    nodes: Iterable[ast.AST], analysis: Analysis, facts: Facts, seen: set[ast.AST]
) -> bool:
    """Whether code calls a layer, or what is not known, itself or through another function."""
    inside: set[ast.AST] = set()
    for node in (inner for outer in nodes for inner in walk(outer)):
        if node in inside:
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node not in seen:
            inside |= set(walk(node))
            local = analysis.info.module.function_of.get(node)
            if local is None or _runs_layers(local, facts, seen):
                return True
        if not isinstance(node, ast.Call):
            continue
        called = analysis.values.get(node.func)
        unknown = called is None or called.kinds & (Kind.MODULE | Kind.UNKNOWN | Kind.MAYBE)
        if called is None or unknown or (not called.reference and _is_given(node.func, analysis)):
            if _is_unknown(node.func, analysis):
                return True
            continue
        if called.reference is None or called.reference.startswith("numpy."):
            continue
        inner = facts.project.function_info(called.reference)
        if inner is not None and inner.node not in seen and _runs_layers(inner, facts, seen):
            return True
    return False


def _runs_layers(info: FunctionInfo, facts: Facts, seen: set[ast.AST]) -> bool:
    seen.add(info.node)
    analysis = facts.analysis(info)
    return analysis is None or calls_layers(info.node.body, analysis, facts, seen)


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


def _is_given(function: ast.expr, analysis: Analysis) -> bool:
    """Whether a function that is called is a parameter, is bound here, or comes out of a container."""
    if not isinstance(function, ast.Name):
        return not isinstance(function, ast.Attribute)
    own = definitions_of(analysis.info.node, analysis.info.module)
    return function.id in own.parameters or function.id in own.stores


def _is_unknown(function: ast.expr, analysis: Analysis) -> bool:
    """Whether a call of no known function may run a layer: no method of a tensor or container does."""
    if isinstance(function, ast.Name):
        return function.id not in _defined(analysis)
    if not isinstance(function, ast.Attribute):
        return True
    if function.attr in _OF_ARRAYS and _is_array(function.value, analysis):
        return False
    receiver = analysis.values.get(function.value)
    if receiver is not None and receiver.kinds & Kind.MODULE:
        return function.attr != "register_buffer"
    return receiver is None or bool(receiver.kinds & Kind.UNKNOWN)


def _is_array(node: ast.expr, analysis: Analysis, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a value comes from a function of numpy."""
    if isinstance(node, ast.Call):
        called = analysis.values.get(node.func)
        if called is not None and (called.reference or "").startswith("numpy."):
            return True
        return isinstance(node.func, ast.Attribute) and _is_array(node.func.value, analysis, seen)
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return _is_array(node.value, analysis, seen)
    if isinstance(node, ast.BinOp):
        return _is_array(node.left, analysis, seen) or _is_array(node.right, analysis, seen)
    if not isinstance(node, ast.Name) or node.id in seen:
        return False
    info = analysis.info
    owners = [
        info.module.parents.get(s)
        for s in definitions_of(info.node, info.module).stores.get(node.id, [])
    ]
    return any(
        isinstance(o, ast.Assign) and _is_array(o.value, analysis, seen | {node.id}) for o in owners
    )


def _defined(analysis: Analysis) -> set[str]:
    """Names of functions that are defined in the function, which are looked into where they stand."""
    found = {n.name for n in walk(analysis.info.node) if isinstance(n, ast.FunctionDef)}
    return found - set(definitions_of(analysis.info.node, analysis.info.module).stores)
