"""Numbers that Python's `random` draws, and how Dynamo takes them.

Dynamo draws for `random.uniform`, `randint` and `randrange` before each call of a graph and hands the
numbers in, so that they are like numbers read from a tensor: free where they meet one, a break in a
branch. Python arithmetic on them makes it skip the whole frame (seen on torch 2.13). `random.random()`
is not traced, and gives the very number that `random.uniform(0.0, 1.0)` would.
"""

from __future__ import annotations

import ast

from gbfix.analysis.definitions import Definitions, definitions_of
from gbfix.analysis.evaluate import DRAWN_NUMBERS
from gbfix.analysis.record import Analysis
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind

PLAIN = "random.random"


def draw(node: ast.AST, analysis: Analysis) -> str | None:
    """The qualified name of the function with which a call draws a number; None for other nodes."""
    if not isinstance(node, ast.Call):
        return None
    value = analysis.values.get(node.func)
    name = value.reference if value is not None else None
    return name if name in DRAWN_NUMBERS else None


def as_uniform(function: str) -> str | None:
    """The call that gives what `random.random()` gives, for the text that names that function."""
    module, dot, name = function.rpartition(".")
    return f"{module}.uniform(0.0, 1.0)" if dot and name == "random" else None


def is_computed_with(call: ast.Call, analysis: Analysis) -> bool:
    """Whether Python computes with a drawn number before it meets a tensor."""
    parents = analysis.info.module.parents
    parent = parents.get(call)
    uses: list[ast.AST] = [call]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        target = parent.targets[0]
        if isinstance(target, ast.Name):
            uses += [
                n
                for n in walk(analysis.info.node)
                if isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load)
            ]
    return any(_is_arithmetic(parents.get(use), analysis) for use in uses)


def _is_arithmetic(node: ast.AST | None, analysis: Analysis) -> bool:
    value = analysis.values.get(node) if node is not None else None
    if not isinstance(node, (ast.BinOp, ast.UnaryOp)) or value is None:
        return False
    negates = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return not negates and not value.kinds & (Kind.TENSOR | Kind.MAYBE)


def is_drawn(node: ast.expr, analysis: Analysis) -> bool:
    """Whether a Python value depends on data only through numbers that were drawn."""
    definitions = definitions_of(analysis.info.node, analysis.info.module)
    return _is_drawn(node, analysis, definitions, 0)


def _is_drawn(node: ast.expr, analysis: Analysis, definitions: Definitions, depth: int) -> bool:
    if draw(node, analysis) is not None:
        return all(_is_plain(a, analysis) for a in getattr(node, "args", ()))
    if _is_plain(node, analysis):
        return True
    if isinstance(node, ast.Name) and depth < 4:
        statement = definitions.of(node)
        return statement is not None and _is_drawn(
            statement.value, analysis, definitions, depth + 1
        )
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp):
        parts = [node.operand]
    elif isinstance(node, ast.BoolOp):
        parts = node.values
    else:
        return False
    return all(_is_drawn(p, analysis, definitions, depth) for p in parts)


def _is_plain(node: ast.expr, analysis: Analysis) -> bool:
    value = analysis.values.get(node)
    plain = value is not None and not value.kinds & (Kind.TENSOR | Kind.SCALAR | Kind.MAYBE)
    return plain and not any(draw(inner, analysis) for inner in walk(node))
