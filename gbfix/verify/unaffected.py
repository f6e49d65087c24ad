"""Tells whether what was found for a callable holds for another version of its files.

It does if the versions differ only in functions and classes that it does not use. Works on text, and
counts as used whatever has a name that is used.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace

from gbfix.dynamo.records import Capture
from gbfix.verify.arms import concerned
from gbfix.verify.splicing import around
from gbfix.verify.targets import Side
from gbfix.verify.verdict import Status, Verdict

# With these a name can be used without being there.
_BY_TEXT = re.compile(r"(?<![.\w])(eval|exec|globals|vars)\(|sys\.modules|import_module|__import__")
# What was found to be different is shown with the text that it was found in.
_ALWAYS_ANEW = (Status.DIFFERENT, Status.NO_FEWER_BREAKS)
_Lines = Callable[[int], int]


def carried_over(verdict: Verdict, earlier: Side, now: Side) -> Verdict | None:
    """The verdict on a rewritten side that is another version of one; None if it has to be run.

    Both are held against one original, with the same inputs, if any are given.
    """
    if verdict.status is Status.NOT_RUN and not verdict.evidence.inputs:
        return verdict  # the original could not be called, whatever it is held against
    if verdict.status in _ALWAYS_ANEW or earlier.target != now.target:
        return None
    first, second = dict(earlier.texts), dict(now.texts)
    if first.keys() != second.keys():
        return None
    name = now.target.name.partition(".")[0]
    used, used_now = concerned(first.items(), name), concerned(second.items(), name)
    moves: dict[str, _Lines] = {}
    for path, text in first.items():
        if text != second[path]:
            lines = _moves(text, second[path], used.get(path, []), used_now.get(path, []))
            if lines is None:
                return None
            moves[path] = lines
    evidence = verdict.evidence
    after, static = _moved(evidence.after, moves), _moved(evidence.after_static, moves)
    return replace(verdict, evidence=replace(evidence, after=after, after_static=static))


def _moves(text: str, other: str, used: list[range], used_now: list[range]) -> _Lines | None:
    """Where the lines of a text are in another, in which all that is used is the same; or None."""
    if _BY_TEXT.search(text) or _BY_TEXT.search(other):
        return None
    mine, theirs = ast.parse(text), ast.parse(other)
    if around(mine) != around(theirs):
        return None
    pairs = list(zip(_parts(mine), _parts(theirs), strict=False))
    lines, others = text.split("\n"), other.split("\n")
    for here, there in pairs:
        if lines[here.start - 1 : here.stop - 1] != others[there.start - 1 : there.stop - 1]:
            if any(_meet(here, one) for one in used) or any(_meet(there, one) for one in used_now):
                return None
    return lambda line: next((b[line - a.start] for a, b in pairs if line in a), line)


def _parts(tree: ast.Module) -> list[range]:
    """The lines of each function and class at the top of a file."""
    return [
        range(
            min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]),
            (node.end_lineno or node.lineno) + 1,
        )
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]


def _meet(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


def _moved(capture: Capture | None, moves: dict[str, _Lines]) -> Capture | None:
    if capture is None:
        return None

    def line(file: str, number: int) -> int:
        return moves[file](number) if file in moves else number

    return replace(
        capture,
        breaks=tuple(replace(b, line=line(b.file, b.line)) for b in capture.breaks),
        skips=tuple(replace(s, line=line(s.file, s.line)) for s in capture.skips),
        fragments=tuple(replace(f, line=line(f.file, f.line)) for f in capture.fragments),
    )
