"""Arms whose results plainly differ in dtype, shape or stride, which `torch.cond` does not take.

Equality is often impossible to prove; a plain difference is not. A cast, a transposition or a
reduction over a dimension in one arm that the other arm does not have is such a difference.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.analysis import torch_table
from gbfix.analysis.conditions import Refused
from gbfix.analysis.dynamic import operands, operation_name
from gbfix.analysis.flow import Analysis
from gbfix.analysis.trees import walk
from gbfix.analysis.values import Kind, Value
from gbfix.lowering.results import Result

_CASTS = frozenset("to half float double bfloat16 int long bool short byte type type_as".split())
_TURNS = frozenset("t transpose permute swapaxes swapdims movedim moveaxis T mT H mH".split())
_RESHAPES = frozenset(
    "cat concat concatenate stack hstack vstack pad repeat repeat_interleave flatten view "
    "reshape unsqueeze squeeze narrow tile unfold".split()
)
_JOINS = frozenset("cat concat concatenate stack hstack vstack dstack".split())
_KEEPING = frozenset({"clone", "detach", "to"})
_REDUCTIONS = frozenset("sum mean max min amax amin any all prod norm std var median".split())


def check_layouts(
    results: Sequence[tuple[Result, Result]],
    values: Sequence[tuple[Value, Value]],
    analysis: Analysis,
) -> None:
    """Refuse pairs of results that plainly differ.

    Raises:
        Refused: naming the difference.
    """
    for (a, b), (x, y) in zip(results, values, strict=True):
        if x.dtype != y.dtype and _outer(a.node, analysis, _CASTS) != _outer(
            b.node, analysis, _CASTS
        ):
            raise Refused("different-dtypes", "one arm casts its result and the other does not")
        if x.shape == y.shape:
            continue
        if _turned(a.node) != _turned(b.node):
            raise Refused("different-strides", "one arm transposes and the other does not")
        if _outer(a.node, analysis, _RESHAPES) != _outer(b.node, analysis, _RESHAPES):
            raise Refused("different-shapes", "one arm gives its result another shape")
        if _outer(a.node, analysis, _REDUCTIONS) != _outer(b.node, analysis, _REDUCTIONS) and not (
            x.zero_dim and y.zero_dim
        ):
            raise Refused("different-shapes", "one arm reduces a dimension and the other does not")


def keep_layouts(results: Sequence[tuple[Result, Result]], analysis: Analysis) -> bool:
    """Whether both results of each pair have the strides of what the arms were given, or neither has.

    Elementwise operations have; most others give dense results whatever they were given.
    """
    return all(
        _keeps_layout(a.node, analysis) == _keeps_layout(b.node, analysis) for a, b in results
    )


def _keeps_layout(node: ast.expr | None, analysis: Analysis) -> bool:
    if node is None or isinstance(node, (ast.Name, ast.Constant)):
        return True
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        return not isinstance(node.op, ast.MatMult) and all(
            _keeps_layout(side, analysis) for side in sides
        )
    if isinstance(node, ast.UnaryOp):
        return _keeps_layout(node.operand, analysis)
    if isinstance(node, ast.Call):
        name = operation_name(node, analysis)
        known = (
            (torch_table.function(f"torch.{name}") or torch_table.method(name)) if name else None
        )
        elementwise = known is not None and known.pointwise
        return (elementwise or name in _KEEPING) and all(
            _keeps_layout(operand, analysis) for operand in operands(node, analysis)
        )
    value = analysis.values.get(node)
    return isinstance(node, ast.Attribute) and (value is None or value.tensor or value.static)


def check_one_sided(
    names: Sequence[str],
    bound: Sequence[tuple[Sequence[ast.expr], Sequence[ast.expr]]],
    values: Sequence[tuple[Value, Value]],
) -> None:
    """Refuse what one arm casts or joins with more, and the other leaves as it is.

    `bound` holds what each arm binds each output to, nothing where it leaves it alone.

    Raises:
        Refused: naming the difference.
    """
    for name, (a, b), (x, y) in zip(names, bound, values, strict=True):
        if bool(a) == bool(b) or len(a) + len(b) != 1:
            continue
        (only,) = (*a, *b)
        if not isinstance(only, ast.Call):
            continue
        if x.dtype != y.dtype and _casts(only, name):
            raise Refused("different-dtypes", "one arm casts its result and the other does not")
        if x.shape != y.shape and _joins(only, name):
            raise Refused("different-shapes", "one arm gives its result another shape")


def _casts(call: ast.Call, name: str) -> bool:
    """Whether a call may give a tensor another dtype; one that names a device alone does not."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _CASTS:
        return False
    if ast.unparse(call.func.value) != name:
        return False
    given = [*call.args, *(k.value for k in call.keywords)]
    return not given or not all(ast.unparse(g).rpartition(".")[2] == "device" for g in given)


def _joins(call: ast.Call, name: str) -> bool:
    """Whether a call joins a tensor with others, which are seldom empty."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _JOINS or not call.args:
        return False
    parts = call.args[0]
    return isinstance(parts, (ast.List, ast.Tuple)) and any(
        ast.unparse(part) == name for part in parts.elts
    )


def check_types(values: Sequence[tuple[Value, Value]]) -> None:
    """Refuse results of different dtype families, within an output or among outputs.

    Raises:
        Refused: naming the difference.
    """
    for a, b in values:
        if ((a.boolean or a.integer) and b.floating) or (a.floating and (b.boolean or b.integer)):
            raise Refused("different-dtypes", "the arms give different dtypes")
    discrete = [a.boolean or a.integer or b.boolean or b.integer for a, b in values]
    if any(discrete) and not all(discrete):
        raise Refused(
            "mixed-result-types",
            "one `torch.cond` that gives floating and other tensors together fails with gradients",
        )


def elementwise_extreme(call: ast.Call, analysis: Analysis) -> bool:
    """Whether a call is `torch.max(a, b)` or `a.min(b)` of two tensors, which reduces nothing."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in {"max", "min"}:
        return False
    given = [*call.args, *(k.value for k in call.keywords)]
    receiver = analysis.values.get(function.value)
    if receiver is not None and receiver.may_be_tensor:
        given.append(function.value)
    values = [analysis.values.get(operand) for operand in given]
    return len(values) == 2 and all(v is not None and v.tensor for v in values)


def _outer(node: ast.expr | None, analysis: Analysis, names: frozenset[str]) -> str:
    """The outermost call of an expression, if it is one of the named, with its arguments."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        function = analysis.values.get(node.func)
        if function is not None and function.kinds & Kind.MODULE:
            return ""  # `self.norm(x)` is a layer
        if names is _REDUCTIONS and elementwise_extreme(node, analysis):
            return ""
        if node.func.attr in names and (node.args or node.keywords or names is _CASTS):
            parts = [ast.unparse(a) for a in node.args] if names is _CASTS else []
            return " ".join([node.func.attr, *parts])
    return ""


def _turned(node: ast.expr | None) -> int:
    """How many transpositions an expression makes."""
    if node is None:
        return 0
    return sum(isinstance(n, ast.Attribute) and n.attr in _TURNS for n in walk(node))
