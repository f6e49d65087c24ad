"""The source of one module seen through its syntax tree: text of nodes, indentation, edits.

Bridges `ast` nodes and character offsets. Text that leaves this module has line feeds only; the
file's own newlines come back when edits are applied. It may not know what the code means.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property

from gbfix.analysis.project import Function, Module
from gbfix.analysis.trees import first_line
from gbfix.source.text import Edit, SourceFile

Positioned = ast.expr | ast.stmt | ast.pattern


# Triple quotes and continued lines; since Python 3.12 also the braces of any f-string.
_SPANS_LINES = re.compile(
    r"\"{3}|'{3}|\\\r?\n|\\\r" + (r"|[fFtT][rR]?[\"']" if sys.version_info >= (3, 12) else "")
)


class View:
    """Text and places of the nodes of one module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.source: SourceFile = module.source
        self._strings: dict[tuple[int, int], frozenset[int]] = {}

    def start(self, node: Positioned) -> int:
        """Character offset at which a node starts; a decorated definition at its first decorator."""
        decorators = getattr(node, "decorator_list", None)
        if decorators:
            return self.source.text.rindex("@", 0, self.start(decorators[0]))
        return self.source.offset(node.lineno, node.col_offset)

    def end(self, node: Positioned) -> int:
        """Character offset just after a node."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.source.offset(node.end_lineno, node.end_col_offset)

    def text(self, node: Positioned) -> str:
        """A node's source text, with line feeds; unparsed where the node is not from the source."""
        if getattr(node, "lineno", None) is None:
            return ast.unparse(node)
        return self.slice(self.start(node), self.end(node))

    def slice(self, start: int, end: int) -> str:
        """Source text between two offsets, with line feeds."""
        return self.source.text[start:end].replace("\r\n", "\n").replace("\r", "\n")

    def line_start(self, offset: int) -> int:
        """Offset of the start of the line around an offset."""
        line, _ = self.source.position(offset)
        return self.source.line_starts[line - 1]

    def indent(self, node: Positioned) -> str:
        """The white space at the start of the line on which a node starts."""
        start = self.line_start(self.start(node))
        line = self.source.text[start : self.start(node)]
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    def starts_line(self, node: Positioned) -> bool:
        """Whether only white space stands before a node on its line."""
        start = self.start(node)
        return not self.source.text[self.line_start(start) : start].strip(" \t\f")

    def ends_line(self, node: Positioned) -> bool:
        """Whether nothing but white space or a comment follows a node on its line."""
        rest = self.source.text[self.end(node) : self.line_end(self.end(node))].strip()
        return not rest or rest.startswith("#")

    def line_end(self, offset: int) -> int:
        """Offset of the end of the line around an offset, before its newline."""
        line, _ = self.source.position(offset)
        return self.source.line_starts[line - 1] + len(self.source.line_text(line))

    def next_line(self, offset: int) -> int:
        """Offset of the start of the next line, or the end of the text."""
        line, _ = self.source.position(offset)
        starts = self.source.line_starts
        return starts[line] if line < len(starts) else len(self.source.text)

    def unit(self, function: Function) -> str:
        """One step of indentation as this function uses it."""
        outer, inner = self.indent(function), self.indent(function.body[0])
        if (
            len(inner) > len(outer)
            and inner.startswith(outer)
            and self.starts_line(function.body[0])
        ):
            return inner[len(outer) :]
        return "    "

    def string_lines(self, line: int) -> frozenset[int]:
        """Lines that begin inside a string literal, in the statement or method around a line.

        Their white space is data.
        """
        around = self._statement_lines(line)
        if around not in self._strings:
            self._strings[around] = frozenset(self._string_lines(*around))
        return self._strings[around]

    def _statement_lines(self, line: int) -> tuple[int, int]:
        """The first and last line of the statement around a line, at the top or in a class."""
        body = self.module.tree.body
        around: tuple[int, int] = line, line
        while body:
            at = bisect_right(body, line, key=first_line) - 1
            while at > 0 and _reaches(body[at - 1], line):  # the first of those that share a line
                at -= 1
            if at < 0 or not _reaches(statement := body[at], line):
                return around
            around = _lines(statement)
            body = statement.body if isinstance(statement, ast.ClassDef) else []
        return around

    def _string_lines(self, first: int, last: int) -> Iterator[int]:
        starts = self.source.line_starts
        end = starts[last] if last < len(starts) else len(self.source.text)
        text = self.source.text[starts[first - 1] : end]
        # Reading tokens is slow, and without one of these a string ends on the line it begins on.
        if not _SPANS_LINES.search(text):
            return
        opened: list[int] = []
        for token in tokenize.generate_tokens(io.StringIO(text, newline=None).readline):
            name = tokenize.tok_name[token.type]
            if name == "STRING":
                yield from range(first + token.start[0], first + token.end[0])
            elif name.endswith("STRING_START"):
                opened.append(token.start[0])
            elif name.endswith("STRING_END") and opened:
                yield from range(first + opened.pop(), first + token.end[0])

    def indent_lines(self, start: int, end: int, unit: str) -> list[Edit]:
        """Edits that indent the lines that start in a range; string contents stay as they are."""
        first, _ = self.source.position(start)
        edits: list[Edit] = []
        for number in range(first, len(self.source.line_starts) + 1):
            at = self.source.line_starts[number - 1]
            if at >= end:
                break
            if (
                at < start
                or number in self.string_lines(number)
                or not self.source.line_text(number).strip()
            ):
                continue
            edits.append(Edit(at, at, unit))
        return edits

    def has_comment(self, start: int, end: int) -> bool:
        """Whether a comment stands in a range of the source."""
        return "#" in self.source.text[start:end] and any(start <= at < end for at in self.comments)

    @cached_property
    def comments(self) -> tuple[int, ...]:
        """Offsets of all comments."""
        text = io.StringIO(self.source.text, newline=None)
        found: list[int] = []
        for token in tokenize.generate_tokens(text.readline):
            if token.type == tokenize.COMMENT:
                found.append(self.source.line_starts[token.start[0] - 1] + token.start[1])
        return tuple(found)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """The first and last line of a statement, decorators included."""
    return first_line(statement), statement.end_lineno or statement.lineno


def _reaches(statement: ast.stmt, line: int) -> bool:
    first, last = _lines(statement)
    return first <= line <= last
