"""Makes runs one after the other in one process, as long as none leaves anything behind there.

Runs in a worker. Which runs may be made so is decided by those who ask for it.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from gbfix.dynamo.control import reset
from gbfix.verify.execute import run
from gbfix.verify.messages import RunSpec

# What a run may import without a trace: what the compiler uses itself.
_COMPILERS = frozenset({"torch", "functorch", "sympy", "mpmath", "numpy", "gbfix"})
_KNOWN = _COMPILERS | sys.stdlib_module_names
# After this much the others had better begin in processes of their own, which cost little beside it.
_MOST_SECONDS = 2.0
_MOST_MEMORY = 1 << 29


def run_each(*specs: RunSpec) -> tuple[bytes, ...]:
    """The pickled records of runs; fewer, if one leaves something that the next would find.

    They are also fewer if those that have been made take long, or much memory.
    """
    records: list[bytes] = []
    end, most = time.monotonic() + _MOST_SECONDS, _most_memory() + _MOST_MEMORY
    for spec in specs:
        module = spec.side.target.module
        before = _found()
        record = run(spec)
        records.append(pickle.dumps(record))
        # So that the next run imports its file again.
        sys.modules.pop(module, None)
        reset()  # what `torch.cond` compiles in eager
        # Torch gives many a warning only once in a process.
        if record.warned or _found() != before:
            break
        if time.monotonic() > end or _most_memory() > most:
            break
    return tuple(records)


def _most_memory() -> int:
    """The most memory, in bytes, that this process has had so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


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
        torch.is_autocast_enabled("cpu"),
        list(warnings.filters),
    )
