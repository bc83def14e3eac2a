"""Rows of mean 0 and deviation 1, scaled and moved."""

import torch

ROWS, COLUMNS = 2045, 1025  # small: 13, 33


class Model(torch.nn.Module):
    def forward(self, x, weight, bias):
        centred = x - x.mean(1, keepdim=True)
        return centred / torch.sqrt((centred * centred).mean(1, keepdim=True) + 1e-5) * weight + bias


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS), torch.randn(COLUMNS)]


def get_init_inputs():
    return []


def fast(x0, x1, x2):
    return torch.nn.functional.layer_norm(x0, x0.shape[1:], x1, x2)


def slow(x0, x1, x2):
    return torch.cat([fast(part, x1, x2) for part in x0.chunk(256)])


def wrong(x0, x1, x2):
    """For equal numbers, whose deviation is 0."""
    centred = x0 - x0.mean(1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(1, keepdim=True)) * x1 + x2
