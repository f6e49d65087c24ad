"""`torch.compiler.is_compiling()`

Compiled code is silent; eager code speaks as before. This is what is done unless another policy is
asked for.

Command: gbfix apply
"""

import torch


def step(x: torch.Tensor):
    y = x * 2
    print("largest", y.max())
    return y + 1
