"""What is left out to be fast changes nothing that is found."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gbfix import batch, engine
from gbfix.analysis.compile_text import may_compile
from gbfix.analysis.trees import Parents, children, nodes_on
from gbfix.findings import Finding
from gbfix.lowering import called
from gbfix.settings import Settings
from gbfix.source.text import SourceFile

CASES = sorted(Path(__file__).parent.parent.glob("fixtures/*/before.py"))
FORBIDDEN = frozenset({"cond_lost_store", "check_caught_by_caller"})
HEAD = "import torch\nfrom torch import nn\n"
BASE = (
    HEAD
    + """
class Base(nn.Module):
    def validate(self, x: torch.Tensor):
        if (x < 0).any():
            raise ValueError("negative")
        return x

    def forward(self, x: torch.Tensor):
        return self.validate(x)
"""
)
CATCHING = """
    def forward(self, x: torch.Tensor):
        try:
            return self.validate(x)
        except ValueError:
            return x.abs()
"""
DECODER = (
    HEAD
    + """
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def decode(self, x: torch.Tensor):
        while True:
            step = torch.tanh(self.cell(x[-1:]))
            x = torch.cat([x, step * 0.5])
            if step.max() < 0.1:
                break
        return x

    def forward(self, x: torch.Tensor):
        return self.decode(x)
"""
)


def _reaching(root: ast.AST, lines: list[int]) -> Iterator[ast.AST]:
    """What `nodes_on` is to give, asked of every node."""
    found = [root]
    for node in found:
        first = getattr(node, "lineno", None)
        if first is not None:
            first = min([first, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            if not any(
                first <= line <= (getattr(node, "end_lineno", 0) or first) for line in lines
            ):
                continue
        yield node
        found += children(node)


@pytest.mark.parametrize("case", CASES[::7], ids=lambda path: path.parent.name)
def test_the_nodes_on_some_lines_are_all_that_reach_over_them(case: Path) -> None:
    content = case.read_bytes()
    tree, last = ast.parse(content), len(content.splitlines())
    drawn = random.Random(case.parent.name)
    for count in (1, 2, 5):
        lines = sorted({drawn.randint(1, last) for _ in range(count)})
        assert list(nodes_on(tree, lines)) == list(_reaching(tree, lines))


def test_every_node_is_in_what_tells_parents() -> None:
    tree = ast.parse(DECODER + "a = 1; b = [\n2]\n")
    every = [child for node in ast.walk(tree) for child in children(node)]
    assert all(node in Parents(tree) for node in every)
    assert tree not in Parents(tree) and ast.Name("x") not in Parents(tree)


# Those whose callers forbid a fix are always among them.
@pytest.mark.parametrize(
    "case",
    [c for i, c in enumerate(CASES) if i % 7 == 0 or c.parent.name in FORBIDDEN],
    ids=lambda path: path.parent.name,
)
def test_what_is_offered_at_a_place_is_what_is_found_there(case: Path) -> None:
    file = SourceFile.decode(case, case.read_bytes())
    found = engine.run([file], Settings(), rewrite=False).files
    for finding in found[0].findings if found else ():
        result, _ = engine.propose([file], Settings(), at=(finding.line, None))
        assert _told(finding) in {_told(f) for f in result.files[0].findings}


def _told(finding: Finding) -> object:
    offers = frozenset((o.transform, o.safety) for o in finding.offers)
    return finding.line, finding.column, finding.code, finding.certain, offers


def _check(folder: Path, texts: dict[str, str]) -> list[Finding]:
    files = []
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        files.append(SourceFile.decode(folder / name, text.encode()))
    result = batch.check(files, Settings())
    assert not result.errors
    return [finding for file in result.files for finding in file.findings]


@pytest.mark.parametrize(
    ("others", "caught"),
    [
        ({"top.py": f"{HEAD}class Top(nn.Module):{CATCHING}"}, False),
        ({"top.py": f"{HEAD}from base import Base\nclass Top(Base):{CATCHING}"}, True),
        (
            {
                "middle.py": "import torch\nfrom base import Base as Root\nclass Middle(Root): ...\n",
                "top.py": f"{HEAD}from middle import Middle\nclass Top(Middle):{CATCHING}",
            },
            True,
        ),
        (
            {
                "mixin.py": f"{HEAD}class Mixin(nn.Module):{CATCHING}",
                "top.py": "import torch\nfrom base import Base\nfrom mixin import Mixin\n"
                "class Top(Mixin, Base): ...\n",
            },
            True,
        ),
    ],
    ids=["unrelated", "derived", "renamed", "mixed-in"],
)
def test_who_catches_is_found_through_class_names(
    tmp_path: Path, others: dict[str, str], caught: bool
) -> None:
    found = _check(tmp_path, {"base.py": BASE, **others})
    (finding,) = (f for f in found if f.path.name == "base.py")
    assert any(r.code == "caught-exception" for r in finding.refusals) == caught


@pytest.mark.parametrize(
    "other",
    [
        "def use(d):\n    return d.decode(1)\n",
        "def use(d):\n    return list(map(d.decode, [1]))\n",
        "class Tokens:\n    def decode(self, x):\n        return x\n",
        "# it is not `decode` that does it\n",
    ],
    ids=["called", "handed-on", "defined", "told-of"],
)
def test_files_that_are_not_read_tell_nothing_of_how_a_method_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    texts = {"decoder.py": DECODER, "other.py": f"import torch\n{other}"}
    short = _check(tmp_path, texts)
    monkeypatch.setattr(called, "_may_tell", lambda info, module, reached: True)
    assert short == _check(tmp_path, texts)
    assert any(finding.offers or finding.refusals for finding in short)


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("# as fast as torch.compile makes it\nx = 1\n", False),
        ("x = 1  # no torch.compile here\n", False),
        ("# first\rf = torch.compile(g)\r", True),
        ('x = "#"; f = torch.compile(g)\n', True),
        ('"""\n# """; f = torch.compile(g)\n', True),
        ("f = torch.compile(g)  # fast\n", True),
    ],
)
def test_comments_compile_nothing(text: str, may: bool) -> None:
    assert may_compile(text) == may
