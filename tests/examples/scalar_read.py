import torch


@torch.compile
def f(x, y):
    if y > 0:
        return x + y.item()
    return x - y.item()
