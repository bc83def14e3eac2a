import torch

torch.use_deterministic_algorithms(True, warn_only=True)


def candidate(x, y):
    y.copy_(x * x + x)
