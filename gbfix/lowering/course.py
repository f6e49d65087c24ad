"""What becomes of a number that was read from a tensor: where it meets tensors, and what tests it.

A test asks for nothing but a truth, which a tensor gives as well. Knows expressions and where they
stand, nothing of how they are followed or written.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from gbfix.analysis.conditions import Refused

Asking = ast.If | ast.IfExp | ast.Assert


@dataclass(frozen=True)
class Meeting:
    """A place where a number meets a tensor.

    Attributes:
        number: the expression of the number.
        partner: the tensor, whose dtype decides.
        scales: the argument that `alpha=` or `value=` multiplies, with that keyword.
    """

    number: ast.expr
    partner: ast.expr
    scales: tuple[ast.expr, ast.keyword] | None = None


@dataclass(frozen=True)
class Method:
    """What a tensor does in the place of a function of numbers: `n.clamp(min=1)` for `max(n, 1)`."""

    receiver: ast.expr
    call: str


@dataclass
class Course:
    """Everything that becomes of one read.

    Attributes:
        reads: the reads that take part, with the tensors that they read.
        names: the names that hold a number on the way.
        meetings: where it ends in tensors.
        functions: calls of `math`, `max` and `min`, with the method that does the same.
        tests: comparisons, or the number itself, of which only the truth is asked, with what asks.
        computed: whether any arithmetic happens before a tensor is met.
        rounded: whether some of it may differ from Python's in the last bit.
    """

    reads: dict[ast.expr, ast.expr] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    meetings: list[Meeting] = field(default_factory=list)
    functions: dict[ast.Call, Method] = field(default_factory=dict)
    tests: dict[ast.expr, Asking] = field(default_factory=dict)
    computed: bool = False
    rounded: bool = False
    seen: set[ast.AST] = field(default_factory=set)


def asking(node: ast.expr, parents: Mapping[ast.AST, ast.AST]) -> Asking | None:
    """What asks an expression for nothing but its truth."""
    current: ast.AST = node
    parent = parents[current]
    while isinstance(parent, ast.BoolOp) or (
        isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    ):
        current, parent = parent, parents[parent]
    if isinstance(parent, (ast.If, ast.IfExp, ast.Assert)) and parent.test is current:
        return parent
    return None


def check_tests(course: Course, parents: Mapping[ast.AST, ast.AST]) -> None:
    """A test that is left as it is must not cost more than the read did.

    Raises:
        Refused: where it could, or where something else than a read of a tensor is tested.
    """
    if any(read is tensor for read, tensor in course.reads.items()):
        raise Refused("scalar-tested", "a number that is no read of a tensor is tested too")
    around = [_costly(read, parents) for read in course.reads]
    for test in course.tests:
        if _costly(test, parents) not in around:
            raise Refused(
                "scalar-tested",
                f"`{ast.unparse(test)}` is asked in a loop or `try`, the read is not",
            )


def _costly(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> set[ast.AST]:
    """The loops and `try` statements around a node: a break in them costs the whole frame."""
    found: set[ast.AST] = set()
    current: ast.AST | None = node
    while current is not None and not isinstance(current, ast.FunctionDef):
        if isinstance(current, (ast.For, ast.While, ast.Try)):
            found.add(current)
        current = parents.get(current)
    return found
