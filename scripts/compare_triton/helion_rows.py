"""Kernels on rows in Helion, with configurations like those that it publishes for an H100: contestants of `tune bench`.

Helion's own search takes minutes for a shape. What it has found for its pretuned kernels are few configurations, which
differ in warps and rows of a program and go by the length of a row; here they are by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import helion
import helion.language as hl
import torch


def _softmax(x, out):
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.nn.functional.softmax(x[rows, :].to(torch.float32), dim=1).to(out.dtype)


def _rms_norm(x, weight, out):
    for rows in hl.tile(x.size(0)):
        row = x[rows, :].to(torch.float32)
        scale = torch.rsqrt(torch.mean(row * row, dim=-1) + 1e-5)
        out[rows, :] = (row * scale[:, None] * weight[:].to(torch.float32)).to(out.dtype)


def _layer_norm(x, weight, bias, out):
    for rows in hl.tile(x.size(0)):
        row = x[rows, :].to(torch.float32)
        apart = row - torch.mean(row, dim=-1)[:, None]
        scale = torch.rsqrt(torch.mean(apart * apart, dim=-1) + 1e-5)
        shifted = apart * scale[:, None] * weight[:].to(torch.float32) + bias[:].to(torch.float32)
        out[rows, :] = shifted.to(out.dtype)


def _cross_entropy(x, target, loss):
    logits = x.view(-1)
    for rows in hl.tile(x.size(0)):
        columns = target[rows]  # below 0 where a row does not count
        there = torch.where(columns >= 0, columns, 0)
        wanted = hl.load(logits, [rows.index * x.size(1) + there]).to(torch.float32)
        row = x[rows, :].to(torch.float32)
        largest = torch.amax(row, dim=-1)
        total = torch.sum(torch.exp(row - largest[:, None]), dim=-1)
        loss[rows] = torch.where(columns >= 0, torch.log(total) + largest - wanted, 0.0)


def _silu_mul(x, out):
    half = out.size(1)
    for rows, columns in hl.tile(out.size()):
        gate = x[rows, columns].to(torch.float32)
        up = hl.load(x, [rows, columns.index + half]).to(torch.float32)
        out[rows, columns] = (gate * torch.sigmoid(gate) * up).to(out.dtype)


@functools.cache
def _kernel(function: Callable[..., None], columns: int) -> Any:
    """Return a function as a kernel for rows of a length."""
    if function is _silu_mul:
        blocks, warps, loops = [1, 2048], 8, []
    else:
        blocks, loops = [4 if columns <= 1024 else 1], [None if columns <= 131072 else 32768]
        warps = 4 if columns <= 2048 else 8 if columns <= 8192 else 16 if columns <= 131072 else 32
    config = helion.Config(
        block_sizes=blocks, num_warps=warps, **({"reduction_loops": loops} if loops else {})
    )
    return helion.kernel(function, config=config, static_shapes=True)


def softmax(x: Any, out: Any) -> None:
    """Write the softmax of each row of x into out."""
    _kernel(_softmax, x.size(1))(x, out)


def rms_norm(x: Any, weight: Any, out: Any) -> None:
    """Write the normalised rows of x, times the weights, into out."""
    _kernel(_rms_norm, x.size(1))(x, weight, out)


def layer_norm(x: Any, weight: Any, bias: Any, out: Any) -> None:
    """Likewise, with biases."""
    _kernel(_layer_norm, x.size(1))(x, weight, bias, out)


def cross_entropy(x: Any, target: Any, loss: Any) -> None:
    """Write the cross entropy of each row of x into loss."""
    _kernel(_cross_entropy, x.size(1))(x, target, loss)


def silu_mul(x: Any, out: Any) -> None:
    """Write the activation of the first half of each row of x, times the second, into out."""
    _kernel(_silu_mul, out.size(1))(x, out)
