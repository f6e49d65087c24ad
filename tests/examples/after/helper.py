import torch


def scale(x, factor):
    if torch.compiler.is_compiling():
        x = torch.cond(x.mean() > factor, lambda: x * 2, lambda: x / 2)
    elif x.mean() > factor:  # noqa: SIM108
        x = x * 2
    else:
        x = x / 2
    return x


@torch.compile
def step(x, w):
    h = x @ w
    h = scale(h, 0.5)
    return h.relu()
