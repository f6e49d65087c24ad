"""The one expression that a statement is taken apart around, and what it stands in.

It breaks the graph, or uses a value that must not enter one. Tells as well whether it can be evaluated
before the rest of the statement; knows nothing of how that is written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gbfix.analysis.trees import walk
from gbfix.analysis.untraced import called
from gbfix.analysis.values import Kind
from gbfix.lowering.stages.staying import Staying
from gbfix.lowering.views import CONDITIONAL


def evaluated(statement: ast.stmt) -> ast.expr | None:
    """The expression that a statement evaluates before it does anything else."""
    if isinstance(statement, (ast.Assign, ast.Return, ast.Expr)):
        return statement.value
    return statement.test if isinstance(statement, ast.If) else None


def pivot_of(statement: ast.stmt, value: ast.expr, staying: Staying) -> ast.expr | None:
    """The one expression that breaks, or that uses what must not enter a graph."""
    inside = {id(n) for n in walk(statement)}
    found = [b for b in staying.broken if id(b) in inside]
    if found:
        only = found[0]
        if len(found) > 1 or not isinstance(only, ast.Call):
            return None
        return _whole(only, staying) if any(n is only for n in walk(value)) else None
    using = [n for n in walk(value) if isinstance(n, ast.expr) and _uses_kept(n, staying)]
    named = [n for n in walk(statement) if isinstance(n, ast.Name) and n.id in staying.kept]
    loads = [n for n in named if isinstance(n.ctx, ast.Load)]
    if len(using) != 1 or len(loads) != len(named):
        return None
    return using[0] if all(any(n is m for m in walk(using[0])) for n in loads) else None


def may_part(value: ast.expr, call: ast.expr, staying: Staying) -> bool:
    """Whether an expression can be evaluated before the one that it stands in."""
    around = list(above(value, call))
    if any(
        isinstance(n, CONDITIONAL) or (isinstance(n, ast.Compare) and len(n.ops) > 1)
        for n in around
    ):
        return False
    inside = {id(n) for n in walk(call)} | {id(n) for n in around}
    start = staying.context.view.start(call)
    draws = isinstance(call, ast.Call) and call in staying.draws
    return not any(
        isinstance(n, ast.Call)
        and id(n) not in inside
        and staying.context.view.start(n) < start
        and not (draws and _is_of_torch(n, staying))
        for n in walk(value)
    )


def above(value: ast.expr, call: ast.expr) -> Iterator[ast.AST]:
    """The nodes of an expression that a part of it stands in."""
    for node in walk(value):
        if node is not call and any(n is call for n in walk(node)):
            yield node


def _whole(call: ast.Call, staying: Staying) -> ast.expr:
    """A call with the methods that are called on what it gives, where that may enter no graph."""
    parents = staying.context.info.module.parents
    while call in staying.kept_calls:
        attribute = parents.get(call)
        outer = parents.get(attribute) if isinstance(attribute, ast.Attribute) else None
        if not isinstance(outer, ast.Call):
            break
        call = outer
    return call


def _uses_kept(node: ast.expr, staying: Staying) -> bool:
    """Whether an operand of an expression is a name of what must not enter a graph."""
    operands: list[ast.expr] = []
    if isinstance(node, ast.Call):
        operands = [*node.args, *(k.value for k in node.keywords)]
        if isinstance(node.func, ast.Attribute):
            operands.append(node.func.value)
    elif isinstance(node, ast.BinOp):
        operands = [node.left, node.right]
    return any(isinstance(o, ast.Name) and o.id in staying.kept for o in operands)


def _is_of_torch(call: ast.Call, staying: Staying) -> bool:
    """Whether a call is one of a function of torch or of a tensor: it draws nothing in Python."""
    values = staying.context.analysis.values
    layer = values.get(call.func)
    if layer is not None and layer.only(Kind.MODULE):
        return (layer.reference or "").startswith("torch.nn.")
    name = called(call, staying.context.analysis)
    if name is not None:
        return name.startswith("torch.")
    receiver = values.get(call.func.value) if isinstance(call.func, ast.Attribute) else None
    return receiver is not None and receiver.tensor
