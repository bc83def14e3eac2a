import torch


def candidate(x, y):
    torch.mul(x, x, out=y)
    y.add_(x)
