"""The kinds of graph break that gbfix knows, with the entries of PyTorch's registry they cover.

The registry is `torch/_dynamo/graph_break_registry.json`; its identifiers appear in Dynamo's own
messages. Diagnosis is apart from treatment: nothing here knows of a fix.
"""

from __future__ import annotations

from collections.abc import Mapping

from gbfix.diagnosis import Diagnosis
from gbfix.python_diagnoses import PYTHON_DIAGNOSES

__all__ = ["DIAGNOSES", "Diagnosis"]


TENSOR_BRANCH = Diagnosis(
    "GBF101",
    "tensor-branch",
    "control flow depends on the value of a tensor",
    "Dynamo traces with tensors that have shapes but no values, so it cannot tell which way an `if`, "
    "a conditional expression or a short-circuit goes. It ends the graph before the test, reads the "
    "value in Python, and starts another graph for what follows.",
    ("GB0170", "GB0033", "GB0124"),
    probe="""\
def probe(x):
    x = x * 2
    if x.sum() > 0:
        x = x + 1
    return x * 3
""",
)
TENSOR_RAISE = Diagnosis(
    "GBF102",
    "tensor-raise",
    "an exception is raised depending on the value of a tensor",
    "The test is a branch on tensor data, and `raise` on one of its sides can never be part of a "
    "graph. Validation of inputs is the most common form.",
    ("GB0170", "GB0033", "GB0124"),
    probe="""\
def probe(x):
    x = x * 2
    if (x < 0).any():
        raise ValueError("negative")
    return x * 3
""",
)
TENSOR_ASSERT = Diagnosis(
    "GBF103",
    "tensor-assert",
    "an assertion on a tensor that Dynamo cannot take over",
    "Dynamo turns `assert tensor` with a constant message into an assertion inside the graph. With a "
    "computed message, or a test made with `not`, `and`, `or` or a Python scalar, it cannot, and "
    "breaks the graph instead.",
    ("GB0170", "GB0171", "GB0033"),
    probe="""\
def probe(x):
    x = x * 2
    assert (x > 0).all(), f"not positive, shape {tuple(x.shape)}"
    return x * 3
""",
)
TENSOR_LOOP = Diagnosis(
    "GBF104",
    "tensor-loop",
    "a loop runs as long as the value of a tensor says",
    "The number of rounds depends on data. A break inside a loop makes Dynamo give up the whole "
    "frame: nothing in it is compiled, and no break is counted.",
    ("GB0170",),
    probe="""\
def probe(x):
    while x.sum() < 10:
        x = x * 2
    return x * 3
""",
)
SCALAR_READ = Diagnosis(
    "GBF105",
    "scalar-read",
    "a Python number is read from a tensor",
    "`.item()`, `int(t)`, `float(t)`, `bool(t)` and the functions of `math` ask for a value that does "
    "not exist while Dynamo traces. It ends the graph, reads the number in Python, and starts another "
    "graph that depends on it. On a GPU the read also waits for all work that is queued.",
    ("GB0124", "GB0033"),
    probe="""\
def probe(x):
    x = x * 2
    return x * x.sum().item()
""",
)
TENSOR_TO_LIST = Diagnosis(
    "GBF106",
    "tensor-to-list",
    "a Python list is read from a tensor",
    "`.tolist()` reads every element, which ends the graph as `.item()` does. Lists of floats are "
    "not traced even where Dynamo is told to capture scalars.",
    ("GB0109", "GB0033"),
    probe="""\
def probe(x):
    x = x * 2
    return x * x.tolist()[0]
""",
)
TENSOR_POSITION = Diagnosis(
    "GBF107",
    "tensor-position",
    "a tensor stands where Python needs an integer",
    "The bound of a slice, the argument of `range` and the index of a list are integers, so Python "
    "reads the number out of a tensor that is given there. So does Dynamo with a tensor of shape `[]` "
    "that was computed in the graph and selects from another: `x[scores.argmax()]`. Nothing in the "
    "source shows the read.",
    ("GB0038", "GB0059", "GB0124"),
    probe="""\
def probe(x):
    x = x * 2
    return x[: x.argmax() + 1] * 3
""",
)
LOOP_EXIT = Diagnosis(
    "GBF108",
    "loop-exit",
    "a loop is left, or a round of it skipped, depending on the value of a tensor",
    "`break`, `continue` or `return` under a test on tensor data is a branch inside a loop. Dynamo "
    "cannot resume in the middle of a loop, so it gives up the whole frame: nothing in it is "
    "compiled.",
    ("GB7000", "GB0170"),
    probe="""\
def probe(x):
    x = x * 2
    for _ in range(3):
        if x.sum() > 10:
            break
        x = x * 2
    return x * 3
""",
)
MASK_INDEX = Diagnosis(
    "GBF110",
    "mask-index",
    "a boolean mask selects elements, so that the shape of the result depends on data",
    "How many elements `x[mask]` or `masked_select` gives is known only when the mask is. Dynamo ends "
    "the graph before it, and inside a loop gives up the whole frame. Writing to `x[mask]` is no break "
    "by itself; reading from it is.",
    ("GB0036", "GB0037"),
    probe="""\
def probe(x):
    x = x * 2
    return x[x > 0] * 3
""",
)
NONZERO = Diagnosis(
    "GBF111",
    "nonzero",
    "the number of indices that are found depends on data",
    "`nonzero`, `argwhere` and `where` with one argument give as many rows as there are true elements. "
    "Dynamo cannot trace a shape that depends on data.",
    ("GB0036", "GB0037"),
    probe="""\
def probe(x):
    x = x * 2
    return x.nonzero() + 1
""",
)
UNIQUE = Diagnosis(
    "GBF112",
    "unique",
    "the number of distinct values depends on data",
    "`unique` and `unique_consecutive` give as many values as they find. Dynamo cannot trace a shape "
    "that depends on data.",
    ("GB0036", "GB0037"),
    probe="""\
def probe(x):
    x = x * 2
    return x.unique() * 3
""",
)
DATA_SIZE = Diagnosis(
    "GBF113",
    "data-size",
    "the size of the result is read from tensor data",
    "`repeat_interleave` without `output_size`, `one_hot` without `num_classes` and `bincount` read "
    "the size of their result from the values of their argument.",
    ("GB0036", "GB0246"),
    probe="""\
import torch


def probe(x):
    x = x * 2
    return torch.bincount(x.long()) * 3
""",
)
PRINT_CALL = Diagnosis(
    "GBF201",
    "print-call",
    "a print inside a compiled region",
    "Dynamo cannot put output into a graph. It ends the graph, prints in Python, and goes on with "
    "another graph; every frame on the stack that was being inlined is split too.",
    ("GB0059", "GB0007", "GB0569"),
    probe="""\
def probe(x):
    x = x * 2
    print(end="")
    return x * 3
""",
)
LOGGING_CALL = Diagnosis(
    "GBF202",
    "logging-call",
    "a logging call inside a compiled region",
    "Methods of `logging.Logger` are not traced outside of export. One call costs a break in every "
    "frame on the stack that inlined it.",
    ("GB0291", "GB0007"),
    probe="""\
import logging

logger = logging.getLogger("gbfix.probe")


def probe(x):
    x = x * 2
    logger.debug("shape %s", x.shape)
    return x * 3
""",
)
WARNINGS_CALL = Diagnosis(
    "GBF203",
    "warnings-call",
    "a warning raised inside a compiled region",
    "`warnings.warn` is a C builtin that Dynamo does not trace; it breaks the graph at each call.",
    ("GB0007", "GB0059"),
    probe="""\
import warnings


def probe(x):
    x = x * 2
    warnings.warn("probe", stacklevel=2)
    return x * 3
""",
)
DIAGNOSES: Mapping[str, Diagnosis] = {
    d.code: d
    for d in (
        TENSOR_BRANCH,
        TENSOR_RAISE,
        TENSOR_ASSERT,
        TENSOR_LOOP,
        SCALAR_READ,
        TENSOR_TO_LIST,
        TENSOR_POSITION,
        LOOP_EXIT,
        MASK_INDEX,
        NONZERO,
        UNIQUE,
        DATA_SIZE,
        PRINT_CALL,
        LOGGING_CALL,
        WARNINGS_CALL,
        *PYTHON_DIAGNOSES,
    )
}
