"""Means of five neighbours."""

import torch

ROWS, COLUMNS = 255, 8191  # small: 5, 23


class Model(torch.nn.Module):
    def forward(self, x):
        return sum(x[:, first : x.shape[1] - 4 + first] for first in range(5)) / 5.0


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []


def fast(x0):
    return torch.nn.functional.avg_pool1d(x0[None], 5, 1)[0]


def slow(x0):
    return torch.cat([part.unfold(1, 5, 1).mean(2) for part in x0.chunk(256)])


def wrong(x0):
    """In the last window."""
    return torch.nn.functional.avg_pool1d(torch.cat([x0[:, :-1], x0[:, -2:-1]], 1)[None], 5, 1)[0]
