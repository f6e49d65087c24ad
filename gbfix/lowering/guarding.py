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
    head = layout.indent(f"if not {compiling(torch)}:\n", indent)
    edits = [Edit(start, start, head), *view.indent_lines(start, view.end(last), context.unit)]
    return merged(edits)


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
