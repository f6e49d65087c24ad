"""`torch._higher_order_ops.print`

The print becomes part of the graph: each run speaks, in order, with the values of that moment.

Command: gbfix apply --side-effects keep
"""

import torch


def step(x: torch.Tensor):
    y = x * 2
    print("largest", y.max())
    return y + 1
