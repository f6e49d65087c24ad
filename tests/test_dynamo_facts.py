"""What the rewrites rely on in Dynamo, run again on whatever torch is installed.

Each of these was measured on torch 2.13. If one fails, the comment says which part of the tool
stands on it.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Start each test with an empty Dynamo."""
    torch._dynamo.reset()


class Store(nn.Module):
    """Stores a buffer after a `cond` whose arms read it, directly or through a local."""

    def __init__(self, local: bool) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(2))
        self.local = local

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.local:
            state = self.state
            self.state = torch.cond(x.sum() > 0, lambda: state + x, lambda: state - x)
        else:
            self.state = torch.cond(x.sum() > 0, lambda: self.state + x, lambda: self.state - x)
        return x * 2


class Append(nn.Module):
    """Appends to a list after a `cond` whose arms read it, first met inside or outside."""

    def __init__(self, outside: bool) -> None:
        super().__init__()
        self.history = [torch.zeros(2)]
        self.outside = outside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.outside:
            last = self.history[-1]
            y = torch.cond(x.sum() > 0, lambda: last + x, lambda: last - x)
        else:
            y = torch.cond(x.sum() > 0, lambda: self.history[-1] + x, lambda: x * 1)
        self.history.append(y)
        return y


def _compiled(module: nn.Module) -> nn.Module:
    torch.compile(module, backend="eager", fullgraph=True)(torch.ones(2))
    return module


def test_store_is_kept_when_the_object_was_met_outside() -> None:
    """`cond` reads attributes into locals before the call, because of the next two tests."""
    assert _compiled(Store(local=True)).state.tolist() == [1.0, 1.0]
    assert len(_compiled(Append(outside=True)).history) == 2


@pytest.mark.parametrize("module", [Store(local=False), Append(outside=False)])
def test_store_is_lost_when_the_object_was_met_in_an_arm(module: nn.Module) -> None:
    """Dynamo forgets what is done to an object that it first met inside an arm, without a word.

    A failure here is good news: the reading of attributes before the call is no longer needed.
    """
    _compiled(module)
    kept = module.state.tolist() == [1.0, 1.0] if isinstance(module, Store) else False
    assert not kept
    if isinstance(module, Append):
        assert len(module.history) == 1


def test_gradients_through_while_loop_are_wrong_where_no_round_runs() -> None:
    """Why a loop is left as it is where gradients pass through it."""

    def halve(x: torch.Tensor) -> torch.Tensor:
        h = x * 2
        (h,) = torch._higher_order_ops.while_loop(lambda h: h.sum() > 100, lambda h: (h / 2,), (h,))
        return h

    found = []
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        x = torch.ones(3, requires_grad=True)
        torch.compile(halve, backend=backend, fullgraph=True)(x).sum().backward()
        assert x.grad is not None
        found.append(x.grad[0].item())
    assert 2.0 not in found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_check_in_an_arm_runs_where_the_arm_does(backend: str) -> None:
    """Why an arm of `torch.cond` may hold a check."""

    def checked(x: torch.Tensor) -> torch.Tensor:
        def positive() -> torch.Tensor:
            torch._assert_async((x > 0).all(), "not positive")
            return x.log()

        return torch.cond(x.sum() != 0, positive, lambda: x * 2)

    compiled = torch.compile(checked, backend=backend, fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [0.0, 0.0]
    assert compiled(torch.zeros(2)).tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="not positive"):
        compiled(-torch.ones(2))


def test_a_place_without_dimensions_cannot_be_read_in_an_arm() -> None:
    """Why `rows[n]` is written as `rows[n.reshape(1)][0]` in an arm."""

    def taken(rows: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return torch.cond(n > 0, lambda: rows[n] * 2, lambda: rows[0] * 3)

    def written(rows: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return torch.cond(n > 0, lambda: rows[n.reshape(1)][0] * 2, lambda: rows[0] * 3)

    rows, n = torch.arange(6.0).reshape(3, 2), torch.tensor(2)
    with pytest.raises(Exception, match=r"_local_scalar_dense|specialized integer"):
        torch.compile(taken, backend="eager")(rows, n)
    torch._dynamo.reset()
    result = torch.compile(written, backend="eager", fullgraph=True)(rows, n)
    assert result.tolist() == [8.0, 10.0]
