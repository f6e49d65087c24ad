"""`capture_scalar_outputs`

The last resort for a number that is read from a tensor: a setting under which it becomes a symbol.

Command: gbfix apply --config
"""

import torch


def step(x: torch.Tensor):
    return torch.ones(int((x > 0).sum())).cumsum(0)
