"""What a test says about names on its two edges: not None, of a class, a tensor, of a dtype.

Narrowing only ever removes kinds, so that code after `if not isinstance(x, Tensor): x = ...` knows a
tensor. Knows tests and environments, nothing of statements.
"""

from __future__ import annotations

import ast

from gbfix.analysis.dtypes import FLOATING_DTYPES, INTEGER_DTYPES
from gbfix.analysis.evaluate import Environment, Evaluator, dotted
from gbfix.analysis.torch_table import TENSOR_CLASSES
from gbfix.analysis.values import MAYBE, NONE, STATIC, UNKNOWN, Kind, replace


def narrow(
    evaluator: Evaluator, environment: Environment, test: ast.expr, truth: bool
) -> Environment:
    """The environment on the true or the false edge of a test."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return narrow(evaluator, environment, test.operand, not truth)
    if isinstance(test, ast.BoolOp):
        if isinstance(test.op, ast.And) == truth:
            for value in test.values:
                environment = narrow(evaluator, environment, value, truth)
        return environment
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _narrow_compared(evaluator, environment, test, truth)
    if isinstance(test, ast.Call) and len(test.args) >= 1:
        name = evaluator.qualified(test.func)
        key = dotted(test.args[0])
        if key is None:
            return environment
        if name == "builtins.isinstance" and len(test.args) == 2:
            return _narrow_class(evaluator, environment, key, test.args[1], truth)
        if name in {"torch.is_tensor", "torch.overrides.is_tensor_like"}:
            return _narrow_tensor(evaluator, environment, key, truth)
    return environment


def _narrow_compared(
    evaluator: Evaluator, environment: Environment, test: ast.Compare, truth: bool
) -> Environment:
    comparator = test.comparators[0]
    same = isinstance(test.ops[0], (ast.Eq, ast.Is))
    if isinstance(test.left, ast.Attribute) and test.left.attr == "dtype":
        equal = same or isinstance(test.ops[0], (ast.NotEq, ast.IsNot))
        asked = test.left.value if equal and same == truth else None
        return _narrow_dtype(evaluator, environment, asked, comparator)
    key = dotted(test.left)
    if key is None or not isinstance(comparator, ast.Constant) or comparator.value is not None:
        return environment
    if not isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        return environment
    is_none = isinstance(test.ops[0], ast.Is) == truth
    value = environment.get(key) or evaluator.values.get(test.left)
    if value is None:
        return environment
    kinds = value.kinds & ~Kind.NONE
    narrowed = NONE if is_none else replace(value, kinds=kinds or Kind.UNKNOWN)
    return {**environment, key: narrowed}


def _narrow_dtype(
    evaluator: Evaluator, environment: Environment, asked: ast.expr | None, right: ast.expr
) -> Environment:
    """`x.dtype == torch.float16` says that `x` is floating, and `== torch.bool` that it is a mask."""
    key = dotted(asked) if asked is not None else None
    if key is None or key not in environment:
        return environment
    value, dtype = environment[key], evaluator.qualified(right)
    if dtype in FLOATING_DTYPES:
        return {**environment, key: replace(value, floating=True)}
    if dtype in INTEGER_DTYPES:
        return {**environment, key: replace(value, integer=True)}
    if dtype == "torch.bool":
        return {**environment, key: replace(value, boolean=True)}
    return environment


def _narrow_class(
    evaluator: Evaluator, environment: Environment, key: str, classes: ast.expr, truth: bool
) -> Environment:
    parts = classes.elts if isinstance(classes, ast.Tuple) else [classes]
    names = [evaluator.qualified(p) or "" for p in parts]
    if any(n in TENSOR_CLASSES for n in names):
        if all(n in TENSOR_CLASSES for n in names) or not truth:
            return _narrow_tensor(evaluator, environment, key, truth)
        return environment
    if truth:
        value = environment.get(key, UNKNOWN)
        static = replace(value, kinds=Kind.OBJECT, reference=None)
        if len(names) == 1 and evaluator.facts.project.class_info(names[0]) is not None:
            static = replace(static, reference=names[0])
        if len(names) == 1 and names[0].removeprefix("builtins.") in {
            "int", "float", "bool", "str",
        }:  # fmt: skip
            static = STATIC
        return {**environment, key: static}
    return environment


def _narrow_tensor(
    evaluator: Evaluator, environment: Environment, key: str, truth: bool
) -> Environment:
    value = environment.get(key, MAYBE)
    if truth:
        return {**environment, key: replace(value, kinds=Kind.TENSOR)}
    kinds = value.kinds & ~(Kind.TENSOR | Kind.MAYBE)
    return {**environment, key: replace(value, kinds=kinds or Kind.STATIC)}
