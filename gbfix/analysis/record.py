"""What abstract execution leaves behind: conditions, environments, and how paths meet.

Data only: `flow` fills it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from gbfix.analysis.evaluate import Environment, Evaluator
from gbfix.analysis.modes import Mode
from gbfix.analysis.project import FunctionInfo
from gbfix.analysis.values import UNKNOWN, Value, join, replace


class Condition(NamedTuple):
    """A test that decides control flow.

    Attributes:
        owner: the `if`, `while`, `assert`, conditional expression, boolean operation or
            comprehension that tests.
        test: the tested expression.
        statement: the statement that it stands in.
        eager: whether it only runs in eager mode.
    """

    owner: ast.AST
    test: ast.expr
    statement: ast.stmt
    eager: bool


class Place(NamedTuple):
    """Where an expression is evaluated: the statement, and what is known there of the mode."""

    statement: ast.stmt
    mode: Mode


@dataclass
class Analysis:
    """What abstract execution found in one function, its nested functions included.

    `derived` holds what others made of it and will ask for again, by whatever they call it.
    """

    info: FunctionInfo
    values: dict[ast.AST, Value]
    returned: Value = UNKNOWN
    conditions: dict[ast.AST, Condition] = field(default_factory=dict)
    before: dict[ast.stmt, Environment] = field(default_factory=dict)
    ends: dict[tuple[ast.If, bool], Environment] = field(default_factory=dict)
    rounds: dict[ast.stmt, Environment] = field(default_factory=dict)
    eager: set[ast.AST] = field(default_factory=set)
    statements: dict[ast.Expr, bool] = field(default_factory=dict)
    evaluator: Evaluator | None = None
    sets_attributes: bool = False
    places: dict[ast.expr, Place] = field(default_factory=dict)
    derived: dict[object, Any] = field(default_factory=dict)


def merge(ends: Sequence[Environment | None]) -> Environment | None:
    """Join the environments of paths that meet; a name missing on one of them may be unbound."""
    reached = [e for e in ends if e is not None]
    if not reached:
        return None
    result = dict(reached[0])
    for other in reached[1:]:
        # In an order that is the same in every run: what is said of names follows it.
        for name in [*result, *(name for name in other if name not in result)]:
            a, b = result.get(name), other.get(name)
            if a is b:
                continue
            if a is not None and b is not None:
                result[name] = join(a, b)
            elif "." in name:
                result.pop(name, None)  # an attribute not set on one path keeps what it was
            else:
                result[name] = replace(cast(Value, a or b), unbound=True)
    return result
