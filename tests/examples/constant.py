import torch

x = torch.randn(3, 3)


@torch.compile
def fn(y):
    if x.sum() > 0:
        return y + x
    return y - x
