"""Compiled paths that adjoin become one, if all of them were written by fixes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gbfix.analysis.module_files import parse_module
from gbfix.codegen.neighbours import joined_paths
from gbfix.codegen.view import View
from gbfix.engine import run
from gbfix.settings import Region, Settings
from gbfix.source.text import SourceFile

IF = "if torch.compiler.is_compiling():"
NOT = "if not torch.compiler.is_compiling():"


def _joined(text: str, *, new: bool = True) -> str:
    source = SourceFile(Path("one.py"), text)
    edits = joined_paths(View(parse_module(source)), lambda offset, header: new)
    return source.apply(edits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{IF}\n    a = 1\nelse:\n    a = 2\n{IF}\n    b = 1\nelse:\n    b = 2\nc = 3\n",
            f"{IF}\n    a = 1\n    b = 1\nelse:\n    a = 2\n    b = 2\nc = 3\n",
        ),
        (f"{NOT}\n    a()\n{NOT}\n    b()\n{NOT}\n    c()", f"{NOT}\n    a()\n    b()\n    c()"),
        (
            f"{IF}\r\n    a = 1\r\nelse:\r\n    # 2\r\n    a = 2\r\n"
            f"{IF}\r\n    b = 1\r\nelse:\r\n    b = 2",
            f"{IF}\r\n    a = 1\r\n    b = 1\r\nelse:\r\n    # 2\r\n    a = 2\r\n    b = 2",
        ),
        (
            f"{IF}\n    s = '''\nx'''\nelse:\n    s = ''\n{IF}\n    b = 1\nelse:\n    b = 2\n",
            f"{IF}\n    s = '''\nx'''\n    b = 1\nelse:\n    s = ''\n    b = 2\n",
        ),
    ],
)  # fmt: skip
def test_joined(text: str, expected: str) -> None:
    assert _joined(text) == expected
    assert _joined(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        f"{IF}\n    a = 1\nelse:\n    a = 2\n\n{IF}\n    b = 1\nelse:\n    b = 2\n",
        f"{IF}\n    a = 1\nelse:\n    a = 2\n# b\n{IF}\n    b = 1\nelse:\n    b = 2\n",
        f"{IF}\n    a = 1\nelse:  # eager\n    a = 2\n{IF}\n    b = 1\nelse:\n    b = 2\n",
        f"{IF}\n    a = 1\nelif x:\n    a = 2\n{IF}\n    b = 1\nelif y:\n    b = 2\n",
        f"{IF}\n    a = 1\n{IF}\n    b = 1\nelse:\n    b = 2\n",
        f"{NOT}\n    a()\n{IF}\n    b()\n",
        f"{IF}  # traced\n    a()\n{IF}\n    b()\n",
        f"{NOT}\n    a()\n{NOT}\n  b()\n",
        "def f():\n"
        f"    {IF}\n        return 1\n    else:\n        a = 2\n"
        f"    {IF}\n        b = 1\n    else:\n        b = 2\n",
    ],
)
def test_left_apart(text: str) -> None:
    assert _joined(text) == text


def test_what_stood_there_stays() -> None:
    text = f"{NOT}\n    a()\n{NOT}\n    b()\n"
    assert _joined(text, new=False) == text


def test_what_a_user_wrote_is_not_joined_with_what_a_fix_writes() -> None:
    own = f"    {NOT}\n        print(x)\n"
    text = f"import torch\n\n\ndef f(x: torch.Tensor, i: torch.Tensor):\n{own}    print(i)\n"
    text += f"    y = x[i.item()] * 2\n{own}{own}    return y\n"
    result = run([SourceFile(Path("one.py"), text)], Settings(region=Region.ALL))
    assert result.files[0].after.count(own) == 3
