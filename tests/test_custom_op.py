"""Operators that `--fix-with custom-op` writes pass torch's own check of operators."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from gbfix.cli.main import app
from gbfix.errors import UserError
from tests.fixture_case import FIXTURES

X = torch.linspace(-2, 3, 12).reshape(3, 4)
SAMPLES: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "peak": ("_peak_normalize_op", lambda: (X.clone().requires_grad_(), 1e-6)),
    "peak, transposed": ("_peak_normalize_op", lambda: (X.t(), 1e-6)),
    "numpy": ("_smooth_op", lambda: (X.clone(), -1.0, 1.0)),
    "numpy_tracked": ("_ranks_op", lambda: (X.clone(),)),
    "static_shape": ("_histogram_op", lambda: (X.abs() / 4, 5)),
    "in_place": ("_settle_op", lambda: (X.clone(), 0.5)),
    "in_place_only": ("_clear_rows_op", lambda: (X.clone(), 0.5)),
    "two_tensors": (
        "_weigh_op",
        lambda: (X.clone().requires_grad_(), torch.ones(4, requires_grad=True), None, 2),
    ),
    "segments": ("_segment_mask_op", lambda: (torch.tensor([[0, 1, 3, 2], [2, 0, 0, 1]]),)),
    "method": ("_scaled_forward_result_op", lambda: (X.clone().requires_grad_(),)),
    "block": (
        "_damp_forward_result_op",
        lambda: (X.clone().requires_grad_(), X.sin().requires_grad_(), 2.0),
    ),
    "block_gradient": ("_step_y_op", lambda: (X.clone().requires_grad_(), 0.5)),
    "block_in_place": ("_step_update_op", lambda: (torch.arange(4.0), torch.zeros(3))),
    "like_dtype": ("_suppressed_op", lambda: (X, X.sum(1), 0.5)),
    "disabled": ("_kept_boxes_op", lambda: (X, X.sum(1))),
    "method_loop": ("_nms_suppress_keep_op", lambda: (X, X.sum(1), 0.5)),
    "two_results": ("_split_peaks_op", lambda: (X.clone(),)),
}


@pytest.fixture
def load() -> Iterator[Callable[[str], Any]]:
    """Import a rewritten fixture."""
    loaded: list[str] = []

    def load_fixture(name: str) -> Any:
        spec = importlib.util.spec_from_file_location(
            f"checked_{name}", FIXTURES / f"custom_op_{name}" / "after.py"
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        loaded.append(spec.name)
        spec.loader.exec_module(module)
        return module

    yield load_fixture
    for name in loaded:
        del sys.modules[name]


@pytest.mark.parametrize("sample", SAMPLES)
def test_opcheck(sample: str, load: Callable[[str], Any]) -> None:
    operator, arguments = SAMPLES[sample]
    module = load(sample.partition(",")[0])
    found = torch.library.opcheck(getattr(module, operator), arguments())
    assert set(found.values()) == {"SUCCESS"}


def test_every_fixture_that_is_rewritten_is_checked() -> None:
    rewritten = {
        folder.name.removeprefix("custom_op_")
        for folder in FIXTURES.glob("custom_op_*")
        if (folder / "after.py").read_bytes() != (folder / "before.py").read_bytes()
    }
    assert rewritten == {sample.partition(",")[0] for sample in SAMPLES}


def test_where_the_conditions_do_not_hold_the_original_is_compiled(
    load: Callable[[str], Any],
) -> None:
    step = load("peak").step
    whole = torch.arange(12).reshape(3, 4)
    compiled = torch.compile(lambda x: step(x) + 1, backend="eager")
    assert torch.equal(compiled(whole), step(whole) + 1)


def test_an_unknown_fix_is_an_error() -> None:
    done = CliRunner().invoke(app, ["apply", "--fix-with", "custom-opp", "."])
    assert isinstance(done.exception, UserError)
    assert "custom-opp" in str(done.exception) and "did you mean `custom-op`?" in str(
        done.exception
    )
