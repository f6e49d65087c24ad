"""Has the compiler do what it does only once in a process, so that forks of the process need not.

Tables are made at a first compilation, modules are imported, and Python adapts the compiler's own code
to the types that it meets. What is compiled here is nobody's, and all of it is forgotten again.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch

from gbfix.dynamo.control import comparable, reset
from gbfix.dynamo.machine import has_accelerator


def warm_up() -> None:
    """Compile next to nothing: with fixed and with free sizes, and through AOTAutograd with gradients.

    More would take as long as it spares many runs. With a device beside the CPU nothing is compiled:
    `convert_frame` asks for the state of its generator, and a device that is in use before a fork
    cannot be used after it. Seen on torch 2.13.
    """

    def nothing(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.sum() > 0, x + 1, x)

    _make_room()
    _start_no_monitor()
    if has_accelerator():
        return
    with comparable():
        with torch.no_grad():
            for dynamic in (False, True):
                torch.compile(nothing, backend="eager", dynamic=dynamic)(torch.ones(2))
                reset()
        compiled = torch.compile(nothing, backend="aot_eager")
        torch.autograd.backward(compiled(torch.ones(2, requires_grad=True)).sum())
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


def _make_room() -> None:
    """Have pybind11's table of objects grow now if it is nearly full; it touches them all to grow."""
    made = [torch._C.DispatchKeySet(torch._C.DispatchKey.CPU) for _ in range(4096)]
    del made


def _start_no_monitor() -> None:
    """Keep tqdm, through which `aot_eager` goes, from starting a thread. Seen on torch 2.13."""
    bars: Any = sys.modules.get("tqdm")
    if bars is not None:
        bars.tqdm.monitor_interval = 0
