"""The parts of the checker that need no worker: arms, comparison, tolerance, search, splicing."""

from __future__ import annotations

import ast
import logging
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gbfix.dynamo.records import Break, Capture
from gbfix.errors import UserError
from gbfix.verify.arms import Seen, Watcher, concerned, coverage, rewritten_branches
from gbfix.verify.breaks import fewer_breaks
from gbfix.verify.compare import _bits, differences
from gbfix.verify.listening import Listener
from gbfix.verify.recipes import CallRecipe, Inputs, TensorRecipe, ValueRecipe, normalised
from gbfix.verify.search import NoInputs, search
from gbfix.verify.signatures import Parameter, hints_in, parameters
from gbfix.verify.snapshot import CallShot, Effects, Raised, aliases, leaves, share, tensor_shot
from gbfix.verify.splicing import splice
from gbfix.verify.targets import parse
from gbfix.verify.tolerance import Tolerance, derive
from gbfix.verify.verdict import Kind

ORIGINAL = """\
import torch

def f(x, training):
    if training:
        x = x * 2
    y = x if x.sum() > 0 else -x
    while y.sum() > 100:
        y = y / 2
    assert (y >= 0).all(), "negative"
    return y
"""


# Arms


def watched(text: str, *calls: Any) -> set[Seen]:
    watcher = Watcher()
    tree = ast.fix_missing_locations(watcher.transform("f.py", ast.parse(text)))
    names: dict[str, Any] = {"__gbfix_watch__": watcher.watch}
    exec(compile(tree, "f.py", "exec"), names)
    for arguments in calls:
        names["f"](*arguments)
    return watcher.seen


def test_arms_that_were_taken() -> None:
    seen = watched(ORIGINAL, (torch.ones(2), False), (torch.full((2,), -90.0), True))
    taken = sorted((s.branch.kind, s.taken, s.by_tensor) for s in seen)
    assert taken == [
        ("assert", True, True),
        ("if", False, False),
        ("if", True, False),
        ("ternary", False, True),
        ("ternary", True, True),
        ("while", False, True),
        ("while", True, True),
    ]


def test_coverage_names_what_is_missing() -> None:
    found = coverage((), watched(ORIGINAL, (torch.ones(2), True)), ["f.py"])
    assert str(found) == "2 of 4"
    assert found.missing == (
        "f.py:6: false arm of `x.sum() > 0`",
        "f.py:7: body arm of `y.sum() > 100`",
    )


def test_branches_that_a_rewrite_touches() -> None:
    rewritten = ORIGINAL.replace(
        "    y = x if x.sum() > 0 else -x\n", "    y = torch.where(x.sum() > 0, x, -x)\n"
    )
    assert [b.line for b in rewritten_branches("f.py", ORIGINAL, rewritten)] == [6]
    guarded = ORIGINAL.replace(
        "    while", "    if torch.compiler.is_compiling():\n        pass\n    while"
    )
    assert [b.line for b in rewritten_branches("f.py", ORIGINAL, guarded)] == [7]
    indented = ORIGINAL.replace(
        "    if training:\n        x = x * 2\n", "    if training:\n          x = x * 2\n"
    )
    assert not rewritten_branches("f.py", ORIGINAL, indented)


def test_only_what_a_target_uses_concerns_it() -> None:
    text = "def a():\n    return b()\n\n\ndef b():\n    pass\n\n\ndef c():\n    pass\n"
    lines = concerned([("m.py", text)], "a")["m.py"]
    assert {line for part in lines for line in part} == {1, 2, 5, 6}


# Comparison


def shot(value: Any, **more: Any) -> CallShot:
    return CallShot(leaves(value, "result"), **more)


def kinds(mine: CallShot, theirs: CallShot, tolerance: Tolerance | None = None) -> list[Kind]:
    return [d.kind for d in differences("eager", [mine], [theirs], tolerance)]


@pytest.mark.parametrize(
    ("logged", "kind"),
    [
        ("tensor(1.)", Kind.EFFECT_GRAD_FN),
        ("tensor(2.)", Kind.EFFECT_NUMBERS),
        ("nothing", Kind.EFFECT),
    ],
)
def test_what_is_said_may_show_no_history(logged: str, kind: Kind) -> None:
    said = ("tensor(1., grad_fn=<MaxBackward1>)", logged)
    mine, theirs = (CallShot(effects=Effects(logged=(text,))) for text in said)
    assert kinds(mine, theirs) == [kind]


@pytest.mark.parametrize(
    ("mine", "theirs", "kind"),
    [
        (torch.ones(2), torch.ones(2) + 1e-7, Kind.VALUE),
        (torch.zeros(2), -torch.zeros(2), Kind.VALUE),
        (torch.ones(2), torch.ones(3), Kind.SHAPE),
        (torch.ones(2), torch.ones(2).half(), Kind.DTYPE),
        (torch.ones(2, 3), torch.ones(3, 2).t(), Kind.STRIDE),
        (torch.ones(2), torch.ones(2, requires_grad=True), Kind.REQUIRES_GRAD_GAINED),
        ((1, 2), [1, 2], Kind.VALUE),
        (1, True, Kind.VALUE),
        (1.0, 1.5, Kind.VALUE),
        ({"a": torch.ones(1)}, {"b": torch.ones(1)}, Kind.STRUCTURE),
        (torch.ones(1), 1.0, Kind.STRUCTURE),
        (None, torch.ones(1), Kind.VALUE),
        (torch.nn.Parameter(torch.ones(1)), torch.ones(1), Kind.STRUCTURE),
    ],
)
def test_a_difference_and_its_kind(mine: Any, theirs: Any, kind: Kind) -> None:
    assert kind in kinds(shot(mine), shot(theirs))


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([float("nan"), float("inf")]),
        float("nan"),
        (1, "a", None),
        torch.ones(0),
        {1, 2},
    ],
)
def test_equal_values_do_not_differ(value: Any) -> None:
    assert not kinds(shot(value), shot(value))


def test_strides_of_single_elements_mean_nothing() -> None:
    one = torch.ones(1, 4)
    other = torch.empty_strided((1, 4), (99, 1)).fill_(1)
    assert not kinds(shot(one), shot(other))


def test_exceptions_are_told_apart() -> None:
    own = shot(None, raised=Raised("ValueError", "bad"))
    assert kinds(own, shot(None, raised=Raised("ValueError", "bad"))) == []
    assert kinds(own, shot(None, raised=Raised("RuntimeError", "bad"))) == [Kind.EXCEPTION_TYPE]
    compiler = Raised("Unsupported", "bad", by_compiler=True)
    assert kinds(own, shot(None, raised=compiler)) == [Kind.EXCEPTION]
    assert kinds(own, shot(None)) == [Kind.EXCEPTION_SKIPPED]
    assert kinds(shot(None), own) == [Kind.EXCEPTION]


def test_aliases_are_found_by_memory() -> None:
    x = torch.ones(4)
    found = aliases([("argument", x), ("result", x[:2]), ("other", torch.ones(4))])
    assert found == {
        "argument": "shares memory with result",
        "result": "shares memory with argument",
    }


# Tolerance


def test_tolerance_is_the_original_s_own_error() -> None:
    exact = torch.tensor([1.0, 2.0, 3.0])
    eager, near, far = shot(exact), shot(exact + 1e-5), shot(exact * 1.001)
    assert kinds(eager, near, derive([eager], [eager], []))
    assert not kinds(eager, near, derive([eager], [near], []))
    assert kinds(eager, far, derive([eager], [near], []))
    reference = shot(exact.double() + 1e-5)
    assert not kinds(eager, near, derive([eager], [eager], [reference]))


def test_reference_on_another_way_through_the_code_is_no_measure() -> None:
    exact = torch.tensor([1.0, 2.0, 3.0])
    reference = shot(exact.double() * 1.04)
    tolerance = derive([shot(exact)], [shot(exact)], [reference])
    assert kinds(shot(exact), shot(exact * 1.01), tolerance)


def test_nan_on_one_side_is_a_difference() -> None:
    tolerance = derive([shot(torch.ones(2))], [], [])
    assert kinds(shot(torch.ones(2)), shot(torch.tensor([1.0, float("nan")])), tolerance)


# Inputs


def test_search_learns_sizes_from_errors() -> None:
    layer = torch.nn.Linear(37, 2)

    def attempt(call: CallRecipe) -> str | None:
        try:
            layer(*call.make()[0])
        except RuntimeError as error:
            return str(error)
        return None

    found = search(parameters(layer), [], attempt)
    (recipe,) = found.call.args
    assert isinstance(recipe, TensorRecipe) and recipe.shape[-1] == 37


def test_search_gives_up_in_the_end() -> None:
    with pytest.raises(NoInputs, match="never"):
        search([Parameter("x", ("float32",))], [], lambda call: "never")


def test_parameters_are_read_from_annotations_names_and_defaults() -> None:
    def function(x: torch.Tensor, n: int, attention_mask, ids, use_cache, scale=1.0, *rest):  # type: ignore[no-untyped-def]
        pass

    found = {p.name: p for p in parameters(function)}
    assert found["x"].dtypes[0] == "float32" and found["x"].values == ("None",)
    assert found["n"].values[0] == "2" and not found["n"].dtypes
    assert found["attention_mask"].dtypes[0] == "bool"
    assert found["ids"].dtypes[0] == "int64"
    assert found["use_cache"].values == ("True", "False")
    assert found["scale"].optional and "rest" not in found


def test_a_mask_that_has_to_be_given_may_be_none() -> None:
    """Arguments after the first are tried as None together, before shapes are drawn."""

    def function(x: torch.Tensor, mask: torch.Tensor, heads: torch.Tensor) -> None:
        pass

    def attempt(call: CallRecipe) -> str | None:
        return None if [str(recipe) for recipe in call.recipes[1:]] == ["None", "None"] else "no"

    found = search(parameters(function), [], attempt)
    assert isinstance(found.call.recipes[0], TensorRecipe)


def test_recipes_make_what_they_say() -> None:
    call = CallRecipe(
        (TensorRecipe((2, 3), "bfloat16", "zeros"), ValueRecipe("2")),
        (("mask", TensorRecipe((4,), "bool", "ones")),),
    )
    args, kwargs = call.make()
    assert args[0].dtype is torch.bfloat16 and not args[0].any() and args[1] == 2
    assert kwargs["mask"].all()
    assert str(call) == "(bfloat16[2, 3] zeros, 2, mask=bool[4] ones)"
    again = call.make()[0][0]
    assert torch.equal(args[0], again)


def test_inputs_may_be_given_in_several_ways() -> None:
    assert normalised([(1, 2), ((1,), {"b": 2}), {"a": 1}, [3], 4]) == [
        ((1, 2), {}),
        ((1,), {"b": 2}),
        ((), {"a": 1}),
        ((3,), {}),
        ((4,), {}),
    ]
    assert hints_in("mat1 and mat2 shapes cannot be multiplied (4x5 and 37x2)") == [4, 5, 37, 2]


# The rest


def test_fewer_breaks_counts_places_before_fragments() -> None:
    def capture(*lines: int, kind: str = "splits") -> Capture:
        found = tuple(Break("f.py", line, None, "", kind) for line in lines)
        return Capture(1, 1, found, (), 0)

    assert fewer_breaks(capture(1, 2), capture(1))
    assert fewer_breaks(capture(1, 1), capture(1))
    assert fewer_breaks(capture(1, kind="skips the frame"), capture(1))
    assert not fewer_breaks(capture(1), capture(2))
    assert not fewer_breaks(capture(), capture())


def test_splice_takes_one_definition() -> None:
    before = "import os\n\n\ndef a():\n    return 1\n\n\n@deco\ndef b():\n    return 1\n"
    after = before.replace("return 1", "return 2").replace("import os", "import torch\nimport os")
    assert splice(after, before, "b") == after[:-2] + "1\n"
    assert splice(after, before + "c = 1\n", "b") is None
    assert splice(after, before, "nothing") is None


def test_targets_are_taken_apart(tmp_path: Any) -> None:
    file = tmp_path / "m.py"
    file.write_text("")
    assert parse(f"{file}:f") == (file, "", "f")
    assert parse(str(file)) == (file, "", "")
    assert parse("a.b:C") == (None, "a.b", "C")
    for wrong in ("a.b", "a.b:", "nowhere.py", "a-b:C", ""):
        with pytest.raises(UserError):
            parse(wrong)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(2, 3),
        torch.tensor(1.5),
        torch.zeros(0, 4),
        torch.tensor([True, False]),
        torch.tensor([1, 2], dtype=torch.uint8),
        torch.randn(3, dtype=torch.bfloat16),
        torch.randn(3, dtype=torch.complex64),
        torch.randn(2, 3).t(),
        torch.tensor([float("nan"), float("inf"), -0.0]),
    ],
    ids="matrix single empty bool uint8 bfloat16 complex turned special".split(),
)
def test_what_was_seen_of_a_tensor_can_be_sent(tensor: torch.Tensor) -> None:
    shot = tensor_shot(tensor)
    other = pickle.loads(pickle.dumps(shot))
    assert (other.dtype, other.shape, other.stride) == (shot.dtype, shot.shape, shot.stride)
    assert other.values.dtype == shot.values.dtype
    assert other.values.shape == shot.values.shape
    assert torch.equal(_bits(other.values), _bits(shot.values))


def test_one_call_is_made_as_among_all() -> None:
    recipes = tuple(CallRecipe((TensorRecipe((2,), seed=seed),)) for seed in range(3))
    for inputs in (Inputs(recipes=recipes), Inputs(recipes=recipes, only=(0, 2))):
        for number, (args, _) in enumerate(inputs.make()):
            assert inputs.make_one(number)[0][0].equal(args[0])


@pytest.fixture
def levels() -> Iterator[None]:
    """What is logged at which level, as it was before."""
    loggers = logging.getLogger(), logging.getLogger("torch")
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("levels")
def test_what_torch_tells_of_a_graph_that_fails_is_no_output() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x.view(7))
    heard = Listener()
    with heard.listening(), pytest.raises(RuntimeError):
        print("mine", file=sys.stderr)
        graph.print_readable()
        graph(torch.ones(2))
    assert heard.effects.stderr == ("mine",)
    assert any("view" in line for line in heard.effects.stdout)


def test_what_does_not_change_is_sent_once() -> None:
    torch.manual_seed(0)
    layer = torch.nn.BatchNorm1d(4096)
    weights = torch.nn.Linear(64, 64)
    shots, last = [], {}
    for number in range(8):
        layer(torch.randn(4, 4096))
        found = leaves({"weight": weights.weight, "bias": layer.bias}, "state")
        found |= leaves(layer.running_mean, "state.mean")
        if number == 4:
            with torch.no_grad():
                layer.bias.view(torch.int32)[0] = -(2**31)  # a negative zero
            found |= leaves(layer.bias, "state['bias']")
        share(found, last)
        last |= found
        shots.append(found)
    size = 4 * 64 * 64
    content = pickle.dumps(shots)
    # One weight, two biases and eight means.
    assert 11 * 4 * 4096 < len(content) < 12 * 4 * 4096 and size == 4 * 4096
    for mine, theirs in zip(shots, pickle.loads(content), strict=True):
        assert mine.keys() == theirs.keys()
        for place, leaf in mine.items():
            if not isinstance(leaf, str | float):
                assert leaf.is_like(theirs[place]), place
    assert shots[3]["state['bias']"] is shots[0]["state['bias']"]
    assert shots[4]["state['bias']"] is not shots[3]["state['bias']"]
    assert shots[5]["state['bias']"] is shots[4]["state['bias']"]
    assert shots[5]["state.mean"] is not shots[4]["state.mean"]


@pytest.mark.parametrize(
    "other",
    [
        torch.ones(2, 2, dtype=torch.float64),
        torch.ones(4),
        torch.ones(2, 2).t().contiguous().requires_grad_(),
        torch.full((2, 2), 2.0),
        torch.nn.Parameter(torch.ones(2, 2), requires_grad=False),
    ],
    ids="dtype shape gradient values type".split(),
)
def test_what_changes_in_anything_is_sent_again(other: torch.Tensor) -> None:
    assert tensor_shot(torch.ones(2, 2)).is_like(tensor_shot(torch.ones(2, 2)))
    assert not tensor_shot(torch.ones(2, 2)).is_like(tensor_shot(other))
