"""What a call changes in place, by what the function that it calls changes.

Follows names from a function's body to its parameters and to the arguments of the call. Knows syntax,
nothing of values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from gbfix.analysis.bindings import stored_names
from gbfix.analysis.project import BUILTINS, FunctionInfo
from gbfix.analysis.trees import walk


def changed_by(
    call: ast.Call, info: FunctionInfo, changed: Iterable[ast.expr]
) -> tuple[list[ast.expr], list[ast.expr]]:
    """What a call changes through a function.

    Args:
        call: the call.
        info: the function that it calls.
        changed: what the function changes in place, as its own body names it.

    Returns:
        The arguments of the call that are changed, each once, and what is changed but is neither an
        argument nor made by the function itself.
    """
    arguments: dict[ast.expr, None] = {}
    outside: list[ast.expr] = []
    for target in (t for whole in changed for t in _looped_over(whole, info)):
        if _local(target, info):
            continue
        argument = _argument_for(target, info, call)
        if argument is not None:
            arguments.setdefault(argument)
        else:
            outside.append(target)
    return list(arguments), outside


def _argument_for(target: ast.expr, info: FunctionInfo, node: ast.Call) -> ast.expr | None:
    """The argument that a call passes for the parameter which the function changes."""
    while isinstance(target, (ast.Subscript, ast.Attribute)):
        target = target.value
    if not isinstance(target, ast.Name):
        return None
    for keyword in node.keywords:
        if keyword.arg == target.id:
            return keyword.value
    names = [a.arg for a in [*info.node.args.posonlyargs, *info.node.args.args]]
    if target.id not in names:
        return None
    at = names.index(target.id) - (1 if info.owner is not None else 0)
    if at < 0 or any(isinstance(a, ast.Starred) for a in node.args):
        return None
    return node.args[at] if at < len(node.args) else None


def _looped_over(target: ast.expr, info: FunctionInfo) -> list[ast.expr]:
    """What is changed in place; for the variable of a loop, what the loop runs over."""
    base = target
    while isinstance(base, (ast.Subscript, ast.Attribute)):
        base = base.value
    if not isinstance(base, ast.Name):
        return [target]
    for loop in walk(info.node):
        if isinstance(loop, ast.For) and base.id in stored_names(loop.target):
            names = [n for n in walk(loop.iter) if isinstance(n, ast.Name)]
            inside = [n for n in names if n.id not in BUILTINS and n.id != base.id]
            return [*inside] or [target]
    return [target]


def _local(target: ast.expr, info: FunctionInfo) -> bool:
    """Whether what is changed in place is a value that the function itself made."""
    while isinstance(target, (ast.Subscript, ast.Attribute)):
        target = target.value
    if not isinstance(target, ast.Name):
        return isinstance(target, ast.Call)
    parameters = {a.arg for a in walk(info.node.args) if isinstance(a, ast.arg)}
    bound = {
        n.id for n in walk(info.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return target.id not in parameters and target.id in bound
