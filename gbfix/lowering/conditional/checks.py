"""What an arm may compute and bind if its result may not count: nothing that is seen elsewhere.

Knows effects and names, nothing of what is written in place of the statements.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.effects import effects
from gbfix.analysis.evaluate import dotted
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.lowering.conditional.scope import Scope


def check_computed(nodes: Sequence[ast.AST], scope: Scope) -> None:
    """What is computed although its result may not count must be harmless."""
    found = effects(nodes, scope.analysis, scope.context.facts)
    for text in found.unknown.values():
        raise Refused("impure-arm", f"the effects of `{text}` in an arm are not known")
    for name in found.attributes:
        raise Refused("sets-attribute", f"an arm sets `{name}`")
    for node in found.output:
        raise Refused("output-in-arm", f"`{ast.unparse(node)}` in an arm is output")
    for node in found.random:
        raise Refused("random-in-arm", f"`{ast.unparse(node)}` draws random numbers in an arm")
    for node in found.stateful:
        raise Refused("stateful-layer", f"`{ast.unparse(node)}` changes its own state")
    for node in found.scalar:
        raise Refused("scalar-in-arm", f"`{ast.unparse(node)}` in an arm reads a Python value")
    for node in (*found.partial, *found.dynamic):
        raise Refused("partial-arm", f"`{ast.unparse(node)}` in an arm may fail on some data")
    for target, _ in found.mutated:
        raise Refused("mutates-operand", f"`{ast.unparse(target)}` is changed in an expression")


def check_place(node: ast.expr, scope: Scope) -> None:
    """Whether what is updated can be named twice, and is what stays."""
    base = node
    while isinstance(base, ast.Subscript):
        index = scope.analysis.values.get(base.slice)
        if not isinstance(base.slice, ast.Constant) and (index is None or not index.static):
            raise Refused("impure-target", f"`{ast.unparse(node)}` may be a copy")
        base = base.value
    if dotted(base) is None:
        raise Refused("impure-target", f"`{ast.unparse(node)}` would be evaluated twice")
    value = scope.analysis.values.get(node)
    if value is not None and not value.kinds & (Kind.TENSOR | Kind.MAYBE | Kind.UNKNOWN):
        raise Refused("unknown-result", f"`{ast.unparse(node)}` is not proven to be a tensor")


def check_index(index: ast.expr, scope: Scope) -> None:
    """Which part of a tensor is written may not depend on data."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    for bound in (b for part in parts for b in _bounds(part)):
        value = scope.analysis.values.get(bound) if bound is not None else None
        if bound is not None and not isinstance(bound, (ast.Constant, ast.UnaryOp)):
            if value is None or not value.only(Kind.STATIC | Kind.NONE):
                raise Refused("impure-target", f"`{ast.unparse(bound)}` may read a tensor")


def _bounds(part: ast.expr) -> list[ast.expr | None]:
    return [part.lower, part.upper, part.step] if isinstance(part, ast.Slice) else [part]


def check_fresh(target: ast.expr, scope: Scope) -> None:
    """A name that the arm binds may hold nothing that is read elsewhere."""
    if scope.depth:
        return  # the names of a called function are new here
    for node in walk(target):
        if isinstance(node, ast.Name) and any(
            isinstance(n, ast.Name) and n.id == node.id and n not in scope.inside
            for n in walk(scope.analysis.info.node)
        ):
            raise Refused("rebinds-name", f"an arm binds `{node.id}`, which is used elsewhere")
