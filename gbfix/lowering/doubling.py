"""Statements written twice: for the compiled path with other expressions in them, and as they are.

What only runs when compiling is changed in place. Knows statements and offsets, nothing of what the
expressions say.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from gbfix.analysis.conditions import Refused
from gbfix.codegen.expressions import flat
from gbfix.codegen.fitting import fitted
from gbfix.codegen.guards import compiling
from gbfix.codegen.view import View
from gbfix.fixes import Context
from gbfix.lowering.placement import beside_all, width_for
from gbfix.lowering.views import block_of
from gbfix.source.text import Edit


def in_compiled_path(statement: ast.stmt, context: Context) -> bool:
    """Whether a statement only runs when compiling, so that it has no eager path to keep."""
    if context.only_compiled:
        return True
    parents = context.info.module.parents
    current: ast.AST = statement
    while current is not context.info.node:
        outer = parents[current]
        if isinstance(outer, ast.If) and current in outer.body:
            tests = outer.test.values if isinstance(outer.test, ast.BoolOp) else [outer.test]
            both = not isinstance(outer.test, ast.BoolOp) or isinstance(outer.test.op, ast.And)
            if both and any(context.facts.is_asked(t, context.analysis) for t in tests):
                return True
        current = outer
    return False


def beside_read(
    node: ast.expr, text: str, statement: ast.stmt, context: Context
) -> tuple[Edit, ...]:
    """Give a read another value in the compiled path, with the read left for eager mode.

    A name that is given the read gets a conditional expression; any other statement is written
    twice. In code that is only ever compiled the read is replaced.

    Raises:
        Refused: if the statement cannot be written twice.
    """
    view = context.view
    start, end = view.start(node), view.end(node)
    if in_compiled_path(statement, context):
        return (Edit(start, end, text),)
    torch = context.torch(statement)
    if isinstance(statement, ast.Assign) and statement.value is node:
        line = f"{text} if {compiling(torch)} else {flat(view, node)}"
        column = start - view.line_start(start)
        if column + len(line) <= context.settings.line_length:
            return (Edit(start, end, line),)
    return twice({statement: {node: text}}, context)


def twice(
    texts: Mapping[ast.stmt, Mapping[ast.expr, str]],
    context: Context,
    leads: Mapping[ast.stmt, Sequence[str]] | None = None,
) -> tuple[Edit, ...]:
    """Write simple statements twice: with other expressions when compiling, and as they are.

    Statements that follow each other share one `if`. `leads` are lines that come before a statement
    when compiling.

    Raises:
        Refused: if one is not a simple statement on lines of its own.
    """
    view = context.view
    edits: list[Edit] = []
    for group in _runs(sorted(texts, key=lambda s: s.lineno), context):
        bodies: list[str] = []
        for statement in group:
            _check_simple(statement, view)
            bodies += leads.get(statement, ()) if leads is not None else ()
            text = substituted(statement, texts[statement], view)
            bodies.append(fitted(text, width_for(context, statement), context.unit))
        edits += beside_all(group, "\n".join(bodies), context.torch(group[0]), (), context)
    return tuple(edits)


def _runs(statements: Sequence[ast.stmt], context: Context) -> list[list[ast.stmt]]:
    """Statements in runs of such that follow each other directly."""
    found: list[list[ast.stmt]] = []
    for statement in statements:
        block = block_of(statement, context.info.module)
        at = block.index(statement)
        if found and at and found[-1][-1] is block[at - 1]:
            found[-1].append(statement)
        else:
            found.append([statement])
    return found


def _check_simple(statement: ast.stmt, view: View) -> None:
    if isinstance(statement, (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef)):
        raise Refused("unusual-place", "the read stands in the head of a block")
    lines = range(statement.lineno + 1, (statement.end_lineno or 0) + 1)
    if view.string_lines(statement.lineno) & set(lines):
        raise Refused("unusual-place", "a string of several lines stands in the statement")


def substituted(statement: ast.stmt, texts: Mapping[ast.expr, str], view: View) -> str:
    """The text of a statement with other texts in the places of some expressions."""
    start = view.start(statement)
    text = view.source.text[start : view.end(statement)]
    for node, new in sorted(texts.items(), key=lambda item: -view.start(item[0])):
        text = text[: view.start(node) - start] + new + text[view.end(node) - start :]
    first, *more = text.replace("\r\n", "\n").split("\n")
    indent = view.indent(statement)
    return "\n".join([first, *(line.removeprefix(indent) for line in more)])
