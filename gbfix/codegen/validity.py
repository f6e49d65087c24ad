"""Whether a module is still Python after edits; only the statements that they touch are parsed.

What stands on whole lines at the top level and is valid by itself is valid between the statements
before and after it, which are as they were. Knows syntax, not meaning.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gbfix.codegen.view import View
from gbfix.source.text import Edit


def parse_edited(view: View, edits: Sequence[Edit]) -> None:
    """Parse what edits make of a module.

    Raises:
        SyntaxError, ValueError: if it is not valid Python; the line is that of the whole text.
    """
    text = view.source.apply(edits)
    part = _part(view, edits, text)
    if part is not None:
        try:
            ast.parse(part)
            return
        except (SyntaxError, ValueError):
            pass  # said of the whole, so that the line is right
    ast.parse(text)


def _part(view: View, edits: Sequence[Edit], text: str) -> str | None:
    """The whole lines of the new text with all that is edited; None if that cannot be told."""
    if not edits:
        return None
    first, last = min(edit.start for edit in edits), max(edit.end for edit in edits)
    before = view.source.text
    start: int | None = None
    for statement in view.module.tree.body:
        begin = view.start(statement)
        if view.line_start(begin) != begin:  # behind another one on its line
            continue
        if begin <= first:
            start = begin
        if begin > last:
            return None if start is None else text[start : begin + len(text) - len(before)]
    return None if start is None else text[start:]
