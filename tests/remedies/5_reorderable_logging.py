"""Reorderable logging

The call moves behind the graph and still speaks. What is changed in place after the call is shown
changed.

Command: gbfix apply --side-effects config
"""

import torch


def step(x: torch.Tensor):
    y = x * 2
    print("largest", y.max())
    return y + 1
