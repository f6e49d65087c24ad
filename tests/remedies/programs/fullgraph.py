"""`fullgraph=True`

`torch.compile(..., fullgraph=True)` turns a break into an error. Under it Dynamo captures scalar
outputs by itself, so count breaks with and without in one configuration. `gbfix verify` says
whether one graph holds the rewritten code.

Prints: print is a break; one graph holds it
"""

import torch
from torch._dynamo.exc import Unsupported


def step(x: torch.Tensor):
    y = x * 2
    print("largest", y.max())
    return y + 1


def silent(x: torch.Tensor):
    y = x * 2
    if not torch.compiler.is_compiling():
        print("largest", y.max())
    return y + 1


try:
    torch.compile(step, backend="eager", fullgraph=True)(torch.ones(3))
except Unsupported:
    print("print is a break", end="; ")
torch.compile(silent, backend="eager", fullgraph=True)(torch.ones(3))
print("one graph holds it")
