"""Trees whose functions are parsed late are those that `ast.parse` makes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbfix.analysis import late_bodies
from gbfix.analysis.trees import blocks

_HERE = Path(__file__).parent
_FILES = [*_HERE.glob("*.py"), *(_HERE.parent / "gbfix" / "analysis").glob("*.py")]


@pytest.fixture(autouse=True)
def _short_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_bodies, "_WORTH", 0)


def waiting(tree: ast.AST) -> list[str]:
    """The names of the functions whose bodies are not parsed yet."""
    found: list[str] = []
    todo = [tree]
    while todo:
        node = todo.pop()
        if "late" in node.__dict__:
            found.append(str(node.__dict__["name"]))
        else:
            todo += [below for block in blocks(node) for below in block]
    return sorted(found)


def dumped(tree: ast.Module) -> str:
    """A tree with all places, but for the columns at which statements with blocks end."""
    for node in ast.walk(tree):
        if getattr(node, "body", None) and isinstance(node, (ast.stmt, ast.ExceptHandler)):
            node.end_col_offset = 0
    return ast.dump(tree, include_attributes=True)


def assert_same(text: str) -> None:
    assert dumped(late_bodies.parse(text, "m.py")) == dumped(ast.parse(text))


def test_this_project() -> None:
    for path in _FILES:
        assert_same(path.read_text(encoding="utf-8"))


TEXT = '''
import torch

class Block:
    """What it does.

    Example:

        def forward(self, x):
            return x
    """

    def __init__(self, width: int,
                 bias: bool = True):  # of the layer
        self.width = width
        # it's all

    async def fetch(
        self,
        x,
    ) -> None:

        # first
        await x

    def __len__(self): return 3

    def inner(self):
        class Held:
            def held(self):
                return 1
        return Held
if torch:
    def given(x):
        return """
no indent
"""
'''


def test_bodies_are_parsed_when_they_are_asked_for() -> None:
    tree = late_bodies.parse(TEXT, "m.py")
    block = tree.body[1]
    assert isinstance(block, ast.ClassDef)
    assert waiting(tree) == ["__init__", "fetch", "inner"]
    init = block.body[1]
    assert isinstance(init, ast.FunctionDef)
    assert late_bodies.defines_nothing(init)
    assert not late_bodies.defines_nothing(block.body[-1])
    assert ast.unparse(init.body[0]) == "self.width = width"
    assert type(init) is ast.FunctionDef
    assert waiting(tree) == ["fetch", "inner"]
    assert_same(TEXT)


@pytest.mark.parametrize(
    "body",
    [
        "    return 1  # \\\n",
        "    x = 1 + \\\n2\n    return x\n",
        "    x = 1 + \\\n2\n",
        "    x = [\n1, 2]\n    return x\n",
        "    x = '''\n# no comment'''\n",
        "    x = 'a\\\n# b'\n",
        '    x = "\'\'\'"\n    y = """\nz\n"""\n',
        "\treturn 1\n",
        "    return {\n        1:\n    2}\n",
        "    pass; pass\n    # the end\n# really\n",
        "    def g():\n        yield\n    return g",
        "    nonlocal_ = await_ = 0\n    yield from [x async for x in y]\n",
    ],
)
@pytest.mark.parametrize("head", ["def f(x):\n", "async def f(\n    x={1:\n    2}):\n"])
def test_what_lines_do_not_show(head: str, body: str) -> None:
    assert_same(f"import a\n{head}{body}")
    assert_same(f"import a\n{head}{body}\n\ndef h():\n    return 1\n")
    assert_same(f"import a\n{head}{body}\n\n\nclass C:\n    def h(self):\n        '''A.\n'''\n")


_SIMPLE = [
    "pass",
    "pass  # it's",
    "return 1; pass",
    "x = (1,\n2)",
    "x = 1 + \\\n2",
    "def g(): return 1",
    "'''a\ndef f(x):\n    pass\n'''",
    '"""a\n        def f(x):\n            """',
    '"""a\n# b"""',
    "x = '\\\n# c'",
    'x = \'"""\'',
    "# '''",
]
_HEADS = ["def f(a):", "async def f(\n    a={1:\n2}\n) -> int:  # it's:", "class C:", "if 1:"]


def _indented(lines: list[str], comment: str) -> list[str]:
    """A block, with a comment after it that may be indented less."""
    return [*(f"    {line}" for line in [*lines, "pass"]), *([comment] if comment else [])]


def _block(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    comments = st.sampled_from(["", "# d", "            # it's", "    # '''"])
    nested = st.tuples(st.sampled_from(_HEADS), inner, comments).map(
        lambda made: [made[0], *_indented(made[1], made[2])]
    )
    parts = st.lists(
        st.one_of(st.sampled_from(_SIMPLE).map(lambda line: [line]), nested), max_size=4
    )
    return parts.map(lambda found: [line for part in found for line in part])


@given(st.recursive(st.just(["pass"]), _block, max_leaves=12))
def test_any_block(lines: list[str]) -> None:
    text = "import a\n" + "\n".join(lines) + "\n"
    ast.parse(text)
    assert_same(text)
