"""Moving side effects out

What is told before the work begins, or once it is done, needs no place in the graph: the work gets a
function of its own, and the calls stay around it. What is told in between is a print in the graph.

Command: gbfix apply --side-effects keep
"""

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.outer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor):
        h = torch.relu(self.inner(x))
        y = self.outer(h) * 2
        print(f"norm {y.norm():.3f}")
        return y
