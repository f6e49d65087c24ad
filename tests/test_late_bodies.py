"""A tree whose functions get their bodies late is the tree that `ast.parse` makes."""

from __future__ import annotations

import ast
import gc
import textwrap
import weakref
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gbfix
from gbfix.analysis import late_bodies
from gbfix.analysis.late_bodies import body_text, complete, nested, parse_late

LONG = "    total = 0\n" * 30


def waiting(tree: ast.Module) -> int:
    """How many functions of a tree have no body yet."""
    return sum(
        body_text(node) is not None
        for node in late_bodies._functions(tree.body)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


def dumped(tree: ast.AST) -> str:
    return ast.dump(tree, include_attributes=True)


def same(text: str) -> int:
    """Compare both trees, and say how many bodies were left out."""
    left_out = waiting(late := parse_late(text, "file.py"))
    completed = parse_late(text, "file.py")
    complete(completed, text, "file.py")
    assert waiting(completed) == 0
    assert dumped(late) == dumped(completed) == dumped(ast.parse(text))
    return left_out


@pytest.mark.parametrize(
    "text",
    [
        f"def f(x):\n{LONG}",
        f"async def f(x):\n{LONG}",
        f"class A:\n    @property\n    def f(self) -> int:  # why\n{textwrap.indent(LONG, '    ')}",
        f"def f(\n    x,\n    y=(1,\n    2),\n) -> int:\n{LONG}\n# not in it\nz = 1\n",
        f"if f:\n    def f(x):\n{textwrap.indent(LONG, '    ')}",
        f'x = """\ndef g():\n"""\n\ndef f():\n    """One.\n\ndef h():\n    """\n{LONG}',
        f"def f():\n{LONG}    return '''\n# no comment\n'''  # a comment with ''' in it\n",
        f"def f():\n{LONG}    def g():\n        pass\n    return g\n",
        f"def f():\n{LONG}    return 'é' # ü\n",
        f"def g(): return 1\ndef f():\n{LONG}",
    ],
)
def test_bodies_are_left_out_and_come_back(text: str) -> None:
    assert same("import torch\n" + text) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"def f():\n{LONG}    x = 1 + \\\n2\n",
        f"def f():\n{LONG}    x = 1 \\\n    # goes on\n",
        f"def f():\n{LONG}    x = (1,\n2)\n    return x\n",
        f"class A:\n    def f(self):\n{textwrap.indent(LONG, '    ')}        x = 1;\n",
        f"def f():\n\tpass\n\ndef g():\n{LONG}",
        f"def f(): return (1,\n 2)\n{LONG.replace('    ', '')}",
    ],
)
def test_a_text_that_is_not_surely_cut_at_the_right_places_is_parsed_as_a_whole(text: str) -> None:
    assert same(text) == 0


def test_only_the_body_that_is_asked_for_is_parsed() -> None:
    tree = parse_late(f"x = 1\ndef f():\n{LONG}\ndef g():\n{LONG}", "file.py")
    assert waiting(tree) == 2
    f = tree.body[1]
    assert isinstance(f, ast.FunctionDef)
    assert (f.name, f.lineno, f.end_lineno, nested(f)) == ("f", 2, 32, ())
    assert waiting(tree) == 2
    assert len(f.body) == 30 and type(f) is ast.FunctionDef
    assert waiting(tree) == 1


@pytest.mark.parametrize("let_go", [False, True])
def test_a_tree_that_was_let_go_goes_without_a_collection(let_go: bool) -> None:
    gc.disable()
    try:
        tree = parse_late(f"x = 1\ndef f():\n{LONG}", "file.py")
        function = weakref.ref(tree.body[1])
        if let_go:
            late_bodies.let_go(tree)
        del tree
        assert (function() is None) is let_go
    finally:
        gc.enable()


def test_what_is_wrong_in_a_body_is_told_when_the_tree_is_completed() -> None:
    text = f"x = 1\ndef f():\n{LONG}    return return\n\ndef g():\n{LONG}"
    tree = parse_late(text, "file.py")
    f = tree.body[1]
    assert isinstance(f, ast.FunctionDef)
    assert [type(s) for s in f.body] == [ast.Expr]
    with pytest.raises(SyntaxError) as raised:
        complete(tree, text, "file.py")
    assert raised.value.lineno == 33


def test_real_files() -> None:
    own = (Path(gbfix.__file__).parent / "analysis").rglob("*.py")
    of_torch = (Path(torch.__file__).parent / "nn" / "modules").rglob("*.py")
    left_out = sum(same(path.read_text(encoding="utf-8")) for path in [*own, *of_torch])
    assert left_out > 500


# Lines after the first stand where they are, or where the block does if they begin with a bar.
SIMPLE = st.sampled_from(
    [
        "return x  # it's",
        "x = 1;",
        'x = """\n\ndef f(x):\n    # none\n"""',
        "x = '''\n'''; y = '# no comment'",
        '"""doc\\""""',
        "x = (1 +\n2\n)",
        "x = 1 + \\\n2",
        "y = f'{x}: {y!r:>{z}}'",
        "pass\n\n",
        "x = [\n# def f():\n]",
        "# def f():\n|pass",
        "pass\n|# later",
        "z = 'é'; zz = \"'\"",
        "def one(): return 1",
        "x = lambda: 0",
    ]
)
HEADERS = st.sampled_from(
    [
        "def f(x):",
        "async def g(a, b=')'):  # the :",
        "def h(\n|    x, y='#',\n|) -> int:",
        "@property\n|def i(\n|    self):",
        "def j(x: {1: 2} = {\n|    1:\n|    2}):",
        "class A:",
        "if x:",
        "with x as y:",
        "for x in (1,\n2):",
    ]
)


def _lines(statement: str) -> list[str]:
    first, *rest = statement.split("\n")
    return [f"|{first}", *rest]


def _compound(header: str, blocks: list[list[str]]) -> list[str]:
    inside = [line.replace("|", "|    ", 1) for block in blocks for line in block]
    return [*_lines(header), *inside]


STATEMENTS = st.recursive(
    SIMPLE.map(_lines),
    lambda inner: st.builds(_compound, HEADERS, st.lists(inner, min_size=1, max_size=4)),
    max_leaves=12,
)


@given(st.lists(STATEMENTS, min_size=1, max_size=6))
def test_any_blocks(statements: list[list[str]]) -> None:
    text = "\n".join(line.removeprefix("|") for block in statements for line in block) + "\n"
    ast.parse(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late_bodies, "_SHORT", 0)
        same(text)
