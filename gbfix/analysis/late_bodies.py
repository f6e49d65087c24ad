"""Trees whose functions are parsed when somebody looks into them.

Of a file that is only imported a few functions are of interest, and parsing it is most of what the
look at it costs. So its text is parsed with the bodies of its functions left out, where the lines show
beyond doubt which those are, and whole where they do not. Knows lines, indents and quotes, nothing of
what stands in a body.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from gbfix.analysis.trees import statements

_DEFINITION = re.compile(r"\n( *)(?:async +)?def +\w")
_HEADER_END = re.compile(r":[ ]*(?:#.*)?\n")
_WORTH = 4_000  # characters; a shorter file is parsed as fast whole
_TRIED = 2  # with what is in no string, once it is known


@dataclass(frozen=True)
class _Body:
    """The lines of the body of a function, up to the next one with code.

    Attributes:
        text: those lines.
        indent: of the function.
        start, end: where they begin and end, as offsets.
        first, last: their first line, and their last one with code, from 1.
    """

    text: str
    indent: int
    start: int
    end: int
    first: int
    last: int


def _body_of(node: ast.AST, name: str) -> list[ast.stmt]:
    """The body of a late definition, which becomes a usual one; it has all other attributes."""
    if name != "body":
        raise AttributeError(name)
    # Nobody can have imported a file that is not Python, nor call what it defines.
    body = _parsed(node.__dict__.pop("late")) or [ast.copy_location(ast.Pass(), node)]
    node.__dict__["body"] = body
    node.__class__ = _USUAL[type(node)]
    return body


class _LateFunctionDef(ast.FunctionDef):
    """A function whose body is not parsed yet."""

    __slots__ = ()  # else it could not become a usual one
    __getattr__ = _body_of


class _LateAsyncFunctionDef(ast.AsyncFunctionDef):
    """A coroutine whose body is not parsed yet."""

    __slots__ = ()
    __getattr__ = _body_of


_LATE: dict[type[ast.AST], type[ast.AST]] = {
    ast.FunctionDef: _LateFunctionDef,
    ast.AsyncFunctionDef: _LateAsyncFunctionDef,
}
_USUAL = {late: usual for usual, late in _LATE.items()}


def _parsed(late: _Body) -> list[ast.stmt]:
    above = "\n" * (late.first - 2)
    try:
        (block,) = ast.parse(f"{above}if 1:\n{late.text}").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return cast(ast.If, block).body


def parse(text: str, path: str) -> ast.Module:
    """The tree of a file; bodies of functions are parsed when they are asked for.

    Raises:
        SyntaxError, ValueError: if the text is not Python; perhaps not for what is in a body.
        RecursionError, MemoryError: if it is nested too deeply.
    """
    bodies = _bodies(text) if len(text) >= _WORTH else []
    for _ in range(_TRIED):
        if not bodies:
            break
        try:
            tree = ast.parse(_outline(text, bodies), path)
        except (SyntaxError, ValueError):
            break
        doubtful = _attach(bodies, tree)
        if not doubtful:
            return tree
        bodies = [body for body in bodies if body.last not in doubtful]
    return ast.parse(text, path)


def defines_nothing(function: ast.AST) -> bool:
    """Whether a function is known to define nothing, without its body being parsed."""
    late: _Body | None = function.__dict__.get("late")
    return late is not None and "def " not in late.text and "class " not in late.text


def _bodies(text: str) -> list[_Body]:
    """What seem to be the bodies of functions that are in no other one, where that can be told."""
    found: list[_Body] = []
    if "\t" in text or "\f" in text:
        return found
    at, line, counted = 0, 1, 0
    while definition := _DEFINITION.search(text, at):
        at = definition.end()
        header = _HEADER_END.search(text, at)
        if header is None:
            break
        indent = len(definition[1])
        ending = _ending(indent).search(text, header.end() - 1)
        end = ending.start() + 1 if ending is not None else len(text)
        body = text[header.end() : end]
        code = _without_comments(body)
        if code and not code.endswith("\\") and _closes_its_strings(body):
            line += text.count("\n", counted, header.end())
            counted = header.end()
            last = line + code.count("\n")
            found.append(_Body(body, indent, header.end(), end, line, last))
            at = end - 1
    return found


@lru_cache
def _ending(indent: int) -> re.Pattern[str]:
    """Where a line begins that is indented no more than so much, and has code."""
    return re.compile(rf"\n(?! {{{indent + 1}}}| *(?:#.*)?(?:\n|$))")


def _without_comments(body: str) -> str:
    """A body up to its last line with code; empty if comments cannot be told from code."""
    code = body.rstrip()
    while True:
        before, _, last = code.rpartition("\n")
        if not last.lstrip().startswith("#"):
            return code
        if "'''" in last or '"""' in last or before.endswith("\\"):  # perhaps in a string
            return ""
        code = before.rstrip()


def _closes_its_strings(body: str) -> bool:
    """Whether a string of several lines that begins in a body ends there, and the other way round."""
    one, other = body.count('"""'), body.count("'''")
    return not (one and other) and one % 2 == 0 and other % 2 == 0


def _outline(text: str, bodies: Sequence[_Body]) -> str:
    """A text with a `pass` on the last line of each body."""
    parts: list[str] = []
    at = 0
    for body in bodies:
        before = body.last - body.first
        after = body.text.count("\n") - before
        lines = ("\n" * before, " " * body.indent, " pass", "\n" * after)
        parts += (text[at : body.start], *lines)
        at = body.end
    return "".join((*parts, text[at:]))


def _attach(bodies: Sequence[_Body], outline: ast.Module) -> Collection[int]:
    """Hand their bodies to definitions; returns the last lines of those that are not of one.

    Such as what is defined in a string.
    """
    left: dict[int, _Body] = {body.last: body for body in bodies}
    for node in statements(outline):
        if node.__class__ in _LATE:
            held = node.__dict__
            (first, *_) = held["body"]
            late = left.pop(first.lineno, None) if first.__class__ is ast.Pass else None
            if late is not None:
                del held["body"]
                held["late"] = late
                node.__class__ = _LATE[type(node)]
    return left
