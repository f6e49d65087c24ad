"""Helpers that check a condition and raise: `def check(cond, msg): if not cond: raise E(msg)`.

Such a helper is called with static conditions and with tensors alike. Called with a tensor it breaks
the graph inside, so the call is where the check can be put into the graph. Knows the shape of such
functions, nothing of how they are treated.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.project import FunctionInfo


@dataclass(frozen=True)
class Checker:
    """A call of a checking helper.

    Attributes:
        condition: the argument that is tested.
        raises_when: the truth of the condition for which the helper raises.
        message: what the exception says: an argument of the call, an expression of the helper, or
            None.
    """

    condition: ast.expr
    raises_when: bool
    message: ast.expr | None
    exception: str


def checker_call(call: ast.Call, analysis: Analysis, facts: Facts) -> Checker | None:
    """The check that a call makes, if it calls a helper that does nothing else."""
    value = analysis.values.get(call.func)
    if value is None or value.reference is None:
        return None
    info = facts.project.function_info(value.reference)
    if info is None or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    tested = _tested(info)
    if tested is None:
        return None
    name, raises_when, exception = tested
    condition = _argument(name, info, call)
    if condition is None:
        return None
    message: ast.expr | None = None
    label = "check failed"
    if isinstance(exception, ast.Call):
        label = ast.unparse(exception.func)
        if exception.args:
            message = exception.args[0]
            if isinstance(message, ast.Name):
                message = _argument(message.id, info, call)
            elif isinstance(message, ast.Constant):
                message = ast.Constant(message.value)  # without a place: it is another file's
            else:
                message = None
    elif exception is not None:
        label = ast.unparse(exception)
    return Checker(condition, raises_when, message, label)


def _tested(info: FunctionInfo) -> tuple[str, bool, ast.expr | None] | None:
    """The tested parameter, the truth that raises, and the exception of a checking helper."""
    body = [
        s
        for s in info.node.body
        if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
    ]
    if not body or not isinstance(body[0], ast.If) or body[0].orelse:
        return None
    test, raising = body[0].test, body[0].body
    if len(raising) != 1 or not isinstance(raising[0], ast.Raise):
        return None
    if any(not isinstance(s, (ast.Return, ast.Pass)) for s in body[1:]):
        return None
    truth = True
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, truth = test.operand, not truth
    if not isinstance(test, ast.Name):
        return None
    return test.id, truth, raising[0].exc


def _argument(name: str, info: FunctionInfo, call: ast.Call) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = [a.arg for a in [*info.node.args.posonlyargs, *info.node.args.args]]
    if info.owner is not None and isinstance(call.func, ast.Attribute):
        names = names[1:]
    if name in names and names.index(name) < len(call.args):
        return call.args[names.index(name)]
    return None
