"""Hoisting a condition out of the compiled region

A condition that does not depend on the call is evaluated once, outside, and becomes a Python
boolean.

Command: gbfix apply
"""

import torch

threshold = torch.tensor([0.5, 1.5])


def step(x: torch.Tensor):
    if threshold.sum() > 1:
        return x * 2
    return x + 1
