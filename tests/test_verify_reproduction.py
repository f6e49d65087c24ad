"""The smallest calls that show a difference, and the script that makes them."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from gbfix.verify.api import verify
from gbfix.verify.options import Options
from gbfix.verify.recipes import CallRecipe, TensorRecipe, ValueRecipe
from gbfix.verify.shrink import Budget, Calls, Shrinker
from gbfix.verify.verdict import Kind, Status
from gbfix.verify.worker import Workers
from tests.verify_table import WRONG

CALL = CallRecipe(
    (TensorRecipe((4, 6), seed=3, scale=10.0), ValueRecipe("5")),
    (("scale", ValueRecipe("2.0")), ("mask", TensorRecipe((4,), "bool"))),
)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as found:
        yield found


def literal(calls: Calls) -> Calls:
    """The calls element by element, without a worker."""
    from dataclasses import replace

    def change(recipe: object) -> TensorRecipe | ValueRecipe:
        if isinstance(recipe, ValueRecipe):
            return recipe
        assert isinstance(recipe, TensorRecipe)
        ((made,), _) = CallRecipe((recipe,)).make()
        return replace(recipe, values=tuple(made.reshape(-1).tolist()))

    return tuple(call.mapped(change) for call in calls)


def shrunk(calls: Calls, shows: Callable[[Calls], bool], tries: int = 300) -> tuple[Calls, bool]:
    shrinker = Shrinker(calls, shows, literal, Budget(tries, time.monotonic() + 30))
    return shrinker.run(), shrinker.spent


def test_everything_goes_that_nothing_depends_on() -> None:
    ((small,), spent) = shrunk((CALL, CALL, CALL), lambda calls: True)
    assert small.code == "((torch.tensor(0.0), 0), {})"
    assert not spent


def test_what_the_difference_needs_stays() -> None:
    def shows(calls: Calls) -> bool:
        """Two calls, a matrix with at least three columns, and one positive element."""
        args, kwargs = calls[-1].make()
        x = args[0]
        wide = x.dim() == 2 and x.shape[1] >= 3
        return len(calls) >= 2 and wide and bool((x > 0).any()) and "mask" in kwargs

    (small, _) = shrunk((CALL, CALL, CALL), shows)
    assert len(small) == 2
    x, number = small[1].args
    assert isinstance(x, TensorRecipe) and x.shape == (1, 6) and number == ValueRecipe("0")
    assert x.values is not None and set(x.values) <= {0.0, 1.0} and max(x.values) == 1.0
    assert [name for name, _ in small[1].kwargs] == ["mask"]


def test_special_values_stay_where_they_matter() -> None:
    call = CallRecipe((TensorRecipe((2, 3), fill="one_nan"),))

    def shows(calls: Calls) -> bool:
        return bool(calls[0].make()[0][0].isnan().any())

    ((small,), _) = shrunk((call,), shows)
    assert small.code == "((torch.tensor(float('nan')),), {})"


def test_a_corner_of_given_elements_is_taken() -> None:
    x = TensorRecipe((2, 3), values=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0))

    def shows(calls: Calls) -> bool:
        return math.isclose(calls[0].make()[0][0].reshape(-1)[0].item(), 1.0)

    ((small,), _) = shrunk((CallRecipe((x,)),), shows)
    assert small.code == "((torch.tensor(1.0),), {})"


def test_a_budget_ends_the_search() -> None:
    found, spent = shrunk((CALL, CALL), lambda calls: True, tries=2)
    assert spent and len(found) == 1


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("exception lost in compiled", ["((torch.tensor(float('nan')),), {})"]),
        ("random stream shifted in eager", ["((torch.tensor(0.0),), {})"]),
        ("state wrong only on the third call", None),
    ],
)
def test_script_shows_the_difference(
    name: str, calls: list[str] | None, tmp_path: Path, workers: Workers
) -> None:
    rewrite = next(rewrite for rewrite in WRONG if rewrite.name == name)
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(rewrite.before)
    after.write_text(rewrite.after)
    options = Options(backend="eager", gradients=False, shrink_seconds=40)
    verdict = verify(f"{before}:target", f"{after}:target", options=options, workers=workers)
    assert verdict.status is Status.DIFFERENT
    found = verdict.reproduction
    assert found is not None and found.difference.kind is verdict.differences[0].kind
    if calls is not None:
        assert list(found.calls) == calls
    if name == "state wrong only on the third call":
        assert len(found.calls) == 3
    path = tmp_path / "script.py"
    path.write_text(found.script)
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=120, cwd="/"
    )
    assert done.returncode == 1, done
    assert "differs: " in done.stdout
    if name != "exception lost in compiled":
        return
    right = found.script.replace("AFTER,\n", "BEFORE,\n")
    path.write_text(right)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[-1] == "no difference"


def test_given_inputs_are_shrunk_as_well(tmp_path: Path, workers: Workers) -> None:
    head = "import torch\n\n\ndef make():\n    return [(torch.ones(2, 3), [1, 'a'])]\n\n\n"
    body = "def target(x, rest):\n    return x * {}\n"
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(head + body.format(2))
    after.write_text(head + body.format(3))
    options = Options(backend="eager", gradients=False)
    verdict = verify(
        f"{before}:target", f"{after}:target", ":make", options=options, workers=workers
    )
    assert verdict.differences[0].kind is Kind.VALUE
    assert verdict.reproduction is not None
    (call,) = verdict.reproduction.calls
    assert call.endswith(", [1, 'a']), {})") and "torch." in call


FAILING = """import torch

def make():
    return [(torch.full((2, 3), 4.0),)]

def target(x):
    if x.sum() > 1:
        CALL
    return x + 1
"""


@pytest.mark.parametrize(
    ("line", "status", "told"),
    [
        ("raise ValueError('too large')", Status.FAILS_EAGER, "fails: eager, call 1: ValueError"),
        (
            "torch._assert(not torch.compiler.is_compiling(), 'never compiled')",
            Status.FAILS_COMPILED,
            "fails: compiled, call 1: ",
        ),
    ],
)
def test_script_shows_how_the_original_fails(
    line: str, status: Status, told: str, tmp_path: Path, workers: Workers
) -> None:
    path = tmp_path / "before.py"
    path.write_text(FAILING.replace("CALL", line))
    options = Options(backend="eager", gradients=False, both_dynamic=False)
    verdict = verify(f"{path}:target", f"{path}:target", ":make", options=options, workers=workers)
    assert verdict.status is status, verdict
    assert verdict.reproduction is not None
    (call,) = verdict.reproduction.calls
    assert call == "((torch.tensor(4.0),), {})"
    script = tmp_path / "script.py"
    script.write_text(verdict.reproduction.script)
    given = {"capture_output": True, "text": True, "timeout": 120, "cwd": "/"}
    done = subprocess.run([sys.executable, str(script)], **given)  # type: ignore[call-overload]
    assert done.returncode == 1, done
    assert told in done.stdout
    script.write_text(verdict.reproduction.script.replace(line, "pass"))
    done = subprocess.run([sys.executable, str(script)], **given)  # type: ignore[call-overload]
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "no failure"), done


SUMMED = """\
import torch


def f(x):
    total = x.sum().item()
    return x * total
"""
# A break inside of a `try` leaves the whole function to Python; in one graph there is none.
ONLY_IN_ONE_GRAPH = """\
import torch


def f(x):
    try:
        total = x.sum().item()
    except ValueError:
        total = 0.0
    if torch.compiler.is_compiling():
        return x * total + 1
    return x * total
"""


def test_a_script_for_what_only_one_graph_shows(workers: Workers, tmp_path: Path) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(SUMMED)
    after.write_text(ONLY_IN_ONE_GRAPH)
    options = Options("eager", gradients=False, both_dynamic=False, shrink_seconds=30)
    calls = [(torch.ones(2, 3),)]
    verdict = verify(f"{before}:f", f"{after}:f", calls, options=options, workers=workers)
    assert verdict.status is Status.DIFFERENT, verdict
    assert {difference.mode for difference in verdict.differences} == {"compiled, fullgraph"}
    found = verdict.reproduction
    assert found is not None and found.difference.mode == "compiled, fullgraph"
    script = tmp_path / "script.py"
    script.write_text(found.script)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "differs: compiled, fullgraph, call 1: result" in done.stdout
