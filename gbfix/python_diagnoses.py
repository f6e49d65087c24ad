"""The diagnoses of Python that Dynamo does not trace: side effects, and the world outside the graph.

What is listed here breaks a graph, or makes Dynamo skip the whole frame, on torch 2.13; the probes
show it.
"""

from __future__ import annotations

from gbfix.diagnosis import Diagnosis

MEASUREMENT = Diagnosis(
    "GBF204",
    "measurement",
    "a clock or a memory counter is read inside a compiled region",
    "The functions of `time`, `datetime.now` and the memory statistics of CUDA are C code that Dynamo "
    "does not trace. What a graph would measure is also of little use: a compiled region has no "
    "points in time at which its parts begin or end.",
    ("GB0007", "GB0156", "GB0208"),
    probe="""\
import time


def probe(x):
    x = x * 2
    start = time.perf_counter()
    x = x + 1
    return x * 3, start
""",
)
PROGRESS_BAR = Diagnosis(
    "GBF205",
    "progress-bar",
    "a progress bar inside a compiled region",
    "A progress bar writes to the terminal and reads the clock. Dynamo cannot trace it, and a break "
    "inside a loop makes it give up the whole frame.",
    ("GB0007", "GB0008", "GB0142"),
    probe="""\
from tqdm import tqdm


def probe(x):
    for _ in tqdm(range(2), disable=True):
        x = x * 2
    return x
""",
)
HOUSEKEEPING = Diagnosis(
    "GBF206",
    "housekeeping-call",
    "the garbage collector or a pause is called inside a compiled region",
    "`gc.collect` and `time.sleep` act on the process and not on tensors; they are C functions that "
    "Dynamo does not trace.",
    ("GB0007",),
    probe="""\
import gc


def probe(x):
    x = x * 2
    gc.collect()
    return x * 3
""",
)
DEBUGGER = Diagnosis(
    "GBF207",
    "debugger-call",
    "a debugger is started inside a compiled region",
    "`breakpoint()` and `set_trace()` stop the program for a person, which no graph can do.",
    ("GB0059", "GB0007"),
    probe="""\
import sys

sys.breakpointhook = lambda *args, **options: None


def probe(x):
    x = x * 2
    breakpoint()
    return x * 3
""",
)
FILE_ACCESS = Diagnosis(
    "GBF208",
    "file-access",
    "a file is opened, read or written inside a compiled region",
    "Files are outside of any graph: `open`, `torch.save`, `numpy.save` and the like break it.",
    ("GB0059", "GB0142", "GB0007", "GB0294"),
    probe="""\
import io

import torch


def probe(x):
    x = x * 2
    torch.save(x, io.BytesIO())
    return x * 3
""",
)
RANDOM_CALL = Diagnosis(
    "GBF301",
    "random-call",
    "random numbers of Python or NumPy are drawn inside a compiled region",
    "Dynamo replays `random.uniform`, `random.randint` and `random.randrange` before each call of the "
    "graph and passes the numbers in. It does so for no other function of `random`, and not for "
    "`numpy.random`. A branch, a slice or a loop that such a number decides breaks the graph too.",
    ("GB0007", "GB0033", "GB0156", "GB0170", "GB0294"),
    probe="""\
import random


def probe(x):
    x = x * 2
    x = x + random.gauss(0.0, 1.0)
    return x * 3
""",
)
SEEDING = Diagnosis(
    "GBF302",
    "seeding",
    "the state of a random generator is read or set inside a compiled region",
    "A graph has no place at which the state of a generator could be exchanged: `torch.manual_seed`, "
    "`get_rng_state`, `set_rng_state` and `fork_rng` break it.",
    ("GB0007", "GB0142", "GB0208", "GB7650", "GB0055"),
    probe="""\
import torch


def probe(x):
    x = x * 2
    torch.manual_seed(3)
    return x * 3
""",
    advice="a generator can be seeded before what is compiled runs",
)
PROCESS_PROBE = Diagnosis(
    "GBF303",
    "process-probe",
    "the machine or the process is asked for something that stays the same",
    "Dynamo does not trace the C functions of `os` and `socket`, or the counts of devices and threads. "
    "It also ignores `functools.lru_cache` and traces the cached function, so that a cache does not "
    "help.",
    ("GB0007", "GB0208"),
    probe="""\
import os


def probe(x):
    x = x * 2
    x = x * os.cpu_count()
    return x + 1
""",
)
OBJECT_COPY = Diagnosis(
    "GBF304",
    "object-copy",
    "a tensor is copied with `copy.deepcopy`, or an object with `copy.copy`",
    "Dynamo traces `copy.deepcopy` of plain objects, but not of tensors, and never `copy.copy`.",
    ("GB4198", "GB0007", "GB0208"),
    probe="""\
import copy


def probe(x):
    x = copy.deepcopy(x * 2)
    return x * 3
""",
)
CLASS_DEFINITION = Diagnosis(
    "GBF305",
    "class-definition",
    "a class is defined inside a compiled function",
    "Dynamo does not trace `class` statements; it ends the graph, makes the class in Python, and "
    "starts another graph.",
    ("GB8977",),
    probe="""\
def probe(x):
    x = x * 2

    class Pair:
        def __init__(self, first):
            self.first = first

    return Pair(x).first * 3
""",
)
STORAGE_QUERY = Diagnosis(
    "GBF306",
    "storage-query",
    "the address or the origin of a tensor's memory is asked for",
    "While tracing, tensors have no memory: an address in arithmetic or in a comparison, "
    "`is_inference`, `is_pinned`, `is_shared` and `storage_offset` have no answer. Where the answer "
    "decides a branch, Dynamo may skip the whole frame.",
    ("GB0045", "GB0046", "GB0088", "GB0208", "GB5976"),
    probe="""\
def probe(x):
    x = x * 2
    if x.data_ptr() % 16 == 0:
        x = x + 1
    return x * 3
""",
)
RECURRENT_LAYER = Diagnosis(
    "GBF307",
    "recurrent-layer",
    "an `nn.RNN`, `nn.GRU` or `nn.LSTM` is called inside a compiled region",
    "Dynamo refuses to look at these modules: reading the attribute that holds one is the break. Where "
    "that happens in the outermost function the whole frame is skipped, and nothing in it is "
    "compiled. The functions behind the modules, `torch.gru` and its like, are traced.",
    ("GB0014",),
    probe="""\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.GRU(3, 3)

    def forward(self, x):
        out, _ = self.layer(x.reshape(1, 1, 3) * 2)
        return out * 3


probe = Net()
""",
)
AUTOGRAD_CALL = Diagnosis(
    "GBF308",
    "autograd-call",
    "gradients are asked for inside a compiled region",
    "`Tensor.backward`, `torch.autograd.grad` and `retain_grad` work on the graph of autograd, which "
    "does not exist yet while Dynamo traces.",
    ("GB0123", "GB9186", "GB0108"),
    probe="""\
import torch

weight = torch.ones(3, requires_grad=True)


def probe(x):
    y = x * weight
    y.retain_grad()
    return y * 3
""",
)
LIBRARY_CHECK = Diagnosis(
    "GBF309",
    "library-check",
    "a function of torch checks the values of its arguments",
    "The branch on tensor data is inside torch: `gaussian_nll_loss` looks for negative variances, "
    "`clip_grad_norm_` with `error_if_nonfinite` for a norm that is not finite, a distribution made "
    "with `validate_args=True` for arguments out of range.",
    ("GB0033", "GB0170"),
    probe="""\
import torch


def probe(x):
    x = x * 2
    return torch.nn.functional.gaussian_nll_loss(x, x, x.abs()) * 3
""",
)
DISABLED_FUNCTION = Diagnosis(
    "GBF310",
    "disabled-function",
    "a function that is marked `torch.compiler.disable` is called",
    "The mark says that the function shall run in Python. The graph ends before the call.",
    ("GB0098", "GB0099"),
    probe="""\
import torch


@torch.compiler.disable
def shift(x):
    return x + 1


def probe(x):
    return shift(x * 2) * 3
""",
)
SPARSE_TENSOR = Diagnosis(
    "GBF311",
    "sparse-tensor",
    "a sparse tensor is made or used inside a compiled region",
    "Dynamo does not represent tensors with a sparse layout.",
    ("GB0015", "GB0277"),
    probe="""\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.adjacency = torch.eye(3).to_sparse()

    def forward(self, x):
        return torch.sparse.mm(self.adjacency, x[:, None] * 2) * 3


probe = Net()
""",
)
UNTRACED_CALL = Diagnosis(
    "GBF312",
    "untraced-call",
    "a function is called that Dynamo does not trace",
    "Frames of the stack, threads, context variables, hashes, heaps and much else of the standard "
    "library is C code or code that Dynamo skips, and so is some of torch: what makes parameters, "
    "layers and nested tensors, or resizes a tensor.",
    (
        "GB0007",
        "GB0013",
        "GB0055",
        "GB0059",
        "GB0126",
        "GB0147",
        "GB0156",
        "GB0208",
        "GB0264",
        "GB0294",
    ),
    probe="""\
import bisect


def probe(x):
    x = x * 2
    x = x * bisect.bisect_left([4, 8, 16], x.shape[0])
    return x + 1
""",
    advice="what it gives can be made before what is compiled runs, and be passed in or kept",
)
PYTHON_DIAGNOSES = (
    MEASUREMENT,
    PROGRESS_BAR,
    HOUSEKEEPING,
    DEBUGGER,
    FILE_ACCESS,
    RANDOM_CALL,
    SEEDING,
    PROCESS_PROBE,
    OBJECT_COPY,
    CLASS_DEFINITION,
    STORAGE_QUERY,
    RECURRENT_LAYER,
    AUTOGRAD_CALL,
    LIBRARY_CHECK,
    DISABLED_FUNCTION,
    SPARSE_TENSOR,
    UNTRACED_CALL,
)
