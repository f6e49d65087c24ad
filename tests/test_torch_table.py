"""The table of torch's operations says what torch does."""

import itertools
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gbfix.analysis import torch_table
from gbfix.analysis.torch_table import ArgumentKind, Operation, function, method, module_class

torch = pytest.importorskip("torch")

GENERATOR = Path(__file__).parents[1] / "scripts" / "generate_torch_table.py"
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

same_torch = pytest.mark.skipif(
    torch.__version__.partition("+")[0] != torch_table.torch_version(),
    reason=f"the table describes torch {torch_table.torch_version()}",
)


def known(name: str) -> Operation:
    found = function(name)
    assert found is not None, name
    return found


def called(name: str) -> Callable[..., Any]:
    home: Any = torch
    for part in name.split(".")[1:]:
        home = getattr(home, part)
    return home  # type: ignore[no-any-return]


def sampled(flag: str, count: int = 60) -> list[str]:
    """Functions with a flag that need one tensor only, a different but repeatable choice each."""
    found = []
    for name in torch_table._data()["operations"]:
        operation = torch_table._operation(name)
        if operation is None or not name.startswith("torch.") or operation.random:
            continue
        first = operation.alternatives[0].params
        if name == "torch.nn.functional.interpolate":
            continue  # needs one of two optional arguments
        lone = first and first[0].mark and not any(p.required for p in first[1:])
        if lone and getattr(operation, flag) and not operation.mutates:
            found.append(name)
    return sorted(random.Random(flag).sample(sorted(found), min(count, len(found))))


RESULTS: list[tuple[str, int, list[str], list[ArgumentKind], str]] = [
    ("torch.max", 1, [], [], "tensor"),
    ("torch.max", 2, [], ["tensor", "number"], "tensors:2:values,indices"),
    ("torch.max", 2, [], ["tensor", "tensor"], "tensor"),
    ("torch.max", 2, [], [], "other"),
    ("torch.max", 1, ["dim"], [], "tensors:2:values,indices"),
    ("torch.max", 1, ["other"], [], "tensor"),
    ("torch.Tensor.max", 0, [], [], "tensor"),
    ("torch.Tensor.max", 1, [], ["number"], "tensors:2:values,indices"),
    ("torch.Tensor.min", 1, ["keepdim"], [], "tensors:2:values,indices"),
    ("torch.median", 1, [], [], "tensor"),
    ("torch.median", 1, ["dim"], [], "tensors:2:values,indices"),
    ("torch.mode", 1, [], [], "tensors:2:values,indices"),
    ("torch.sort", 1, ["descending"], [], "tensors:2:values,indices"),
    ("torch.topk", 2, [], [], "tensors:2:values,indices"),
    ("torch.std_mean", 1, ["dim"], [], "tensors:2"),
    ("torch.where", 1, [], [], "tensor_list"),
    ("torch.where", 3, [], [], "tensor"),
    ("torch.unique", 1, [], [], "tensor"),
    ("torch.split", 2, [], [], "tensor_list"),
    ("torch.Tensor.chunk", 1, [], [], "tensor_list"),
    ("torch.nonzero", 1, [], [], "tensor"),
    ("torch.Tensor.item", 0, [], [], "number"),
    ("torch.equal", 2, [], [], "number"),
    ("torch.Tensor.size", 0, [], [], "static"),
    ("torch.Tensor.size", 1, [], [], "static"),
    ("torch.Tensor.shape", 0, [], [], "static"),
    ("torch.Tensor.T", 0, [], [], "tensor"),
    ("torch.Tensor.type", 0, [], [], "static"),
    ("torch.Tensor.type", 1, [], ["unknown"], "other"),
    ("torch.is_tensor", 1, [], [], "static"),
    ("torch.zeros", 2, [], ["number", "number"], "tensor"),
    ("torch.randn_like", 1, [], [], "tensor"),
    ("torch.tensor", 1, ["device"], [], "tensor"),
    ("torch.nn.functional.max_pool2d", 2, [], [], "tensor"),
    ("torch.nn.functional.softmax", 1, ["dim"], [], "tensor"),
    ("torch.linalg.svd", 1, [], [], "tensors:3:U,S,Vh"),
    ("torch.linalg.norm", 1, [], [], "tensor"),
    ("torch.special.expit", 1, [], [], "tensor"),
    ("torch.fft.rfft", 1, [], [], "tensor"),
    ("torch.Tensor.backward", 0, [], [], "none"),
]


@pytest.mark.parametrize(("name", "positional", "keywords", "kinds", "expected"), RESULTS)
def test_result_of_a_call(
    name: str, positional: int, keywords: list[str], kinds: list[ArgumentKind], expected: str
) -> None:
    assert known(name).result(positional, frozenset(keywords), kinds) == expected


@pytest.mark.parametrize("name", ["torch.unique", "torch.unique_consecutive"])
def test_constants_choose_the_overload(name: str) -> None:
    both = frozenset({"return_inverse", "return_counts"})

    def result(inverse: ArgumentKind, counts: ArgumentKind) -> str:
        given: dict[str, ArgumentKind] = {"return_inverse": inverse, "return_counts": counts}
        return known(name).result(1, both, (), given)

    assert result("false", "false") == "tensor"
    assert result("true", "false") == result("false", "true") == "tensors:2"
    assert result("true", "true") == "tensors:3"
    assert result("unknown", "false") == "other"


@same_torch
@pytest.mark.parametrize("flags", list(itertools.product((False, True), repeat=3)))
def test_unique_by_position(flags: tuple[bool, bool, bool]) -> None:
    real = torch.rand(3).unique(*flags)
    kinds: list[ArgumentKind] = ["true" if flag else "false" for flag in flags]
    unique = method("unique")
    assert unique is not None
    expected = f"tensors:{len(real)}" if isinstance(real, tuple) else "tensor"
    assert unique.result(3, frozenset(), kinds) == expected


FLAGS = [
    ("torch.Tensor.view", "alias", True),
    ("torch.Tensor.to", "alias", True),
    ("torch.Tensor.float", "alias", True),
    ("torch.reshape", "alias", True),
    ("torch.flatten", "alias", True),
    ("torch.einsum", "alias", True),
    ("torch.conj_physical", "alias", True),
    ("torch.nn.functional.dropout", "alias", True),
    ("torch.Tensor.add_", "alias", True),
    ("torch.add", "alias", False),
    ("torch.clone", "alias", False),
    ("torch.nn.functional.relu", "alias", False),
    ("torch.nn.functional.unfold", "alias", False),
    ("torch.sort", "mutates", False),
    ("torch.Tensor.add_", "mutates", True),
    ("torch.nn.init.normal_", "mutates", True),
    ("torch.nn.functional.batch_norm", "mutates", True),
    ("torch.bernoulli", "random", True),
    ("torch.rand", "random", True),
    ("torch.nn.functional.dropout", "random", True),
    ("torch.nn.functional.gumbel_softmax", "random", True),
    ("torch.Tensor.uniform_", "random", True),
    ("torch.zeros", "random", False),
    ("torch.nonzero", "dynamic_shape", True),
    ("torch.masked_select", "dynamic_shape", True),
    ("torch.Tensor.unique", "dynamic_shape", True),
    ("torch.equal", "data_dependent", True),
    ("torch.Tensor.item", "data_dependent", True),
    ("torch.Tensor.tolist", "data_dependent", True),
    ("torch.where", "pointwise", True),
    ("torch.clamp", "pointwise", True),
    ("torch.Tensor.masked_fill", "pointwise", True),
    ("torch.lerp", "pointwise", True),
    ("torch.softmax", "pointwise", False),
    ("torch.isin", "pointwise", False),
    ("torch.msort", "pointwise", False),
    ("torch.max", "pointwise", False),
    ("torch.isnan", "boolean", True),
    ("torch.any", "boolean", True),
    ("torch.lt", "boolean", True),
    ("torch.isin", "boolean", True),
    ("torch.Tensor.masked_fill", "boolean", False),
    ("torch.bitwise_and", "boolean", False),
    ("torch.div", "floating", True),
    ("torch.mean", "floating", True),
    ("torch.sum", "floating", False),
    ("torch.matmul", "floating", False),
    ("torch.clamp", "keeps", True),
    ("torch.mul", "keeps", True),
    ("torch.Tensor.float", "keeps", False),
    ("torch.Tensor.to", "keeps", False),
    ("torch.transpose", "keeps", False),
    ("torch.squeeze", "keeps", False),
    ("torch.clamp", "keeps_int", True),
    ("torch.squeeze", "keeps_int", False),
    ("torch.exp", "keeps_int", False),
    ("torch.any", "reduces", True),
    ("torch.max", "reduces", True),
    ("torch.norm", "reduces", True),
    ("torch.nn.functional.mse_loss", "reduces", True),
    ("torch.cumsum", "reduces", False),
]


@pytest.mark.parametrize(("name", "flag", "expected"), FLAGS)
def test_flag(name: str, flag: str, expected: bool) -> None:
    assert getattr(known(name), flag) is expected


def test_only_the_lone_condition_makes_where_dynamic() -> None:
    assert known("torch.where").is_dynamic(1)
    assert not known("torch.where").is_dynamic(3)
    assert known("torch.repeat_interleave").is_dynamic(2, kinds=["tensor", "tensor"])
    assert not known("torch.repeat_interleave").is_dynamic(2, kinds=["tensor", "number"])


def test_out_and_inplace_write() -> None:
    relu = known("torch.nn.functional.relu")
    assert not relu.writes(1)
    assert relu.writes(2)
    assert not relu.writes(2, kinds=["tensor", "false"])
    assert relu.writes(1, frozenset({"inplace"}))
    assert not relu.writes(1, frozenset({"inplace"}), (), {"inplace": "false"})
    assert known("torch.add").writes(2, frozenset({"out"}))
    assert known("torch.Tensor.add_").writes(1)


def test_parameters() -> None:
    clamp = known("torch.clamp")
    assert clamp.params == ("input", "min", "max", "out")
    assert clamp.tensor_params == {"input", "out"}  # `min` and `max` may be numbers
    assert known("torch.softmax").tensor_params == {"input", "out"}
    assert known("torch.Tensor.masked_fill").params == ("mask", "value")


def test_names() -> None:
    assert function("torch.Tensor.add") is method("add")
    assert function("torch.functional.norm") is function("torch.norm")
    assert function("torch._C._nn.gelu") is function("torch.nn.functional.gelu")
    assert function("torch.no_such_thing") is None
    assert function("os.path.join") is None
    assert method("no_such_thing") is None
    assert "torch.nn.Parameter" in torch_table.TENSOR_CLASSES
    for name in torch_table.TENSOR_CLASSES:
        assert isinstance(called(name), type)


@same_torch
@pytest.mark.parametrize("name", sampled("keeps"))
def test_keeps(name: str) -> None:
    for dtype, shape in itertools.product(FLOATS, [(3, 2), (4, 4), ()]):
        x = torch.rand(shape).to(dtype)
        try:
            y = called(name)(x)
        except (RuntimeError, NotImplementedError, IndexError):
            continue  # this dtype or shape is refused
        assert (y.shape, y.dtype) == (x.shape, x.dtype)


@same_torch
@pytest.mark.parametrize("name", sampled("boolean"))
def test_boolean(name: str) -> None:
    for dtype in (*FLOATS, torch.int64, torch.bool):
        assert called(name)(torch.ones(2, 3).to(dtype)).dtype == torch.bool


@same_torch
@pytest.mark.parametrize("name", sampled("reduces"))
def test_reduces(name: str) -> None:
    for shape in [(3, 2), (1, 1), (2, 2, 2)]:
        try:
            assert called(name)(torch.rand(shape)).shape == ()
        except RuntimeError:
            assert name == "torch.trace"


@same_torch
@pytest.mark.parametrize("name", sampled("floating"))
def test_floating(name: str) -> None:
    for dtype in (torch.int64, torch.int32, torch.float16, torch.float32):
        try:
            y = called(name)(torch.ones(2, 2).to(dtype))
        except (RuntimeError, NotImplementedError, IndexError):
            continue
        assert y.is_floating_point()


@same_torch
def test_what_is_not_marked_alias_is_fresh() -> None:
    x = torch.rand(4, 4)
    for name in torch_table._data()["operations"]:
        operation = torch_table._operation(name)
        assert operation is not None
        bare = any(not any(p.required for p in a.params) for a in operation.alternatives)
        wanted = "tensor" in operation.returns and not operation.mutates and not operation.alias
        if not (name.startswith("Tensor.") and bare and wanted) or "cuda" in name:
            continue
        value = getattr(x, name.removeprefix("Tensor."))
        try:
            y = value if operation.is_property else value()
        except (RuntimeError, TypeError, ValueError, AssertionError, NotImplementedError):
            continue
        if isinstance(y, torch.Tensor) and y.layout == torch.strided:
            assert y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr(), name


MODULES = [
    ("torch.nn.Linear", "tensor", {"fresh"}),
    ("torch.nn.modules.linear.Linear", "tensor", {"fresh"}),
    ("torch.nn.Conv2d", "tensor", {"fresh"}),
    ("torch.nn.LayerNorm", "tensor", {"fresh"}),
    ("torch.nn.Embedding", "tensor", {"fresh"}),
    ("torch.nn.ReLU", "tensor", {"fresh"}),
    ("torch.nn.RReLU", "tensor", {"fresh", "random"}),
    ("torch.nn.BatchNorm2d", "tensor", {"fresh", "stateful"}),
    ("torch.nn.InstanceNorm1d", "tensor", {"fresh", "stateful"}),
    ("torch.nn.Dropout", "tensor", {"random"}),
    ("torch.nn.Identity", "tensor", set()),
    ("torch.nn.Flatten", "tensor", set()),
    ("torch.nn.Sequential", "other", set()),
    ("torch.nn.LSTM", "tuple", {"fresh", "random", "breaks"}),
    ("torch.nn.MultiheadAttention", "tuple", {"fresh", "random"}),
]


@pytest.mark.parametrize(("name", "returns", "flags"), MODULES)
def test_module_class(name: str, returns: str, flags: set[str]) -> None:
    found = module_class(name)
    assert found is not None
    assert found.returns == returns
    assert {f for f in ("fresh", "stateful", "random", "breaks") if getattr(found, f)} == flags


def test_unknown_module_class() -> None:
    assert module_class("torch.nn.NoSuchThing") is None


@pytest.mark.parametrize("statement", ["", "; t.method('max'); t.module_class('torch.nn.Linear')"])
def test_torch_is_not_imported(statement: str) -> None:
    code = (
        f"import sys, gbfix.analysis.torch_table as t{statement}; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@same_torch
def test_the_shipped_table_is_what_torch_says() -> None:
    command = [sys.executable, str(GENERATOR), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
