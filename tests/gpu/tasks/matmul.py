"""A product with odd sides, scaled, and a matrix added."""

import torch

M, K, N = 2047, 63, 2049  # small: 7, 5, 9


class Model(torch.nn.Module):
    def forward(self, a, b, c):
        return torch.matmul(a, b) * 0.5 + c


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N), torch.randn(M, N)]


def get_init_inputs():
    return []


def fast(x0, x1, x2):
    return torch.addmm(x2, x0, x1, alpha=0.5)


def slow(x0, x1, x2):
    total = x2.clone()
    for k in range(x0.shape[1]):
        total += 0.5 * torch.outer(x0[:, k], x1[k])
    return total


def wrong(x0, x1, x2):
    """Where the number of columns is odd."""
    even = x1.shape[1] // 2 * 2
    total = x2.clone()
    total[:, :even] += 0.5 * (x0 @ x1[:, :even])
    return total
