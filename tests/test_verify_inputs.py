"""Inputs and runs as asked for: jaxtyping's shapes, training, the style of checks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gbfix.cli.main import main
from gbfix.verify.api import verify
from gbfix.verify.checker import verify_sides
from gbfix.verify.constructing import construct, made_with
from gbfix.verify.options import Options
from gbfix.verify.recipes import CallRecipe, Inputs
from gbfix.verify.report import lines
from gbfix.verify.search import search
from gbfix.verify.signatures import parameters, size_hints
from gbfix.verify.targets import Side, of_file
from gbfix.verify.verdict import Kind, Status
from gbfix.verify.worker import Workers

OPTIONS = Options(backend="eager", shrink_seconds=0, both_dynamic=False)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as found:
        yield found


def test_shapes_of_jaxtyping_are_kept(tmp_path: Path, workers: Workers) -> None:
    """Only a matrix and an index for each of its rows run, and no search would start with them."""
    pytest.importorskip("jaxtyping")
    head = (
        "import torch\nfrom jaxtyping import Float, Int\n\n\n"
        "def target(x: Float[torch.Tensor, 'rows 7'], index: Int[torch.Tensor, 'rows']):\n"
        "    assert x.shape[1] == 7 and index.shape == x.shape[:1] and index.dtype == torch.int64\n"
    )
    (tmp_path / "before.py").write_text(
        f"{head}    if x.sum() > 0:\n        return x + index[:, None]\n    return x * 2\n"
    )
    (tmp_path / "after.py").write_text(
        f"{head}    return torch.where(x.sum() > 0, x + index[:, None], x * 2)\n"
    )
    verdict = verify(
        f"{tmp_path}/before.py:target",
        f"{tmp_path}/after.py:target",
        options=OPTIONS,
        workers=workers,
    )
    assert verdict.verified, verdict
    assert all("7] " in text and ", int64[" in text for text in verdict.evidence.inputs)


def test_jaxtyping_is_read() -> None:
    jaxtyping = pytest.importorskip("jaxtyping")

    def function(x, mask):  # type: ignore[no-untyped-def]
        pass

    function.__annotations__ = {
        "x": jaxtyping.Float[torch.Tensor, "batch 3"],
        "mask": jaxtyping.Bool[torch.Tensor, "batch"],
    }
    x, mask = parameters(function)
    assert (x.dims, x.dtypes[0]) == (("batch", "3"), "float32")
    assert (mask.dims, mask.dtypes) == (("batch",), ("bool",))


def test_gradients_of_inputs_and_parameters(tmp_path: Path, workers: Workers) -> None:
    """A parameter of the arm not taken has no gradient; compiled with `where` it has zeros."""
    head = (
        "import torch\nfrom torch import nn\n\n\nclass target(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.a = nn.Parameter(torch.ones(3))\n"
        "        self.b = nn.Parameter(torch.ones(3))\n\n    def forward(self, x, scale=None):\n"
        "        if scale is not None:\n            x = x * scale\n"
    )
    plain = "        if x.sum() > 0:\n            return x * self.a\n        return x * self.b\n"
    guard = "        if torch.compiler.is_compiling():\n            return {}\n"
    inputs = (
        "\n\ndef make():\n    return [(torch.ones(2, 3),), (-torch.ones(2, 3), torch.ones(3))]\n"
    )
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(head + plain + inputs)

    def kinds(compiled: str) -> tuple[Status, dict[str, Kind], dict[str, Kind]]:
        after.write_text(head + guard.format(compiled) + plain + inputs)
        verdict = verify(
            f"{before}:target", f"{after}:target", ":make", options=OPTIONS, workers=workers
        )
        assert verdict.evidence.gradients
        return (
            verdict.status,
            {d.place: d.kind for d in verdict.differences},
            {d.place: d.kind for d in verdict.remarks},
        )

    status, differences, remarks = kinds("torch.where(x.sum() > 0, x * self.a, x * self.b)")
    assert status is Status.VERIFIED and not differences
    assert remarks == {
        "gradient of state self.a": Kind.GRADIENT_ZERO,
        "gradient of state self.b": Kind.GRADIENT_ZERO,
    }
    status, differences, _ = kinds("torch.where(x.sum() > 0, x.detach() * self.a, x * self.b)")
    assert status is Status.DIFFERENT
    assert differences == {"gradient of argument leaf 1": Kind.VALUE}


CHECKED = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        if torch.isnan(x).any():
            raise ValueError("NaN")
        return x * 2
"""


@pytest.mark.parametrize("style", ["skip", "assert"])
def test_a_check_that_is_skipped_may_be_missed(
    style: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(CHECKED)
    given = ["verify", "--backend", "eager", "--output-format", "json", "--check-style", style]
    assert main([*given, "model.py"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)["verdicts"]
    kinds = {remark["kind"] for remark in verdict["remarks"]}
    assert (Kind.EXCEPTION_SKIPPED.value in kinds) == (style == "skip")
    assert (Kind.EXCEPTION_TYPE.value in kinds) == (style == "assert")


def test_recorded_inputs_are_joined_by_those_for_other_arms(
    tmp_path: Path, workers: Workers
) -> None:
    """The recorded call takes one arm; what reaches the other has its shape and dtype."""
    head = "import torch\n\n\ndef target(x):\n"
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(f"{head}    if x.sum() > 0:\n        return x + 1\n    return x * 2\n")
    after.write_text(f"{head}    return torch.where(x.sum() > 0, x + 1, x * 2)\n")
    torch.save(((torch.ones(3, 5),), {}), tmp_path / "call.pt")
    texts = tuple((str(path.resolve()), path.read_text()) for path in (before, after))
    verdict = verify_sides(
        workers,
        Side(of_file(before, "target"), texts),
        Side(of_file(after, "target"), texts),
        Inputs(saved=(str(tmp_path / "call.pt"),)),
        OPTIONS,
    )
    assert verdict.verified, verdict
    assert len(verdict.evidence.inputs) == 2
    assert all("float32[3, 5]" in text for text in verdict.evidence.inputs)


class Settings:
    def __init__(
        self, hidden_size: int = 512, num_heads: int = 8, dropout_rate: float = 0.0
    ) -> None:
        self.hidden_size = hidden_size
        self.num_heads = num_heads


class Attention(torch.nn.Module):
    """Wants a configuration, a batch of sequences, and a mask for each of their places."""

    def __init__(self, config: Settings, layer_index: int) -> None:
        super().__init__()
        self.config = config
        self.inner = torch.nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, _ = hidden_states.shape
        assert mask.shape == (batch, length) and mask.dtype == torch.bool
        heads = self.inner(hidden_states).view(batch, length, self.config.num_heads, -1)
        return heads.masked_fill(mask[..., None, None], 0.0)


def test_constructors_are_given_small_sizes() -> None:
    """By what their names say, in a configuration as well; nothing is run to find out."""
    made = construct(Attention, sys.modules[__name__])
    assert (made.config.hidden_size, made.config.num_heads) == (16, 2)
    assert made_with(made) == "config=Settings(...), layer_index=0"
    with pytest.raises(TypeError, match="nothing that was tried for data is taken"):
        construct(type("Other", (), {"__init__": lambda self, data: data["x"]}), sys)


def test_nothing_is_constructed_twice_from_the_same() -> None:
    tried: list[object] = []

    class Refusing:
        def __init__(self, config: Settings, rate: float) -> None:
            tried.append((config.hidden_size, rate))
            raise ValueError("no")

    with pytest.raises(TypeError, match="ValueError: no"):
        construct(Refusing, sys.modules[__name__])
    assert len(tried) == len(set(tried)) == 2


class Windowed(torch.nn.Module):
    """A layer of a model that makes a list of one number before it makes its layers."""

    def __init__(self, config: Settings, layer_index: int) -> None:
        super().__init__()
        self.window = config.num_heads[layer_index]  # type: ignore[index]


def test_a_list_for_all_layers_is_made_where_one_is_wanted() -> None:
    assert construct(Windowed, sys.modules[__name__]).window == 2


def test_shapes_that_go_together_are_tried_first() -> None:
    made, tries = construct(Attention, sys.modules[__name__]), 0

    def attempt(call: CallRecipe) -> str | None:
        nonlocal tries
        tries += 1
        try:
            made(*call.make()[0])
        except Exception as error:
            return str(error)
        return None

    found = search(parameters(made), size_hints(made), attempt)
    assert str(found.call) == "(float32[2, 3, 16] normal, bool[2, 3] normal)"
    assert tries < 10


def test_one_graph_is_asked_for_call_by_call(tmp_path: Path, workers: Workers) -> None:
    """Rows that are few enough are captured whole on both sides, and others on neither."""
    head = "import torch\n\n\ndef make():\n    return [(torch.ones(n, 3),) for n in (1, 3)]\n\n\n"
    first = "def target(x):\n    if x.shape[0] == 1:\n        return x * 2\n"
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(f"{head}{first}    return x + 1 if x.sum() > 0 else x - 1\n")
    left = "    torch._dynamo.graph_break()\n    return torch.where(x.sum() > 0, x + 1, x - 1)\n"
    after.write_text(f"{head}{first}{left}")
    verdict = verify(
        f"{before}:target", f"{after}:target", ":make", options=OPTIONS, workers=workers
    )
    assert verdict.evidence.after is not None
    # Few inputs are all given once more.
    assert verdict.evidence.after.fullgraph_calls == (True, False, True, False)
    told = ["".join(span.text for span in line) for line in lines([verdict])]
    assert any(text.endswith("fullgraph in 2 of 4 calls") for text in told), told


HALF = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        x = self.linear(x)
        {}
        return x
"""
CHECKS = (
    "if x.dtype == torch.float16 and torch.isinf(x).any():\n            x = x.clamp(-1000, 1000)"
)
CHOOSES = (
    "if x.dtype == torch.float16:\n"
    "            x = torch.where(torch.isinf(x).any(), x.clamp(-{0}, {0}), x)"
)


@pytest.mark.parametrize(("most", "status"), [(1000, Status.VERIFIED), (500, Status.DIFFERENT)])
def test_layers_that_speak_of_half_precision_are_run_in_it(
    most: int, status: Status, tmp_path: Path, workers: Workers
) -> None:
    """No input of half precision goes with parameters of single precision, so all are converted."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(HALF.format(CHECKS))
    after.write_text(HALF.format(CHOOSES.format(most)))
    verdict = verify(f"{before}:Layer", f"{after}:Layer", options=OPTIONS, workers=workers)
    assert verdict.status is status, verdict
    if verdict.verified:
        assert verdict.evidence.halves == ("float16",)
        assert verdict.reason == "1 break before, no breaks after, in float16; 2 of 2 arms run"
    else:
        assert verdict.differences[0].mode == "eager in float16"


def test_layers_that_take_half_precision_are_converted_where_it_takes_that(
    tmp_path: Path, workers: Workers
) -> None:
    """An input of half precision goes with parameters of single precision, and loses its type there."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    head = (
        "import torch\n\n\nclass Layer(torch.nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.weight = torch.nn.Parameter(torch.ones(8))\n\n"
        "    def forward(self, x):\n        x = x * self.weight\n"
    )
    inf = "torch.isinf(x).any()"
    before.write_text(
        f"{head}        if x.dtype == torch.float16 and {inf}:\n"
        "            x = torch.clamp(x, -6e4, 6e4)\n        return x\n"
    )
    after.write_text(
        f"{head}        if x.dtype == torch.float16:\n"
        f"            x = torch.where({inf}, torch.clamp(x, -6e4, 6e4), x)\n        return x\n"
    )
    verdict = verify(f"{before}:Layer", f"{after}:Layer", options=OPTIONS, workers=workers)
    assert verdict.verified, verdict
    assert "float16" in verdict.evidence.halves
    assert any("float16" in text for text in verdict.evidence.inputs)


def test_functions_that_take_half_precision_are_given_it(tmp_path: Path, workers: Workers) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    head = "import torch\n\n\ndef target(x):\n    if x.dtype != torch.float16:\n        return x\n"
    before.write_text(f"{head}    if x.sum() > 0:\n        return x + 1\n    return x * 2\n")
    after.write_text(f"{head}    return torch.where(x.sum() > 0, x + 1, x * 2)\n")
    verdict = verify(f"{before}:target", f"{after}:target", options=OPTIONS, workers=workers)
    assert verdict.verified and not verdict.evidence.halves
    assert any("float16" in text for text in verdict.evidence.inputs)


POSITIONS = """
import torch
from torch import nn


class target(nn.Module):
    def forward(self, x, mask=None, bias=None, scale=None, memory=None, cache_position=None):
        memory_position = torch.arange(x.shape[1])[None, :]
        away = memory_position - cache_position[:, None]
        x = x + away.sum(1)[None, :, None]
        {}
"""
WINDOWS = """
import torch
from torch import nn


class target(nn.Module):
    def forward(self, x, mask=None, scale=None, is_index_masked=None):
        assert x.shape[1] % 4 == 0, f"a multiple of 4 and not {{x.shape[1]}}"
        keep = (mask != 0)[:, :, None]
        x = x.masked_fill(is_index_masked[:, :, None], 0.0) * keep
        {}
"""


@pytest.mark.parametrize(
    ("code", "given"),
    [
        (POSITIONS, ("float32[2, 3, 8] normal", "cache_position=int64[3]")),
        (WINDOWS, ("float32[2, 8, 4]", "mask=bool[2, 8]", "is_index_masked=bool[2, 8]")),
    ],
)
def test_arguments_that_an_error_misses_are_given(
    code: str, given: tuple[str, ...], tmp_path: Path, workers: Workers
) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(code.format("return x + 1 if x.sum() > 0 else x"))
    after.write_text(code.format("return torch.where(x.sum() > 0, x + 1, x)"))
    verdict = verify(f"{before}:target", f"{after}:target", options=OPTIONS, workers=workers)
    assert verdict.verified, verdict
    assert all(text in verdict.evidence.inputs[0] for text in given), verdict.evidence.inputs


def test_optional_arguments_are_given_where_nothing_runs_without() -> None:
    def model(input_ids=None, mask=None, decoder_input_ids=None):  # type: ignore[no-untyped-def]
        return input_ids + decoder_input_ids

    def attempt(call: CallRecipe) -> str | None:
        try:
            model(**call.make()[1])
        except Exception as error:
            return str(error)
        return None

    found = search(parameters(model), (), attempt)
    assert [name for name, _ in found.call.kwargs] == ["input_ids", "mask", "decoder_input_ids"]
    assert found.left_out == ()
