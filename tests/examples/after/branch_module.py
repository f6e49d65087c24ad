import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width=8, limit=1.0):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.shrink = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)
        self.limit = limit

    def forward(self, x):
        h = self.inner(x)
        if torch.compiler.is_compiling():
            h = torch.cond(
                h.abs().max() > self.limit, lambda: self.shrink(h), lambda: h.clone()
            )
        elif h.abs().max() > self.limit:
            h = self.shrink(h)
        return self.outer(h)
