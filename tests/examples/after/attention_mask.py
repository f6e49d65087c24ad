import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        if torch.compiler.is_compiling() and mask is not None:
            scores = torch.cond(
                ~mask.all(),
                lambda: scores.masked_fill(~mask, -1e9),
                lambda: scores.clone(),
            )
        elif mask is not None and not mask.all():
            scores = scores.masked_fill(~mask, -1e9)
        return scores.softmax(-1)
