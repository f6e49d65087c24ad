"""Whether every call of a function comes to a break, or many pass without one.

A function that breaks its graph in training alone, or for one kind of argument, is one graph otherwise;
what costs each call a break is no gain there. Knows tests and jumps, nothing of fixes.
"""

from __future__ import annotations

import ast

from gbfix.analysis.break_site import BreakSite
from gbfix.analysis.trees import loops_around, of_kind, walk
from gbfix.analysis.untraced import called
from gbfix.analysis.values import Kind
from gbfix.fixes import Context

_GENERATORS = frozenset({"Random", "SystemRandom", "RandomState", "default_rng"})


def is_always_reached(site: BreakSite, context: Context, within: ast.stmt | None = None) -> bool:
    """Whether a call of the function that is not over before comes to the site.

    With `within`, whether running that statement does.

    A function that breaks its graph in training alone, or for one of its arguments alone, is one graph
    otherwise, and would be several if it was divided. What differs from round to round of a loop, or is
    decided by data, is taken to let some round pass.
    """
    parents = context.info.module.parents
    if site.test is not None and _may_skip(site.test, site.node, context):
        return False
    below, above = site.node, parents.get(site.node)
    while above is not None and below is not context.info.node and below is not within:
        if isinstance(above, ast.ExceptHandler):
            return False
        if isinstance(above, (ast.If, ast.IfExp)) and below is not above.test:
            if not _makes_generator(below, above, context) and _may_skip(
                above.test, above, context
            ):
                return False
        if isinstance(above, ast.BoolOp):
            before = above.values[: above.values.index(below)] if below in above.values else []
            if any(_may_skip(operand, above, context) for operand in before):
                return False
        for block in (getattr(above, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and below in block:
                if any(_may_leave(s, context) for s in block[: block.index(below)]):
                    return False
        below, above = above, parents.get(above)
    return True


def _makes_generator(arm: ast.AST, above: ast.AST, context: Context) -> bool:
    """`Random(seed) if seed is not None else random`: numbers are drawn from what either arm gives."""
    if not isinstance(above, ast.IfExp) or not isinstance(arm, ast.Call):
        return False
    return (called(arm, context.analysis) or "").rpartition(".")[2] in _GENERATORS


def _may_leave(statement: ast.stmt, context: Context) -> bool:
    """Whether a statement may end the function or the round for a reason that no data gives."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    if not any(isinstance(n, (ast.Return, ast.Continue, ast.Break)) for n in walk(statement)):
        return False
    if isinstance(statement, (ast.For, ast.While)):
        return any(isinstance(n, ast.Return) for n in walk(statement))
    return not isinstance(statement, ast.If) or _may_skip(statement.test, statement, context)


def _may_skip(test: ast.expr, place: ast.AST, context: Context) -> bool:
    """Whether a test may come out the same in all rounds of a call, whatever the data are."""
    for operand in test.values if isinstance(test, ast.BoolOp) else [test]:
        value = context.analysis.values.get(operand)
        if value is not None and value.only(Kind.TENSOR | Kind.SCALAR):
            return False
        if not _varies(operand, place, context):
            return True
    return False


def _varies(test: ast.expr, place: ast.AST, context: Context) -> bool:
    """Whether a test reads what a loop around it binds anew, and not just looks for it somewhere."""
    if isinstance(test, ast.Compare) and any(isinstance(o, (ast.In, ast.NotIn)) for o in test.ops):
        return False
    parents = context.info.module.parents
    read = {n.id for n in walk(test) if isinstance(n, ast.Name)}
    return any(
        n.id in read and isinstance(n.ctx, ast.Store)
        for loop in loops_around(parents.get(place), context.info.node, parents)
        for n in of_kind(loop, ast.Name)
    )
