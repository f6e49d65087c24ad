"""Has the compiler do what it does only once in a process, so that forks of the process need not.

Tables are made at a first compilation, modules are imported, and Python adapts the compiler's own code
to the types that it meets. What is compiled here is nobody's, and all of it is forgotten again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from gbfix.dynamo.control import comparable, reset
from gbfix.dynamo.machine import has_accelerator


def warm_up() -> None:
    """Compile next to nothing.

    With a device beside the CPU nothing is done: `convert_frame` asks for the state of its generator,
    and a device that is in use before a fork cannot be used after it. Seen on torch 2.13.
    """

    def nothing(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.sum() > 0, x + 1, x)

    if has_accelerator():
        return
    with comparable(), torch.no_grad():
        for dynamic in (False, True):
            torch.compile(nothing, backend="eager", dynamic=dynamic)(torch.ones(2))
            reset()


def warm_up_well() -> None:
    """Compile a layer with gradients and a branch that breaks, each for two sizes.

    It takes as long as a few compilations, so it is for those who make many.
    """
    if has_accelerator():
        return
    with comparable(), _without_threads(), torch.random.fork_rng(devices=()):
        reset()
        torch.manual_seed(0)
        layer = torch.compile(_layer(), backend="aot_eager")
        branch = torch.compile(_broken, backend="aot_eager")
        for rows in (2, 3):
            x = torch.randn(rows, 4, requires_grad=True)
            first, second = layer(x)
            branch(x)
            (first.sum() + second.sum()).backward()
        reset()


def warm_up_inductor() -> None:
    """Find out what Inductor asks at its first compilation in a process; all get the same answer.

    `codecache.torch_key`, a digest of torch's own sources, and `cpu_vec_isa.pick_vec_isa`, for which
    it compiles and loads programs. Seen on torch 2.13; without them each process asks for itself.
    """
    with contextlib.suppress(Exception):
        from torch._inductor.codecache import torch_key
        from torch._inductor.cpu_vec_isa import pick_vec_isa

        torch_key()
        pick_vec_isa()


@contextlib.contextmanager
def _without_threads() -> Iterator[None]:
    """Keep tqdm, through which `aot_eager` goes, from starting its monitor. Seen on torch 2.13."""
    bars: Any = sys.modules.get("tqdm")
    if bars is None:
        yield
        return
    with mock.patch.object(bars.tqdm, "monitor_interval", 0):
        yield


def _layer() -> Callable[..., Any]:
    """A module that does a little of most things."""

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.norm = torch.nn.LayerNorm(4)
            self.dropout = torch.nn.Dropout(0.1)
            self.limit = 1.0

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.dropout(self.norm(self.linear(x)))

            def larger(h: torch.Tensor) -> torch.Tensor:
                doubled: torch.Tensor = self.linear(h) * 2
                return doubled

            def smaller(h: torch.Tensor) -> torch.Tensor:
                return h.clone()

            predicate = hidden.abs().max() > self.limit
            hidden = torch.cond(predicate, larger, smaller, (hidden,))
            hidden = torch.where(x.sum() > 0, hidden + x, hidden)
            torch._assert_async(~torch.isnan(x).any(), "NaN")
            parts = [hidden[:, :2], hidden[:, 2:] * x.shape[0]]
            weighted: torch.Tensor = hidden.softmax(-1) @ x.t()
            return torch.cat(parts, 1).view(-1), weighted

    return Layer()


def _broken(x: torch.Tensor) -> torch.Tensor:
    doubled = x * 2
    if doubled.sum() > 0:
        doubled = doubled + 1
    return doubled
