"""Compiled paths that follow each other under one header.

Each fix writes its own `if torch.compiler.is_compiling():`. Where two of them adjoin, a reader would
have written one. Knows lines, nothing of what stands in the paths.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from gbfix.analysis.trees import walk
from gbfix.codegen.view import View
from gbfix.source.text import Edit

_HEADER = re.compile(r"if (?:not )?[\w.]+\.compiler\.is_compiling\(\):")
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def joined_paths(view: View, is_new: Callable[[int, str], bool]) -> tuple[Edit, ...]:
    """Edits that put adjoining paths under one header; `is_new` says whether a header was written."""
    found: list[Edit] = []
    for node in walk(view.module.tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and len(block) > 1:
                for run in _runs(block, view, is_new):
                    found += _joined(run, view)
    return _outermost(found)


def _outermost(edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Those of some edits that overlap no earlier one; what is left out is found again."""
    kept: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, -e.end)):
        if not kept or edit.start >= kept[-1].end:
            kept.append(edit)
    return tuple(kept)


def _runs(
    block: Sequence[ast.stmt], view: View, is_new: Callable[[int, str], bool]
) -> Iterator[list[ast.If]]:
    run: list[ast.If] = []
    for above, below in pairwise(block):
        if _adjoin(above, below, view, is_new):
            assert isinstance(above, ast.If)
            assert isinstance(below, ast.If)
            run = [*(run or [above]), below]
        elif run:
            yield run
            run = []
    if run:
        yield run


def _adjoin(
    above: ast.stmt, below: ast.stmt, view: View, is_new: Callable[[int, str], bool]
) -> bool:
    if above.end_lineno is None or above.end_lineno + 1 != below.lineno:
        return False
    headers = [_header(statement, view) for statement in (above, below)]
    if headers[0] is None or headers[0] != headers[1]:
        return False
    assert isinstance(above, ast.If)
    assert isinstance(below, ast.If)
    if _indents(above, view) != _indents(below, view) or isinstance(above.body[-1], _LEAVING):
        return False
    return all(is_new(view.start(s), headers[0]) for s in (above, below))


def _indents(statement: ast.If, view: View) -> list[str]:
    return [view.indent(arm[0]) for arm in (statement.body, statement.orelse) if arm]


def _header(statement: ast.stmt, view: View) -> str | None:
    """The header of an `if` of which each line belongs to the header, the `else` or an arm."""
    if not isinstance(statement, ast.If) or not view.starts_line(statement):
        return None
    text = view.source.line_text(statement.lineno).strip()
    if _HEADER.fullmatch(text) is None or not view.ends_line(statement):
        return None
    if statement.body[0].lineno == statement.lineno:
        return None
    return text if not statement.orelse or _else_line(statement, view) is not None else None


def _else_line(statement: ast.If, view: View) -> int | None:
    """The line of a plain `else:`, between the two arms."""
    between = range((statement.body[-1].end_lineno or 0) + 1, statement.orelse[0].lineno)
    plain = f"{view.indent(statement)}else:"
    return next((line for line in between if view.source.line_text(line) == plain), None)


def _joined(run: Sequence[ast.If], view: View) -> tuple[Edit, ...]:
    """One edit that writes a run of paths as one."""
    source = view.source
    arms: list[list[str]] = [[], []]
    for statement in run:
        middle = _else_line(statement, view) if statement.orelse else None
        end = statement.end_lineno or statement.lineno
        arms[0].append(source.lines_text(statement.lineno + 1, middle - 1 if middle else end))
        if middle:
            arms[1].append(source.lines_text(middle + 1, end))
    first, last = run[0], run[-1]
    head = source.lines_text(first.lineno, first.lineno)
    text = head + "".join(map(_whole_line, arms[0]))
    if arms[1]:
        text += f"{view.indent(first)}else:\n" + "".join(map(_whole_line, arms[1]))
    start = view.line_start(view.start(first))
    end = view.next_line(view.end(last))
    if not source.text[start:end].endswith(("\n", "\r")):
        text = text.rstrip("\n")
    return (Edit(start, end, text.replace("\r\n", "\n")),)


def _whole_line(text: str) -> str:
    return text if text.endswith(("\n", "\r")) else f"{text}\n"
