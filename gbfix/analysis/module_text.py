"""What the text of a file shows of it without being parsed, which is more than what is there.

What stands in comments and strings counts as well. Most files need not be parsed to know that they
call or derive nothing of a name.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right

from gbfix.source.text import SourceFile

_DEFINED = re.compile(r"def(?:\s|\\)+(\w+)")
_CLASS = re.compile(r"class(?:\s|\\)+(\w+)\s*(?:\(([^)]*)\))?")
_NAME = re.compile(r"\w+")
_CALLED_ATTRIBUTE = re.compile(r"\.\s*(\w+)\s*\(")


def called_attributes(text: str) -> frozenset[str]:
    """The names of attributes that seem to be called."""
    return frozenset(map(sys.intern, _CALLED_ATTRIBUTE.findall(text)))


def classes(text: str) -> dict[str, frozenset[str]]:
    """What seem to be classes, with the last names of what they are derived from or stand for."""
    found: dict[str, set[str]] = {}
    for name, bases in _CLASS.findall(text):
        found.setdefault(name, set()).update(_NAME.findall(bases))
    # Faster than a regular expression that begins at each word.
    before, *rest = text.split(" as ")
    for after in rest:
        alias, words = _NAME.match(after), before[-99:].rsplit(None, 1)
        if alias is not None and words:
            found.setdefault(alias[0], set()).update(_NAME.findall(words[-1]))
        before = after
    return {sys.intern(name): frozenset(map(sys.intern, b)) for name, b in found.items()}


def defined(text: str) -> frozenset[str]:
    """The names of what seem to be functions, wherever they are defined."""
    return frozenset(map(sys.intern, _DEFINED.findall(text)))


def has_inner_classes(text: str) -> bool:
    """Whether a class may be defined inside of anything."""
    before, *rest = text.split("class")
    for after in rest:
        line = before.rstrip(" \t\f")
        if line[-1:] in (":", ";") or (line != before and line[-1:] in ("\n", "\r")):
            if not _continues(after[:1]):
                return True
        before = after
    return False


def lines_with(source: SourceFile, pattern: str) -> tuple[int, ...]:
    """The lines of a file on which a pattern is found."""
    text, starts = source.text, source.line_starts
    found: list[int] = []
    for match in re.finditer(pattern, text, re.MULTILINE):
        line = bisect_right(starts, match.start())
        if not found or found[-1] != line:
            found.append(line)
    return tuple(found)


def lines_naming(name: str, source: SourceFile) -> list[int]:
    """The lines of a file on which a name stands."""
    # A regular expression that begins with a boundary takes many times as long.
    text = source.text
    found: list[int] = []
    at = text.find(name)
    if at < 0:
        return found
    starts = source.line_starts
    while at >= 0:
        end = at + len(name)
        if not _continues(text[at - 1 : at]) and not _continues(text[end : end + 1]):
            line = bisect_right(starts, at)
            if not found or found[-1] != line:
                found.append(line)
        at = text.find(name, end)
    return found


def _continues(character: str) -> bool:
    """Whether a character would be part of the name beside it."""
    return character == "_" or character.isalnum()
