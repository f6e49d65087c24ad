"""Without the compiler first: `torch.compiler.set_stance`

A break can hide an error of one's own. Under `torch.compiler.set_stance("force_eager")` nothing is
compiled: what fails there as well has to be repaired first. `gbfix trace` runs a call that failed once
more under that stance and says which of the two it was; `gbfix verify` compares with eager code.

Prints: fails without the compiler as well
"""

import torch


@torch.compile(backend="eager")
def step(x: torch.Tensor):
    return torch.sin(x, x)


with torch.compiler.set_stance("force_eager"):
    try:
        step(torch.ones(3))
    except TypeError:
        print("fails without the compiler as well")
