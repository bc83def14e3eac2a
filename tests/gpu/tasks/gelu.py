"""GELU by the hyperbolic tangent, of numbers from 0 to 1."""

import torch

COUNT = (1 << 21) + 1  # small: 65


class Model(torch.nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def get_inputs():
    return [torch.rand(COUNT)]


def get_init_inputs():
    return []


def fast(x0):
    return torch.nn.functional.gelu(x0, approximate="tanh")


def slow(x0):
    return torch.cat([fast(part) for part in x0.chunk(256)])


def wrong(x0):
    """For negative numbers."""
    return fast(x0.abs())
