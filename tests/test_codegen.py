"""What is written without libcst is what libcst writes."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gbfix.analysis.module_files import parse_module
from gbfix.analysis.trees import walk
from gbfix.codegen.blocks import Changes, copied_by_tree, copy_statements
from gbfix.codegen.expressions import by_tree
from gbfix.codegen.joining import joined
from gbfix.codegen.validity import check_names, parse_edited
from gbfix.codegen.view import View
from gbfix.source.text import Edit, SourceFile

ROOT = Path(__file__).parent.parent
FIXTURES = sorted((ROOT / "fixtures").glob("*/before.py"))
SOURCES = sorted((ROOT / "gbfix").rglob("*.py"))


def views(paths: list[Path]) -> Iterator[View]:
    for path in paths:
        yield View(parse_module(SourceFile.decode(path, path.read_bytes())))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("f(\n    a,  # first\n    b,\n)", "f(a, b)"),
        ("[\n    1,\n    2,\n]", "[1, 2]"),
        ("(\n    a\n    + b\n)", "(a + b)"),
        ("x[\n    :, -1, :\n]", "x[:, -1, :]"),
        ("a and not (\n    b or c\n)", "a and not (b or c)"),
        ("f(\n    'a'\n    \"b\",\n    k=[ 1 ],\n)", "f('a' \"b\", k=[1])"),
        ("a.b(\n).c(x ,\n  y ,\n)", "a.b().c(x , y)"),
        ("f(x for x in (\n  1,\n  2,\n))", "f(x for x in (1, 2))"),
        ("{\n  1: 2,\n}", "{ 1: 2, }"),
        ("(\n    a\n    .b(1)[0]\n    .c\n)", "(a.b(1)[0].c)"),
        ("f(\n'''a\n b''', 1)", "f('''a\n b''', 1)"),
    ],
)
def test_an_expression_on_one_line(text: str, line: str) -> None:
    assert joined(text) == by_tree(text) == line


@pytest.mark.parametrize(
    "text", ["(a,\n)", "x[a,\n]", "a + \\\n b", "(a", "a)\n(b", "x[(a, b),\n]"]
)
def test_what_tokens_do_not_tell_is_left_to_the_tree(text: str) -> None:
    assert joined(text) is None


def test_expressions_are_joined_as_by_their_tree() -> None:
    seen: set[str] = set()
    joins = 0
    for view in views([*FIXTURES[::6], *SOURCES[::25]]):
        for node in walk(view.module.tree):
            if not isinstance(node, ast.expr) or node.lineno == node.end_lineno:
                continue
            text = view.text(node)
            if text in seen or len(text) > 400:
                continue
            seen.add(text)
            line = joined(text)
            if line is not None:
                joins += 1
                assert line == by_tree(text), view.source.path
    assert joins > 50


def test_statements_are_copied_as_by_their_tree() -> None:
    copies = 0
    for view in views(FIXTURES[::6]):
        for node in walk(view.module.tree):
            if not isinstance(node, ast.If):
                continue
            names = {
                f"{n.value.id}.{n.attr}": f"local_{n.attr}"
                for n in walk(node)
                if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
            }
            for changes in (Changes(), Changes(names, out_of_place=frozenset("x"))):
                for body in filter(None, (node.body, node.orelse)):
                    copies += 1
                    given = view, body, changes, view.unit(node)
                    assert copy_statements(*given) == copied_by_tree(*given), view.source.path
    assert copies > 50


def test_edits_are_valid_where_the_whole_text_is() -> None:
    chance = random.Random(1)
    pieces = ("", "\n", "x", " ", "    y = 1\n", "z = 2\n", "\\\n", '"""', "(", "else:\n", "# c")
    verdicts: list[bool] = []
    for view in views(FIXTURES[::12]):
        text = view.source.text
        places = [*range(len(text) + 1), *view.source.line_starts * 40]
        for _ in range(40):
            start = chance.choice(places)
            end = min(len(text), start + chance.choice((0, 0, 0, 1, 8, 60)))
            edits = [Edit(start, end, chance.choice(pieces))]
            try:
                ast.parse(view.source.apply(edits))
                expected = None
            except (SyntaxError, ValueError) as error:
                expected = str(error)
            try:
                parse_edited(view, edits)
                found = None
            except (SyntaxError, ValueError) as error:
                found = str(error)
            assert found == expected, (view.source.path, edits)
            verdicts.append(expected is None)
    assert 100 < sum(verdicts) < len(verdicts) - 100


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ("    return scale(x)", "    return helper(x)", None),
        ("    return scale(x)", "    return missing(x)", "missing"),
        ("    return scale(x)", "    return torch.relu(x)", None),
        ("    return scale(x)", "    return sorted(x)", None),
        ("    def scale(y):", "    def other(y):", "scale"),
        (
            "def f(x: Elsewhere):",
            "def moved(x):\n    return scale(x)\n\n\ndef f(x: Elsewhere):",
            "scale",
        ),
        (
            "def f(x: Elsewhere):",
            "def moved(x, scale):\n    return scale(x)\n\n\ndef f(x: Elsewhere):",
            None,
        ),
        ("def f(x: Elsewhere):", "limit = 3\n\n\ndef f(x: Elsewhere):\n    assert x < limit", None),
        ("    return starred", "    return starred + 1", None),
    ],
)
def test_edits_name_what_is_there(old: str, new: str, lost: str | None) -> None:
    text = (
        "from __future__ import annotations\nfrom math import *\n\n\ndef helper(x):\n    return x\n\n\n"
        "def f(x: Elsewhere):\n    def scale(y):\n        return y * 2\n\n    return scale(x)\n\n\n"
        "def g():\n    return starred\n"
    )
    view = View(parse_module(SourceFile.decode(Path("m.py"), text.encode())))
    start = text.index(old)
    edits = [Edit(start, start + len(old), new)]
    if lost is None:
        check_names(view, edits, imported=("torch",))
    else:
        with pytest.raises(ValueError, match=f"`{lost}` would not be defined"):
            check_names(view, edits, imported=("torch",))
