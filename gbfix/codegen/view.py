"""The source of one module seen through its syntax tree: text of nodes, indentation, edits.

Bridges `ast` nodes and character offsets. Text that leaves this module has line feeds only; the
file's own newlines come back when edits are applied. It may not know what the code means.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cached_property

from gbfix.analysis.project import Function, Module
from gbfix.source.text import Edit, SourceFile

Positioned = ast.expr | ast.stmt


class View:
    """Text and places of the nodes of one module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.source: SourceFile = module.source

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

    @cached_property
    def string_lines(self) -> frozenset[int]:
        """Lines that begin inside a string literal: their white space is data."""
        return frozenset(self._string_lines())

    def _string_lines(self) -> Iterator[int]:
        text = io.StringIO(self.source.text, newline=None)
        opened: list[int] = []
        for token in tokenize.generate_tokens(text.readline):
            name = tokenize.tok_name[token.type]
            if name == "STRING":
                yield from range(token.start[0] + 1, token.end[0] + 1)
            elif name.endswith("STRING_START"):
                opened.append(token.start[0])
            elif name.endswith("STRING_END") and opened:
                yield from range(opened.pop() + 1, token.end[0] + 1)

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
                or number in self.string_lines
                or not self.source.line_text(number).strip()
            ):
                continue
            edits.append(Edit(at, at, unit))
        return edits

    def has_comment(self, start: int, end: int) -> bool:
        """Whether a comment stands in a range of the source."""
        return any(start <= at < end for at in self.comments)

    @cached_property
    def comments(self) -> tuple[int, ...]:
        """Offsets of all comments."""
        text = io.StringIO(self.source.text, newline=None)
        found: list[int] = []
        for token in tokenize.generate_tokens(text.readline):
            if token.type == tokenize.COMMENT:
                found.append(self.source.line_starts[token.start[0] - 1] + token.start[1])
        return tuple(found)
