"""Python numbers that tensor data choose between, `1.0 if t > 0 else 0.5`, as a tensor of one element.

Knows conditional expressions of numbers and their texts, nothing of what follows from the number.
"""

from __future__ import annotations

import ast
import struct
from dataclasses import dataclass

from gbfix.analysis.conditions import Refused, data_kind, leaves, split
from gbfix.analysis.flow import Analysis
from gbfix.analysis.values import Kind
from gbfix.codegen.expressions import flat
from gbfix.codegen.predicates import Renderer, single
from gbfix.fixes import Context
from gbfix.lowering.views import block_of


def chosen(node: ast.AST, analysis: Analysis) -> bool:
    """Whether an expression is one of two Python numbers, as tensor data say."""
    if not isinstance(node, ast.IfExp):
        return False
    if not all(data_kind(leaf, analysis) in {"tensor", "scalar"} for leaf in leaves(node.test)):
        return False
    return all(_is_number(arm, analysis) for arm in (node.body, node.orelse))


@dataclass(frozen=True)
class BranchChoice:
    """An `if` that gives one name one of two numbers.

    Attributes:
        name: the name.
        stores: where it is bound; nowhere else.
        number: the choice as a conditional expression, which is not in the source.
    """

    name: str
    stores: tuple[ast.Name, ...]
    number: ast.IfExp


def branch_choice(node: ast.If, analysis: Analysis) -> BranchChoice | None:
    """Read an `if` that does nothing but choose a number, with an `else` or a value from before."""
    if node.orelse:
        other = _only_assignment(node.orelse)
    else:
        block = block_of(node, analysis.info.module)
        at = block.index(node)
        other = _only_assignment(block[at - 1 : at])
    own = _only_assignment(node.body)
    if own is None or other is None or own[0].id != other[0].id:
        return None
    number = ast.IfExp(node.test, own[1], other[1])
    if not chosen(number, analysis):
        return None
    return BranchChoice(own[0].id, (own[0], other[0]), number)


def _only_assignment(body: list[ast.stmt]) -> tuple[ast.Name, ast.expr] | None:
    statement = body[0] if len(body) == 1 else None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Name):
            return target, statement.value
    return None


def is_exact(node: ast.IfExp) -> bool:
    """Whether both numbers are written out, of one type, and the same in single precision."""
    values = [literal(arm) for arm in (node.body, node.orelse)]
    if any(value is None for value in values) or type(values[0]) is not type(values[1]):
        return False
    return all(isinstance(v, int) or (isinstance(v, float) and _fits_single(v)) for v in values)


def choice_text(node: ast.IfExp, torch: str, context: Context, *, double: bool) -> str:
    """The number as a tensor without dimensions, in double precision if asked or not exact in single.

    Raises:
        Refused: for a test that also asks what is known while tracing.
    """
    parts = split(node.test, context.analysis, context.facts)
    if parts.guards:
        raise Refused("static-in-test", "the test also asks what is known while tracing")
    predicate = single(Renderer(context.view, context.analysis, torch).render(parts.predicate))
    test = predicate.text if predicate.boolean else f"{predicate.operand} != 0"
    if not predicate.zero_dim:
        test = f"({test}).reshape(())"
    yes, no = flat(context.view, node.body), flat(context.view, node.orelse)
    if not is_exact(node):
        # The other number takes the dtype of this one.
        yes = f"{torch}.tensor({yes}, dtype={torch}.float64)"
    text = f"{torch}.where({test}, {yes}, {no})"
    return f"{text}.double()" if double and is_exact(node) else text


def _is_number(node: ast.expr, analysis: Analysis) -> bool:
    if literal(node) is not None:
        return True
    value = analysis.values.get(node)
    plain = isinstance(node, (ast.Name, ast.Attribute, ast.BinOp))
    return plain and value is not None and value.only(Kind.STATIC)


def literal(node: ast.expr) -> int | float | None:
    """A number that is written out; its sign is left out."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        node = node.operand
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _fits_single(value: float) -> bool:
    try:
        single_: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return False
    return single_ == value
