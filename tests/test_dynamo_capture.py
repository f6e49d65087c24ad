"""What `gbfix.dynamo.capture` sees of a compiled call."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable

import pytest
import torch

from gbfix.dynamo.capture import Arguments, capture, is_compile_error, recording

X: Arguments = ((torch.ones(3),), {})


def branch(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def helper(x: torch.Tensor) -> torch.Tensor:
    print("sum", x.sum())
    return x + 1


def caller(x: torch.Tensor) -> torch.Tensor:
    return helper(x * 2) * 3


def loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        if x.sum() > 0:
            x = x - 1
    return x


def one_graph(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1)


def line_of(function: Callable[..., object], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_branch_is_named_by_place_and_registry_entry() -> None:
    found = capture(branch, [X])
    assert found.sites == ((__file__, line_of(branch, "if y.sum()")),)
    assert found.breaks[0].registry == "GB0170"
    assert "Data-dependent branching" in found.breaks[0].reason
    assert found.graphs == 2
    assert found.fullgraph is False
    assert found.fullgraph_error


def test_break_in_a_helper_is_one_site_and_more_fragments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = capture(caller, [X])
    assert found.sites == ((__file__, line_of(helper, "print(")),)
    assert len(found.breaks) >= 2
    assert found.graphs >= 2


def test_break_in_a_loop_skips_the_frame() -> None:
    found = capture(loop, [X])
    assert found.breaks[0].kind == "skips the frame"
    assert found.sites == ((__file__, line_of(loop, "if x.sum()")),)
    assert found.graphs == 0


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_cond_is_one_graph(backend: str) -> None:
    found = capture(one_graph, [X], backend=backend)
    assert found.whole
    assert (found.graphs, found.fullgraph, found.recompiles) == (1, True, 0)
    assert found.operators >= 3


def test_recompiles_are_counted_over_calls() -> None:
    calls: list[Arguments] = [((torch.ones(n),), {}) for n in (2, 3, 4, 2)]
    assert capture(one_graph, calls, dynamic=False).recompiles == 2
    assert capture(one_graph, calls).recompiles == 1


def test_exception_of_the_function_is_passed_on() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError(f"wrong shape {x.shape}")

    with pytest.raises(ValueError, match="wrong shape"):
        capture(fails, [X])


def test_recording_redirects_a_decorator() -> None:
    with recording() as recorder:

        @torch.compile(mode="reduce-overhead")
        def function(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        function(torch.ones(2))
    assert recorder.capture().graphs == 1


def test_compile_error_is_told_from_an_error_of_the_code() -> None:
    with recording(fullgraph=True), pytest.raises(Exception) as caught:
        torch.compile(branch)(torch.ones(3))
    assert is_compile_error(caught.value)
    assert not is_compile_error(ValueError("x"))


def test_operators_left_out_are_counted_by_name() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum() > 0:
            y = y + y.max().item()
        return torch.nn.functional.linear(y, torch.ones(2, 3))

    with recording() as recorder:
        compiled = torch.compile(function)
        x = torch.ones(3)
        compiled(x)
        ran = recorder.counter.count(lambda: compiled(x))
    assert dict(ran.left_out) == {"aten::is_nonzero": 1, "aten::item": 1}
    # mul, sum, gt; max; add, ones, linear
    assert ran.captured == 7


def test_operators_of_a_skipped_frame_are_all_left_out() -> None:
    with recording() as recorder:
        compiled = torch.compile(loop)
        x = torch.ones(3)
        compiled(x)
        ran = recorder.counter.count(lambda: compiled(x))
    assert ran.captured == 0
    assert dict(ran.left_out)["aten::sum"] == 2


def test_compiling_meanwhile_is_not_counted() -> None:
    with recording(dynamic=False) as recorder:
        compiled = torch.compile(one_graph)
        compiled(torch.ones(3))
        x = torch.ones(5)
        ran = recorder.counter.count(lambda: compiled(x))
    assert ran.left_out == ()
    assert ran.captured >= 3


def test_fragments_say_what_is_in_each_graph_and_what_cut_it() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        if y.sum() > 0:
            y = torch.relu(y)
        print("between")
        return y + 1

    found = capture(function, [((torch.ones(3),), {})])
    assert [f.operators for f in found.fragments] == [("sin", "sum", "gt"), ("relu",), ("add",)]
    assert [f.cut_by for f in found.fragments] == [0, 1, None]
    assert found.breaks[0].line == function.__code__.co_firstlineno + 2
    assert {f.function for f in found.fragments} == {"function"}


class Keeping(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def test_what_logging_does_with_a_record_is_not_compiled() -> None:
    logger, keeping = logging.getLogger("tests.captured"), Keeping()
    logger.setLevel(logging.INFO)
    logger.addHandler(keeping)

    def logged(x: torch.Tensor) -> torch.Tensor:
        logger.info("mean %s", x.mean())
        return x * 2

    try:
        found = capture(logged, [X] * 4, check_fullgraph=False)
    finally:
        logger.removeHandler(keeping)
    assert keeping.texts == ["mean tensor(1.)"] * 4
    lines, first = inspect.getsourcelines(logging.Logger.info)
    asked = range(first, first + len(lines))
    inside = [place for place in found.breaks if place.file == logging.__file__]
    assert len(found.breaks) > len(inside) and all(place.line in asked for place in inside)
    assert found.recompiles == 0
    assert found.skips == ()
