"""Breaks of several kinds, for logs of several versions of torch."""

import logging
import warnings

import torch

logger = logging.getLogger("kinds")


def branch(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def item(x):
    return x * x.max().item()


def prints(x):
    print("norm")
    return x + 2


def logs(x):
    logger.warning("a warning")
    return x + 3


def shape(x):
    return x[x > 0].sum()


def loop(x):
    for row in range(2):
        print(row)
        x = x + row
    return x


def warn(x):
    warnings.warn("careful")  # noqa: B028
    return x * 4


@torch.compile(backend="eager")
def every(x):
    x = branch(x)
    x = item(x)
    x = prints(x)
    x = logs(x)
    x = warn(x)
    return x + shape(x)


looping = torch.compile(loop, backend="eager")


@torch.compile(backend="eager")
def scaled(x):
    return x * 2


if __name__ == "__main__":
    every(torch.arange(4.0))
    looping(torch.ones(2))
    looping(torch.ones(3))
    scaled(torch.ones(2))
    scaled(torch.ones(3))
