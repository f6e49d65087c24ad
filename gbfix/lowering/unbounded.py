"""Operations whose derivative may be infinite, as that of a square root is at zero.

Where their result is not selected, the zero that `torch.where` sends back becomes NaN. Knows names of
operations, not values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind
from gbfix.lowering.gradients import without_gradient

_UNBOUNDED = frozenset(
    "sqrt rsqrt log log2 log10 log1p pow float_power norm normalize std var std_mean var_mean "
    "reciprocal tan asin acos arcsin arccos atanh acosh arctanh arccosh logit xlogy erfinv lgamma "
    "digamma div divide true_divide addcdiv cosine_similarity cdist dist pairwise_distance "
    "vector_norm matrix_norm inv inverse pinv solve lstsq cholesky svd eigh qr logdet slogdet".split()
)


def may_have_any_derivative(node: ast.AST, analysis: Analysis) -> bool:
    """Whether an operation is one of those, unless it divides by a number or is a fixed power."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr.rstrip("_")
        return name in _UNBOUNDED and not (name == "pow" and node.args and _is_power(node.args[-1]))
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        right = node.right if isinstance(node, ast.BinOp) else node.value
        if isinstance(node.op, ast.Div):
            value = analysis.values.get(right)
            return value is None or not value.only(Kind.STATIC)
        return isinstance(node.op, ast.Pow) and not _is_power(right)
    return False


def unbounded(statement: ast.stmt, analysis: Analysis, facts: Facts) -> Iterator[str]:
    """The operations of a statement that may have any derivative, where gradients may pass."""
    for node in walk(statement):
        if may_have_any_derivative(node, analysis) and not all(
            without_gradient(operand, analysis, facts) for operand in _operands(node)
        ):
            yield ast.unparse(node)


def _operands(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    assert isinstance(node, ast.Call)
    own = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    return [*own, *node.args, *(keyword.value for keyword in node.keywords)]


def _is_power(node: ast.expr) -> bool:
    """Whether an exponent is a number from 1, with which the derivative is bounded."""
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.value >= 1
    )
