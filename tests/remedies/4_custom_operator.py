"""Custom operators, also mutable ones

A function that nothing else can treat becomes one node of the graph. Where it changes an argument
in place, the operator is marked as mutating it.

Command: gbfix apply --fix-with custom-op
"""

import torch


def settle(state: torch.Tensor, rate: float) -> torch.Tensor:
    while state.abs().max().item() > 1.0:
        state.mul_(rate)
    return state


def step(x: torch.Tensor):
    return settle(x * 3, 0.5) + 1
