"""Whole statements put below `if not torch.compiler.is_compiling():`, lines that adjoin in one block.

Knows statements and offsets, nothing of why they are skipped.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from gbfix.analysis.conditions import Refused
from gbfix.codegen import layout
from gbfix.codegen.guards import compiling
from gbfix.fixes import Context
from gbfix.lowering.views import block_of
from gbfix.source.text import Edit


def guarded(statements: Sequence[ast.stmt], torch: str, context: Context) -> tuple[Edit, ...]:
    """Edits that put a guard above neighbouring statements and indent them.

    Raises:
        Refused: if they share a line with other code.
    """
    view = context.view
    first, last = statements[0], statements[-1]
    if not (view.starts_line(first) and view.ends_line(last)):
        raise Refused("shared-line", "the statement shares its line with another")
    indent = view.indent(first)
    start = view.line_start(view.start(first))
    edits = list(view.indent_lines(start, view.end(last), context.unit))
    block = block_of(first, context.info.module)
    above = block[max(block.index(first) - 1, 0)]
    if above.end_lineno == first.lineno - 1 and _is_guard(above, torch, context):
        return merged(edits)
    head = layout.indent(f"if not {compiling(torch)}:\n", indent)
    below = block[min(block.index(last) + 1, len(block) - 1)]
    if last.end_lineno == below.lineno - 1 and _is_guard(below, torch, context):
        line = view.line_start(view.start(below))
        edits.append(Edit(line, view.next_line(line), ""))
    return merged([Edit(start, start, head), *edits])


def _is_guard(statement: ast.stmt, torch: str, context: Context) -> bool:
    """Whether a statement is a guard that more lines can go under."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    view, body = context.view, statement.body
    header = view.source.line_text(statement.lineno).strip()
    return (
        header == f"if not {compiling(torch)}:"
        and body[0].lineno == statement.lineno + 1
        and view.indent(body[0]) == view.indent(statement) + context.unit
    )


def guarded_runs(statements: Iterable[ast.stmt], context: Context) -> tuple[Edit, ...]:
    """Edits that guard statements wherever they stand; those that adjoin share a guard.

    Raises:
        Refused: if one shares a line with other code.
    """
    edits: list[Edit] = []
    for run in _runs(statements, context):
        edits += guarded(run, context.torch(run[0]), context)
    return tuple(edits)


def _runs(statements: Iterable[ast.stmt], context: Context) -> list[list[ast.stmt]]:
    runs: list[list[ast.stmt]] = []
    for statement in sorted(statements, key=lambda s: (s.lineno, s.col_offset)):
        block = block_of(statement, context.info.module)
        at = next(i for i, s in enumerate(block) if s is statement)
        if runs and at > 0 and runs[-1][-1] is block[at - 1]:
            runs[-1].append(statement)
        else:
            runs.append([statement])
    return runs


def merged(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Insertions at one offset as one edit, in the order given."""
    by_place: dict[tuple[int, int], str] = {}
    for edit in edits:
        key = (edit.start, edit.end)
        by_place[key] = by_place.get(key, "") + edit.text
    return tuple(Edit(start, end, text) for (start, end), text in by_place.items())
