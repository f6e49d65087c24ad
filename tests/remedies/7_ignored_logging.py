"""Ignored logging

Loggers cannot be reordered; a setting makes Dynamo leave their calls out.

Command: gbfix apply --side-effects config
"""

import logging

import torch

logger = logging.getLogger("model")


def step(x: torch.Tensor):
    y = x * 2
    logger.info("shape %s", y.shape)
    return y + 1
