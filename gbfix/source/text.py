"""A Python file as text that can be edited by offset without touching any other byte.

Decoding follows PEP 263 (byte order mark, coding line, else UTF-8) and keeps newlines as they are,
so that encoding an unedited text gives back the same bytes. Positions come from the `ast` module:
lines count from 1 and columns are UTF-8 byte offsets within the line. The module may not know what
the text means.
"""

from __future__ import annotations

import codecs
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

_LINE_END = re.compile(r"\r\n|\r|\n")
_FIRST_TWO_LINES = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)?[^\r\n]*")
_BARE_LINE_FEED = re.compile(r"(?<!\r)\n")


def _head(body: bytes) -> Iterator[bytes]:
    """The lines that may hold a coding line, split at carriage returns too as Python does."""
    match = _FIRST_TWO_LINES.match(body)
    return iter(match[0].splitlines(keepends=True) if match else [])


class SourceError(Exception):
    """A file that cannot be used, with one clear sentence for the user."""


@dataclass(frozen=True)
class Edit:
    """Replace `text[start:end]` (character offsets) by `text`; equal offsets insert."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class SourceFile:
    """A decoded file. `text` has the file's own newlines and no byte order mark."""

    path: Path
    text: str
    encoding: str = "utf-8"
    bom: bool = False

    @classmethod
    def decode(cls, path: Path, raw: bytes) -> SourceFile:
        """Decode raw bytes.

        Raises:
            SourceError: if the bytes do not fit the declared encoding or it is unknown.
        """
        bom = raw.startswith(codecs.BOM_UTF8)
        body = raw[len(codecs.BOM_UTF8) :] if bom else raw
        try:
            encoding, _ = tokenize.detect_encoding(_head(body).__next__)
            text = body.decode(encoding)
            # Some codecs are not one to one, and then unedited text would change its bytes.
            exact = encoding == "utf-8" or text.encode(encoding) == body
        except (SyntaxError, LookupError, UnicodeError) as error:
            raise SourceError(f"{path}: cannot be decoded: {error}") from None
        if not exact:
            raise SourceError(f"{path}: cannot be decoded without loss as {encoding}")
        return cls(path, text, encoding, bom)

    def encode(self, text: str) -> bytes:
        """Encode a text in this file's encoding, with its byte order mark if it had one.

        Raises:
            SourceError: if the encoding has no bytes for a character of the text.
        """
        try:
            body = text.encode(self.encoding)
        except UnicodeError as error:
            raise SourceError(f"{self.path}: cannot be encoded: {error}") from None
        return (codecs.BOM_UTF8 if self.bom else b"") + body

    @cached_property
    def newline(self) -> str:
        """The newline most used in this file; a line feed where there is none."""
        found = _LINE_END.findall(self.text)
        return max(("\n", "\r\n", "\r"), key=found.count) if found else "\n"

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """Character offset of the start of each line."""
        if "\r" in self.text:
            return (0, *(match.end() for match in _LINE_END.finditer(self.text)))
        lengths = [len(line) + 1 for line in self.text.split("\n")]
        lengths.pop()
        return tuple(accumulate(lengths, initial=0))

    def line_text(self, line: int) -> str:
        """The text of a line (from 1) without its newline."""
        start = self.line_starts[line - 1]
        match = _LINE_END.search(self.text, start)
        return self.text[start : match.start() if match else len(self.text)]

    def lines_text(self, first: int, last: int) -> str:
        """The text from one line (from 1) to another, both included."""
        starts = self.line_starts
        return self.text[starts[first - 1] : starts[last] if last < len(starts) else None]

    def offset(self, line: int, column: int) -> int:
        """Character offset of an `ast` position: line from 1, column in UTF-8 bytes from 0."""
        start = self.line_starts[line - 1]
        text = self.line_text(line)
        if text.isascii():
            return start + column
        return start + len(text.encode("utf-8")[:column].decode("utf-8", "ignore"))

    def position(self, offset: int) -> tuple[int, int]:
        """Line (from 1) and column in characters (from 1) of an offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def with_own_newlines(self, text: str) -> str:
        """A new text with this file's own newlines in place of bare line feeds."""
        return _BARE_LINE_FEED.sub(self.newline, text)

    def apply(self, edits: Iterable[Edit]) -> str:
        """The text after non-overlapping edits; new newlines become the file's own.

        Raises:
            ValueError: if two edits overlap.
        """
        pieces: list[str] = []
        at = 0
        for edit in sorted(edits, key=lambda e: (e.start, e.end)):
            if edit.start < at:
                raise ValueError("edits overlap")
            pieces += [self.text[at : edit.start], self.with_own_newlines(edit.text)]
            at = edit.end
        pieces.append(self.text[at:])
        return "".join(pieces)


def offset_before(edits: Iterable[Edit], offset: int) -> int:
    """Where an offset of an edited text was before the edits; within new text, where that begins."""
    shift = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        start = edit.start + shift
        if offset < start:
            break
        if offset < start + len(edit.text):
            return edit.start
        shift += len(edit.text) - (edit.end - edit.start)
    return offset - shift
