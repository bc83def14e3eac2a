import torch


class Lazy(torch.Tensor):
    pass


def candidate(x):
    return (x * x + x).as_subclass(Lazy)
