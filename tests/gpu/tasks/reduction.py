"""Sums over the axis in the middle, which is odd."""

import torch

OUTER, MIDDLE, INNER = 257, 129, 129  # small: 5, 7, 3


class Model(torch.nn.Module):
    def forward(self, x):
        return x.transpose(1, 2).contiguous().sum(2)


def get_inputs():
    return [torch.randn(OUTER, MIDDLE, INNER)]


def get_init_inputs():
    return []


def fast(x0):
    return x0.sum(1)


def slow(x0):
    total = x0[:, 0].clone()
    for number in range(1, x0.shape[1]):
        total += x0[:, number]
    return total


def wrong(x0):
    """Where the axis is odd."""
    return x0[:, : x0.shape[1] // 2 * 2].sum(1)
