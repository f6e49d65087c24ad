import torch

x = torch.randn(3, 3)


x_sum_gt_0 = bool(x.sum() > 0)


@torch.compile
def fn(y):
    if x_sum_gt_0:
        return y + x
    return y - x
