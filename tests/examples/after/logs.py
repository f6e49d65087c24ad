import logging

import torch
from torch import nn

logger = logging.getLogger(__name__)


class Logged(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        h = self.proj(x)
        if not torch.compiler.is_compiling():
            logger.info("mean %s", h.mean())
        return h.relu()
