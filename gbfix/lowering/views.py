"""Statements as they are traced, and simple questions about blocks of them.

Leaves out what only runs in eager mode and unwraps what only runs compiled, so that code which was
rewritten before is seen as Dynamo sees it. Knows statements, nothing of branches or their outputs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from gbfix.analysis.conditions import Refused
from gbfix.analysis.facts import Facts
from gbfix.analysis.flow import Analysis
from gbfix.analysis.modes import COMPILING, when_true
from gbfix.analysis.project import Module
from gbfix.analysis.trees import children, takes_all, walk
from gbfix.lowering.output import only_speaks

# What stands in these may not be evaluated, or more than once.
CONDITIONAL = (
    ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip


def block_of(statement: ast.stmt, module: Module) -> list[ast.stmt]:
    """The list of statements that a statement stands in."""
    parent = module.parents[statement]
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and any(s is statement for s in block):
            return block
    raise Refused("unusual-place", "the statement stands where it cannot be replaced")


def in_loop_of(node: ast.AST, nodes: Iterable[ast.AST]) -> bool:
    """Whether a loop among some nodes holds a node, a `break` say, which then leaves only that."""
    return any(
        isinstance(loop, (ast.For, ast.While)) and any(n is node for n in walk(loop))
        for loop in nodes
    )


def is_eager(node: ast.AST, analysis: Analysis) -> bool:
    """Whether a node stands in what only runs in eager mode."""
    current: ast.AST | None = node
    while current is not None:
        if current in analysis.eager:
            return True
        current = analysis.info.module.parents.get(current)
    return False


def compiled_view(body: Sequence[ast.stmt], analysis: Analysis, facts: Facts) -> list[ast.stmt]:
    """The statements that are traced: eager-only code and output left out, compiled-only unwrapped."""
    view: list[ast.stmt] = []
    for statement in body:
        if statement in analysis.eager or isinstance(statement, ast.Pass):
            continue
        if isinstance(statement, ast.Expr) and (
            isinstance(statement.value, ast.Constant) or only_speaks(statement, analysis, facts)
        ):
            continue
        if isinstance(statement, ast.If):
            condition = analysis.conditions.get(statement)
            literals = _compiling_literals(statement, analysis)
            if condition is not None and literals == frozenset({COMPILING}):
                view += compiled_view(statement.body, analysis, facts)
                if returns(statement.body):
                    break
                continue
            if statement.body and all(s in analysis.eager for s in statement.body):
                if literals == frozenset({"!" + COMPILING}) or not statement.orelse:
                    view += compiled_view(statement.orelse, analysis, facts)
                    continue
        view.append(statement)
    return view


def _compiling_literals(statement: ast.If, analysis: Analysis) -> frozenset[str]:
    return when_true(statement.test, lambda test: _asks(test, analysis))


def _asks(test: ast.expr, analysis: Analysis) -> bool:
    if not isinstance(test, ast.Call):
        return False
    value = analysis.values.get(test.func)
    name = value.reference if value is not None else None
    return name is not None and name.rsplit(".", 1)[-1].endswith("compiling")


def final_returns(body: Sequence[ast.stmt]) -> list[ast.Return]:
    """The `return` in which each path through a block ends; none if some path ends otherwise."""
    last = body[-1] if body else None
    if isinstance(last, ast.Return):
        return [last]
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return final_returns(last.body)
    blocks: list[list[ast.stmt]] = []
    if isinstance(last, ast.If):
        blocks = [last.body, last.orelse]
    elif isinstance(last, ast.Match) and takes_all(last.cases[-1]):
        blocks = [case.body for case in last.cases]
    ends = [final_returns(block) for block in blocks]
    return [end for found in ends for end in found] if all(ends) else []


def returns(body: Sequence[ast.stmt]) -> bool:
    """Whether every path through a block ends in `return`."""
    return bool(final_returns(body))


def skips(body: Sequence[ast.stmt]) -> bool:
    """Whether a block ends by going on to the next round of a loop."""
    return bool(body) and isinstance(body[-1], ast.Continue)


def walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is below it in the same scope: nested functions are not entered."""
    yield node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        return
    for child in children(node):
        yield from walk_scope(child)


def contains(body: Sequence[ast.stmt], kinds: type | tuple[type, ...]) -> bool:
    return any(isinstance(n, kinds) for s in body for n in walk_scope(s))


def is_elif(node: ast.If, module: Module) -> bool:
    """Whether an `if` is written as an `elif` of another."""
    parent = module.parents.get(node)
    return (
        isinstance(parent, ast.If)
        and parent.orelse == [node]
        and parent.col_offset == node.col_offset
    )
