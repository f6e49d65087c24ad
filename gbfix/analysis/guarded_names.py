"""Names that hold a tensor only where something static says so: `has = m is not None and m.any()`.

Dynamo decides the first half while tracing and leaves the tensor in the name, so a test of the name
reads as the test that it was given. Knows definitions and values, nothing of how a test is rewritten.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.definitions import definitions_of
from gbfix.analysis.record import Analysis
from gbfix.analysis.values import Kind, Value


@dataclass(frozen=True)
class GuardedName:
    """A name that is a tensor under static operands, and decided while tracing otherwise.

    Attributes:
        guards: the operands, each with the truth under which the name is the tensor.
        value: what is known of the tensor.
    """

    guards: tuple[tuple[ast.expr, bool], ...]
    value: Value

    @property
    def test(self) -> ast.expr:
        """What has to hold for the name to be the tensor, as one expression."""
        parts = [g if truth else ast.UnaryOp(ast.Not(), g) for g, truth in self.guards]
        return parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), parts)


def guarded_name(node: ast.expr, analysis: Analysis) -> GuardedName | None:
    """What a tested name was given, if its guards still mean the same where it is tested."""
    value = analysis.values.get(node)
    if not isinstance(node, ast.Name) or value is None or not value.kinds & Kind.TENSOR:
        return None
    definitions = definitions_of(analysis.info.node, analysis.info.module)
    statement = definitions.of(node)
    if statement is None:
        return None
    found = _taken_apart(statement.value)
    if found is None:
        return None
    guards, tensor = found
    held = analysis.values.get(tensor)
    if held is None or not held.tensor:
        return None
    for guard, _ in guards:
        known = analysis.values.get(guard)
        if known is None or not known.static:
            return None
        if not definitions.holds(guard, statement):
            if not definitions.holds_until(guard, statement, node):
                return None
    return GuardedName(tuple(guards), held)


def _taken_apart(value: ast.expr) -> tuple[list[tuple[ast.expr, bool]], ast.expr] | None:
    """`a and b and t` or `t if a else False`: the operands before the last, and the last."""
    if isinstance(value, ast.BoolOp):
        truth = isinstance(value.op, ast.And)
        return [(operand, truth) for operand in value.values[:-1]], value.values[-1]
    if isinstance(value, ast.IfExp):
        for tensor, other, truth in (
            (value.body, value.orelse, True),
            (value.orelse, value.body, False),
        ):
            if isinstance(other, ast.Constant) and not other.value:
                return [(value.test, truth)], tensor
    return None
