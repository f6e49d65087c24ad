"""`torch.cond`

Both arms are compiled, and the tensor chooses when the graph runs. `gbfix` uses `torch.where`
instead where both arms are cheap; `--branch` decides.

Command: gbfix apply --branch cond
"""

import torch


def step(x: torch.Tensor):
    if x.sum() > 0:
        y = x * 2
        z = y.sin()
    else:
        y = x - 1
        z = y.cos()
    return y.relu() + z
