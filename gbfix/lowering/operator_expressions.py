"""What an expression gives in a function whose results are told.

Evaluates operands and arguments in order; what calls make of them is told by `operator_calls`.
"""

from __future__ import annotations

import ast

from gbfix.analysis.conditions import Refused
from gbfix.analysis.trees import children
from gbfix.lowering import operator_values as known
from gbfix.lowering.operator_calls import function, method
from gbfix.lowering.operator_scope import Scope
from gbfix.lowering.operator_values import NUMBER, Holds, Known, arithmetic, joined, truth


def evaluate(scope: Scope, node: ast.expr) -> Known:
    """What is known of an expression."""
    if isinstance(node, ast.Constant):
        return NUMBER
    if isinstance(node, ast.Name):
        bound = scope.context.info.module.bindings.get(node.id, [])
        constant = len(bound) == 1 and isinstance(bound[0], ast.Constant)
        return scope.environment.get(node.id, NUMBER if constant else Known(Holds.OTHER))
    if isinstance(node, ast.Attribute):
        return _attribute(scope, node)
    if isinstance(node, ast.Call):
        return _call(scope, node)
    if isinstance(node, ast.BinOp):
        return arithmetic([evaluate(scope, node.left), evaluate(scope, node.right)])
    if isinstance(node, ast.UnaryOp):
        inner = evaluate(scope, node.operand)
        if isinstance(node.op, ast.Not):
            return NUMBER
        exact = inner.exact and isinstance(node.op, ast.USub)
        return inner.fresh(exact=exact) if inner.holds is not Holds.NUMBER else NUMBER
    if isinstance(node, ast.Compare):
        parts = [evaluate(scope, node.left), *(evaluate(scope, c) for c in node.comparators)]
        return truth(parts)
    if isinstance(node, ast.IfExp):
        evaluate(scope, node.test)
        return joined(evaluate(scope, node.body), evaluate(scope, node.orelse))
    if isinstance(node, ast.Subscript):
        base, at = evaluate(scope, node.value), evaluate(scope, node.slice)
        if base.holds is Holds.NUMBER and at.holds is Holds.NUMBER:
            return NUMBER
        return Known(Holds.OTHER, grads=base.grads, bases=base.bases)
    inner_values = [evaluate(scope, n) for n in children(node) if isinstance(n, ast.expr)]
    if isinstance(node, (ast.Tuple, ast.List, ast.BoolOp)) and all(
        v.holds is Holds.NUMBER for v in inner_values
    ):
        return NUMBER
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        raise Refused("not-followed", "a comprehension is not followed here")
    grads, bases = known.of(*inner_values)
    return Known(Holds.OTHER, grads=grads, bases=bases)


def _attribute(scope: Scope, node: ast.Attribute) -> Known:
    if scope.qualified(node) is not None:
        return Known(Holds.OTHER)
    base = evaluate(scope, node.value)
    if node.attr in ("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda"):
        return NUMBER
    grads = frozenset() if node.attr == "data" else base.grads
    return Known(Holds.OTHER, grads=grads, bases=base.bases)


def _call(scope: Scope, node: ast.Call) -> Known:
    if any(isinstance(a, ast.Starred) for a in node.args) or any(
        k.arg is None for k in node.keywords
    ):
        raise Refused("not-followed", "a call with `*` or `**` is not followed here")
    given = [evaluate(scope, a) for a in node.args]
    named = {k.arg: evaluate(scope, k.value) for k in node.keywords if k.arg}
    name = scope.qualified(node.func)
    if "out" in named:
        raise Refused("not-followed", "`out=` is not followed here")
    if name is not None:
        return function(scope, node, name, given, [*given, *named.values()])
    if not isinstance(node.func, ast.Attribute):
        raise Refused("not-followed", f"`{ast.unparse(node.func)}` is a value of the call")
    owner = node.func.value
    base = evaluate(scope, owner)
    result = method(scope, node, node.func.attr, base, [base, *given], named)
    # The object itself, which is now known to hold more than before.
    return evaluate(scope, owner) if result is base and node.func.attr.endswith("_") else result
