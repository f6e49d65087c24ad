"""What a function's callers tell of its parameters: sizes and flags are not reported, tensors are."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from gbfix.analysis.callers import Callers
from gbfix.analysis.project import FunctionInfo
from gbfix.engine import run
from gbfix.settings import Region, Settings
from gbfix.source.text import SourceFile


def found(body: str) -> list[str]:
    """The code and line of each finding in a module, every function looked at."""
    text = f"import torch\nfrom torch import nn\n{dedent(body)}"
    source = SourceFile.decode(Path("model.py"), text.encode())
    result = run([source], Settings(region=Region.ALL), rewrite=False)
    lines = text.splitlines()
    return [f"{f.code} {lines[f.line - 1].strip()}" for file in result.files for f in file.findings]


STATIC = {
    "a size read from a shape": """
        class M(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.window = config.window
            def pad(self, x, height, width):
                right = (self.window - width % self.window) % self.window
                values = (0, right, 0, height % self.window)
                if values[1] > 0 or height % 2 == 1:
                    x = nn.functional.pad(x, values)
                return x
            def forward(self, x):
                _, height, width = x.shape
                return self.pad(x, height, width)
        """,
    "a size passed on by a caller": """
        class M(nn.Module):
            def inner(self, x, size):
                return x[:1] if size > 4 else x
            def outer(self, x, size):
                return self.inner(x, size // 2)
            def forward(self, x: torch.Tensor):
                return self.outer(x, x.size(1))
        """,
    "a pair of sizes by annotation": """
        class M(nn.Module):
            def __init__(self, window):
                super().__init__()
                self.window = window
                self.shift = 1
            def fit(self, resolution):
                if min(resolution) <= self.window:
                    self.shift = helper(0)
            def forward(self, x: torch.Tensor, resolution: tuple[int, int]):
                self.fit(resolution)
                if self.shift > 0:
                    x = torch.roll(x, self.shift)
                return x
        def helper(x):
            return x.to(torch.int64) if torch.jit.is_tracing() else int(x)
        """,
    "sizes of a new tensor": """
        def f(x: torch.Tensor, rows, columns):
            made = [torch.zeros(rows, columns) for i in range(columns)]
            return x, made
        """,
    "a flag": """
        def f(x: torch.Tensor, flag):
            if flag:
                return x + 1
            return x
        """,
    "a name for whether it is compiled": """
        def f(x: torch.Tensor):
            tracing = torch.jit.is_tracing() or torch.compiler.is_compiling()
            if not tracing and torch.all(x == 1):
                return x + 1
            return x
        """,
}


@pytest.mark.parametrize("case", STATIC)
def test_says_nothing_of(case: str) -> None:
    """No site, neither certain nor possible."""
    assert found(STATIC[case]) == []


def test_a_tensor_of_all_callers_is_one() -> None:
    """The items of `shapes` are read as numbers, which only its caller tells."""
    assert found("""
        class M(nn.Module):
            @staticmethod
            def points(shapes):
                made = []
                for height, width in shapes:
                    made.append(torch.linspace(0.5, height - 0.5, height))
                return made
            def forward(self, x: torch.Tensor, shapes: torch.Tensor):
                return self.points(shapes)
        """) == ["GBF107 made.append(torch.linspace(0.5, height - 0.5, height))"]


def test_a_comparison_with_methods_is_of_a_tensor() -> None:
    """`(mask > 0).flatten()` under a name of its own."""
    assert found("""
        def f(x: torch.Tensor, mask=None):
            hits = mask > 0
            some = hits.flatten().any().item()
            return x, some
        """) == ["GBF105 some = hits.flatten().any().item()"]


def test_a_name_that_is_bound_anew_is_no_longer_the_answer() -> None:
    """What held of the old value does not hold of the new one."""
    assert found("""
        def f(x: torch.Tensor, other: bool):
            tracing = torch.compiler.is_compiling()
            tracing = other
            if not tracing and torch.all(x == 1):
                return x + 1
            return x
        """) == ["GBF101 if not tracing and torch.all(x == 1):"]


def test_callers_that_differ_prove_nothing() -> None:
    """One caller gives a size and another something unknown: a comparison stays possible."""
    assert found("""
        def limit(value):
            return 1 if value > 2 else 0
        def f(x: torch.Tensor):
            return limit(x.shape[0])
        def g(x: torch.Tensor, other):
            return limit(other)
        """) == ["GBF101 return 1 if value > 2 else 0"]


def test_checks_are_told_where_they_are_called() -> None:
    """A helper that raises is no site by itself, though all callers give it tensors."""
    assert found("""
        def check(ok):
            if not ok:
                raise ValueError("wrong")
        def f(x: torch.Tensor):
            check((x > 0).all())
            return x
        """) == ["GBF102 check((x > 0).all())"]


def test_functions_that_all_call_each_other_are_followed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"f{n}" for n in range(8)]
    every = "\n".join(f"    {name}(x, {{}})" for name in names)
    text = f"def start(x: torch.Tensor):\n{every.replace('{}', 'x.shape[0]')}\n"
    text += "".join(f"def {name}(x, k):\n{every.replace('{}', 'k')}\n" for name in names)
    followed: list[object] = []
    given = Callers._given

    def counted(self: Callers, info: FunctionInfo, name: str) -> object:
        followed.append(name)
        return given(self, info, name)

    monkeypatch.setattr(Callers, "_given", counted)
    assert found(text) == []
    # For each function that is asked about, each other one at most once.
    assert 0 < len(followed) <= 2 * len(names) ** 2
