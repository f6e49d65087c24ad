"""Places as the Language Server Protocol counts them: lines from 0, columns in UTF-16 code units.

Knows text and offsets, nothing of findings.
"""

from __future__ import annotations

from dataclasses import dataclass

from gbfix.source.text import SourceFile


@dataclass(frozen=True)
class Position:
    """A place in a document, both numbers from 0, the character in UTF-16 code units."""

    line: int
    character: int


@dataclass(frozen=True)
class Range:
    """A range of a document; its end is not part of it."""

    start: Position
    end: Position


def utf16_length(text: str) -> int:
    """The length of a text in UTF-16 code units: two for a character outside the basic plane."""
    return len(text) + sum(ord(char) > 0xFFFF for char in text)


def position_of(source: SourceFile, offset: int) -> Position:
    """The place of a character offset."""
    line, column = source.position(offset)
    start = source.line_starts[line - 1]
    return Position(line - 1, utf16_length(source.text[start : start + column - 1]))


def range_of(source: SourceFile, start: int, end: int) -> Range:
    """The range between two character offsets."""
    return Range(position_of(source, start), position_of(source, end))


def offset_of(source: SourceFile, position: Position) -> int:
    """The character offset of a place; past the end of its line, the end of the line.

    A place between the two code units of one character counts as before it.
    """
    if position.line >= len(source.line_starts):
        return len(source.text)
    start = source.line_starts[position.line]
    units = 0
    text = source.line_text(position.line + 1)
    for index, char in enumerate(text):
        width = 2 if ord(char) > 0xFFFF else 1
        if units + width > position.character:
            return start + index
        units += width
    return start + len(text)
