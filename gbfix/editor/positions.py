"""Places as the Language Server Protocol counts them: lines from 0, columns in code units.

The units are those of UTF-16 unless an editor and a server agree on others. Knows text and offsets,
nothing of findings.
"""

from __future__ import annotations

from dataclasses import dataclass

from gbfix.source.text import SourceFile

UTF_16 = "utf-16"
_WIDTH = {"utf-8": 1, UTF_16: 2, "utf-32": 4}
_CODEC = {"utf-8": "utf-8", UTF_16: "utf-16-le", "utf-32": "utf-32-le"}


@dataclass(frozen=True)
class Position:
    """A place in a document, both numbers from 0, the character in code units."""

    line: int
    character: int


@dataclass(frozen=True)
class Range:
    """A range of a document; its end is not part of it."""

    start: Position
    end: Position


def units(text: str, encoding: str = UTF_16) -> int:
    """The length of a text in code units of `utf-8`, `utf-16` or `utf-32`."""
    if text.isascii() or encoding == "utf-32":
        return len(text)
    return len(text.encode(_CODEC[encoding], "surrogatepass")) // _WIDTH[encoding]


def position_of(source: SourceFile, offset: int, encoding: str = UTF_16) -> Position:
    """The place of a character offset."""
    line, column = source.position(offset)
    start = source.line_starts[line - 1]
    return Position(line - 1, units(source.text[start : start + column - 1], encoding))


def range_of(source: SourceFile, start: int, end: int, encoding: str = UTF_16) -> Range:
    """The range between two character offsets."""
    return Range(position_of(source, start, encoding), position_of(source, end, encoding))


def offset_of(source: SourceFile, position: Position, encoding: str = UTF_16) -> int:
    """The character offset of a place; past the end of its line, the end of the line.

    A place between the code units of one character counts as before it.
    """
    if position.line >= len(source.line_starts):
        return len(source.text)
    start = source.line_starts[position.line]
    text = source.line_text(position.line + 1)
    taken = 0
    for index, char in enumerate(text):
        taken += units(char, encoding)
        if taken > position.character:
            return start + index
    return start + len(text)
