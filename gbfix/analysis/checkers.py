"""Helpers that check a condition and raise: `def check(cond, msg): if not cond: raise E(msg)`.

Such a helper is called with static conditions and with tensors alike. Called with a tensor it breaks
the graph inside, so the call is where the check can be put into the graph. Knows the shape of such
functions, nothing of how they are treated.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.parameters import argument_for, declared
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
    tested = _tested(info, call)
    if tested is None:
        return None
    name, raises_when, exception = tested
    condition = argument_for(call, name, info)
    if condition is None:
        return None
    message: ast.expr | None = None
    label = "check failed"
    if isinstance(exception, ast.Call):
        label = ast.unparse(exception.func)
        if exception.args:
            message = exception.args[0]
            if isinstance(message, ast.Name):
                message = argument_for(call, message.id, info)
            elif isinstance(message, ast.JoinedStr) and (name_shown := _only_shows(message)):
                message = argument_for(call, name_shown, info)
            elif isinstance(message, ast.Constant):
                message = ast.Constant(message.value)  # without a place: it is another file's
            else:
                message = None
    elif exception is not None:
        label = ast.unparse(exception)
    return Checker(condition, raises_when, message, label)


def _tested(info: FunctionInfo, call: ast.Call) -> tuple[str, bool, ast.expr | None] | None:
    """The tested parameter, the truth that raises, and the exception of a checking helper."""
    given = {
        name: argument_for(call, name, info) or default
        for name, (_, default) in declared(info.node).items()
    }
    known = {n: bool(v.value) for n, v in given.items() if isinstance(v, ast.Constant)}
    for name in given:
        if name in known:
            continue
        try:
            ends = {truth: _end(info.node.body, {**known, name: truth}) for truth in (True, False)}
        except _Unknown:
            continue
        raising = [truth for truth, end in ends.items() if isinstance(end, ast.Raise)]
        if len(raising) == 1:
            end = ends[raising[0]]
            assert isinstance(end, ast.Raise)
            return name, raising[0], end.exc
    return None


def _only_shows(text: ast.JoinedStr) -> str | None:
    """The name that a text such as `f"{msg}"` consists of."""
    part = text.values[0] if len(text.values) == 1 else None
    if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
        return part.value.id
    return None


class _Unknown(Exception):
    """A helper does something else than to test, to word a message and to raise."""


def _end(body: Sequence[ast.stmt], known: dict[str, bool]) -> ast.Raise | ast.Return | None:
    """How a block ends where the truth of some names is known; None where it goes on.

    Raises:
        _Unknown: for anything that the truth of these names does not settle.
    """
    for statement in body:
        if isinstance(statement, (ast.Raise, ast.Return)):
            if isinstance(statement, ast.Return) and not _is_plain(statement.value):
                raise _Unknown
            return statement
        if isinstance(statement, ast.If):
            truth = _truth(statement.test, known)
            if truth is None:
                for inner in [*statement.body, *statement.orelse]:
                    _word(inner, known)
                continue
            end = _end(statement.body if truth else statement.orelse, known)
            if end is not None:
                return end
        elif isinstance(statement, ast.Assert):
            truth = _truth(statement.test, known)
            if truth is None:
                raise _Unknown
            if not truth:
                said = [statement.msg] if statement.msg is not None else []
                return ast.Raise(ast.Call(ast.Name("AssertionError"), said, []), None)
        else:
            _word(statement, known)
    return None


def _truth(test: ast.expr, known: Mapping[str, bool]) -> bool | None:
    if isinstance(test, ast.Name):
        return known.get(test.id)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        truth = _truth(test.operand, known)
        return None if truth is None else not truth
    return None


def _word(statement: ast.stmt, known: dict[str, bool]) -> None:
    """A statement that only words a message, or is none at all; what it binds is no longer known.

    Raises:
        _Unknown: for any other.
    """
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if not isinstance(target, ast.Name):
                raise _Unknown
            known.pop(target.id, None)
        return
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    if not is_text and not isinstance(statement, ast.Pass):
        raise _Unknown


def _is_plain(value: ast.expr | None) -> bool:
    return value is None or isinstance(value, (ast.Constant, ast.Name))
