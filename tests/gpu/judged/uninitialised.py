import torch


def candidate(x):
    y = torch.empty_like(x)
    torch.add(x[:1] * x[:1], x[:1], out=y[:1])
    return y
