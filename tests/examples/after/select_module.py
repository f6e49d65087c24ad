import torch
from torch import nn


class Damp(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.limit = 1.0

    def forward(self, x):
        h = self.inner(x)
        if torch.compiler.is_compiling():
            h = torch.where(h.abs().max() > self.limit, h * 0.5, h)
        elif h.abs().max() > self.limit:
            h = h * 0.5
        return h
