import torch

compiled = torch.compile(lambda x: x * x + x)


def candidate(x, y):
    y.copy_(compiled(x))
