import torch


def candidate(x, y):
    y.copy_(x * x + x)
    torch.cuda.synchronize()
