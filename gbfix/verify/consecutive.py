"""Makes runs one after the other in one process, as long as none leaves anything behind there.

Runs in a worker. Which runs may be made so is decided by those who ask for it.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import torch

from gbfix.verify.execute import run
from gbfix.verify.messages import RunSpec

# What a run may import without a trace: what the compiler uses itself.
_COMPILERS = frozenset({"torch", "functorch", "sympy", "mpmath", "numpy", "gbfix"})
_KNOWN = _COMPILERS | sys.stdlib_module_names


def run_each(*specs: RunSpec) -> tuple[bytes, ...]:
    """The pickled records of runs; fewer, if one leaves something that the next would find."""
    records: list[bytes] = []
    for spec in specs:
        module = spec.side.target.module
        before = _found()
        records.append(pickle.dumps(run(spec)))
        # So that the next run imports its file again.
        sys.modules.pop(module, None)
        if _found() != before:
            break
    return tuple(records)


def _found() -> tuple[Any, ...]:
    """What code finds in its process that code before it may have set, as far as it can be told."""
    return (
        {name for name in sys.modules if name.partition(".")[0] not in _KNOWN},
        dict(os.environ),
        Path.cwd(),
        threading.active_count(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
    )
