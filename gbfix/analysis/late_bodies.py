"""Parses a file without the bodies of its functions; each is parsed when somebody looks into it.

Of a file that others look into, hardly anything is read but what it defines. Its text is parsed with a
name in place of each longer body of a function at the top or of a method; such a function has no body
until it is asked for. Where a text is not surely cut at the right places, all of it is parsed.
Knows how Python is written, nothing of what it means.
"""

from __future__ import annotations

import ast
import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from gbfix.analysis.trees import SIMPLE, blocks

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_SHORT = 200
"""Characters of a body that are parsed as fast as they are left out."""
# Each alternative begins with a character of its own, which makes the search many times faster.
_QUOTED = re.compile(
    r"#[^\n]*"
    r'|"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""|"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
    r"|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''|'[^'\\\n]*(?:\\.[^'\\\n]*)*'",
    re.DOTALL,
)
_STRINGS_NEST = sys.version_info >= (3, 12)
_DEFINITION = re.compile(r"def +\w.*\n")
_BEFORE = re.compile(r"\n( *)(?:async +)?\Z")
_HEADER_END = re.compile(r":[ ]*(?:#.*)?\n")
_INNER = re.compile(r"\b(?:def|class)\b")


class _Cut(NamedTuple):
    """A body that is left out: the line of its `def`, and offsets.

    `start` is where that line begins, `body` where the first line of the body does, `end` where its
    last statement ends.
    """

    line: int
    start: int
    body: int
    end: int
    indent: int


class _Left(NamedTuple):
    """What a function without its body needs to get it."""

    cut: _Cut
    text: str
    waiting: dict[int, _Function]


class _UncertainError(Exception):
    """A text is not surely cut at the right places."""


def parse_late(text: str, name: str) -> ast.Module:
    """The tree of a text, in which functions get their bodies when they are asked for.

    Raises:
        SyntaxError, ValueError: if the text is not Python; an error inside of a body is not noticed.
        RecursionError, MemoryError: if it is nested too deeply.
    """
    try:
        cuts = {cut.line: cut for cut in _cuts(text)}
        tree = ast.parse(_without(text, cuts.values()), name)
    except (_UncertainError, SyntaxError):
        return ast.parse(text, name)
    waiting = {f.lineno: f for f in _functions(tree.body) if f.lineno in cuts}
    if len(waiting) != len(cuts):
        return ast.parse(text, name)
    for line, function in waiting.items():
        function.__dict__["left"] = _Left(cuts[line], text, waiting)
        del function.body
        function.__class__ = _LATE[type(function)]
    tree.__dict__["waiting"] = waiting
    return tree


def complete(tree: ast.Module, text: str, name: str) -> None:
    """Give all functions of a tree their bodies.

    Raises:
        SyntaxError, ValueError: if the text is not Python.
        RecursionError, MemoryError: if it is nested too deeply.
    """
    waiting: dict[int, _Function] = tree.__dict__.get("waiting", {})
    if not waiting:
        return
    for found in _functions(ast.parse(text, name).body):
        function = waiting.pop(found.lineno, None)
        if function is not None:
            _fill(function, found)


def let_go(tree: ast.Module) -> None:
    """Undo what ties a tree to itself, so that it goes when nobody holds it, without a collection."""
    tree.__dict__.get("waiting", {}).clear()


def nested(function: _Function) -> Sequence[ast.stmt]:
    """The body of a function, or nothing of one that surely defines no function and no class."""
    text = body_text(function)
    return function.body if text is None or _INNER.search(text) else ()


def body_text(function: _Function) -> str | None:
    """The text of a body that is not parsed yet; None of one that is."""
    left: _Left | None = function.__dict__.get("left")
    return left.text[left.cut.body : left.cut.end] if left is not None else None


class _Strings:
    """The strings of a text that go over several lines."""

    def __init__(self, text: str) -> None:
        self._spans = list(_long_strings(text))
        self._starts = [start for start, _ in self._spans]

    def end_around(self, at: int) -> int | None:
        """Where the string ends that an offset stands in; None outside of them."""
        before = bisect_left(self._starts, at) - 1
        end = self._spans[before][1] if before >= 0 else at
        return end if at < end else None


def _long_strings(text: str) -> Iterator[tuple[int, int]]:
    for found in _QUOTED.finditer(text):
        string = found[0]
        if _STRINGS_NEST and text[found.start() - 1 : found.start()] in tuple("fFrR"):
            if string.count("{") != string.count("}"):
                raise _UncertainError  # it goes on behind a string that stands in it
        if "\n" in string:
            yield found.span()


def _cuts(text: str) -> Iterator[_Cut]:
    """The bodies to leave out, in order."""
    if "\t" in text or "\f" in text or "\r" in text:
        raise _UncertainError
    strings = _Strings(text)
    line, counted, at = 1, 0, 0
    while (found := _DEFINITION.search(text, at)) is not None:
        before = _BEFORE.search(text, text.rfind("\n", 0, found.start()), found.start())
        at = found.end()
        if before is None or strings.end_around(before.start() + 1) is not None:
            continue
        start, indent = before.start() + 1, len(before[1])
        body = _body(text, found, indent, strings)
        if body is None:
            continue
        at = _dedented(text, body, indent, strings)
        end = _end(text, body, at, strings)
        if text[at - 2 : at - 1] == "\\" or text[end - 1 : end] in ("\\", ";"):
            raise _UncertainError  # the next line, or the end of the block, may be anywhere
        if end - body > _SHORT:
            line += text.count("\n", counted, start)
            counted = start
            yield _Cut(line, start, body, end, indent)


def _body(text: str, definition: re.Match[str], indent: int, strings: _Strings) -> int | None:
    """Where the first line of a body begins; None for one on the line of its `def`."""
    found = _HEADER_END.search(text, definition.start())
    if found is None:
        return None
    last = text.rfind("\n", 0, found.start()) + 1
    if last > definition.start():
        block = _dedented(text, definition.end(), indent, strings)
        if block < last or (block == last and text[last : found.start()].lstrip()[:1] != ")"):
            return None
    return found.end()


@lru_cache(maxsize=64)
def _up_to(indent: int) -> re.Pattern[str]:
    return re.compile(rf"\n {{0,{indent}}}[^ \n#]")


def _dedented(text: str, at: int, indent: int, strings: _Strings) -> int:
    """Where the first line after an offset begins that stands no further in than a definition."""
    for found in _up_to(indent).finditer(text, at - 1):
        if strings.end_around(found.start() + 1) is None:
            return found.start() + 1
    return len(text)


def _end(text: str, body: int, block_end: int, strings: _Strings) -> int:
    """Where the last statement of a block ends."""
    end = block_end
    while end > body:
        first = text.rfind("\n", body, end - 1) + 1 or body
        string_end = strings.end_around(first)
        line = text[first:end].strip()
        if line and (line[0] != "#" or string_end is not None):
            if "#" in line:
                for found in _QUOTED.finditer(text, string_end or first, end):
                    if found[0][0] == "#":
                        end = found.start()
            return first + len(text[first:end].rstrip(" \n"))
        end = first
    return body


def _without(text: str, cuts: Iterable[_Cut]) -> str:
    """The text with a name in place of each body, which ends where the body does."""
    pieces: list[str] = []
    at = 0
    for cut in cuts:
        lines = text.count("\n", cut.body, cut.end)
        last = text.rfind("\n", cut.body, cut.end) + 1 or cut.body
        indent = cut.indent + 1
        name = "_" * (len(text[last : cut.end].encode("utf-8", "surrogatepass")) - indent)
        pieces += (text[at : cut.body], "\n" * lines, " " * indent, name)
        at = cut.end
    return "".join((*pieces, text[at:]))


def _functions(body: Iterable[ast.AST]) -> Iterator[_Function]:
    """The functions of a tree that stand in no other."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
        elif node.__class__ not in SIMPLE:
            for block in blocks(node):
                yield from _functions(block)


def _fill(function: _Function, whole: _Function) -> None:
    function.__class__ = type(function).__mro__[1]
    del function.__dict__["left"]
    function.body = whole.body


def _whole(cut: _Cut, text: str, body: str) -> _Function:
    """A function with a body in place of the one that was left out, at its place in the file.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: if it cannot be parsed as one function.
    """
    above = "\n" * (cut.line - 2) + "if 1:\n" if cut.indent else "\n" * (cut.line - 1)
    found: Any = ast.parse(above + text[cut.start : cut.body] + body).body
    if cut.indent:
        (found,) = (block.body for block in found)
    (function,) = found
    return cast(_Function, function)


def _parse_body(function: _Function) -> None:
    cut, text, waiting = function.__dict__["left"]
    if waiting.get(cut.line) is function:
        del waiting[cut.line]
    try:
        _fill(function, _whole(cut, text, text[cut.body : cut.end]))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Nothing can be found in it, as in a file that is not Python.
        _fill(function, _whole(cut, text, " " * (cut.indent + 1) + "_"))


def _asked(function: _Function, name: str) -> Any:
    """Called for what a function without its body does not have."""
    if name != "body" or "left" not in function.__dict__:
        raise AttributeError(name)
    _parse_body(function)
    return function.body


# Visitors go by their names.
_LATE: dict[type[ast.AST], type[Any]] = {
    kind: type(kind.__name__, (kind,), {"__slots__": (), "__getattr__": _asked})
    for kind in (ast.FunctionDef, ast.AsyncFunctionDef)
}


__all__ = ["body_text", "complete", "let_go", "nested", "parse_late"]
