"""The mean of squared differences."""

import torch

ROWS, COLUMNS = 1023, 2049  # small: 31, 17


class Model(torch.nn.Module):
    def forward(self, a, b):
        difference = a - b
        return (difference * difference).mean()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []


def fast(x0, x1):
    return torch.nn.functional.mse_loss(x0, x1)


def slow(x0, x1):
    parts = zip(x0.chunk(256), x1.chunk(256), strict=True)
    return sum(torch.nn.functional.mse_loss(a, b, reduction="sum") for a, b in parts) / x0.numel()


def wrong(x0, x1):
    """Without the last row."""
    return torch.nn.functional.mse_loss(x0[:-1], x1[:-1])
