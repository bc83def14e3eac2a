"""What torch does for the kernels of models, eagerly and by torch.compile: contestants of `tune bench`.

    tune bench transpose --against scripts/rivals/models.py:transpose_eager \\
        --against scripts/rivals/models.py:transpose_compiled

Each function of :data:`FUNCTIONS` is one under its name with ``_eager``, and compiled when it is first called, with
``_compiled``. Options are part of the names, because a function gets tensors alone. Their results are compared like any
other's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def transpose(x: Any) -> Any:
    return x.transpose(1, 2).contiguous()


def permuted(axes: str) -> Callable[[Any], Any]:
    order = ["abc".index(axis) for axis in axes]
    return lambda x: x.permute(order).contiguous()


def rope_half(q: Any, k: Any, cosine: Any, sine: Any) -> Any:
    cosine, sine = cosine[:, None], sine[:, None]

    def rotated(heads: Any) -> Any:
        x, y = heads.chunk(2, -1)
        return torch.cat([x * cosine - y * sine, y * cosine + x * sine], -1).to(heads.dtype)

    return rotated(q), rotated(k)


def rope_interleaved(q: Any, k: Any, cosine: Any, sine: Any) -> Any:
    cosine, sine = cosine[:, None], sine[:, None]

    def rotated(heads: Any) -> Any:
        x, y = heads[..., ::2], heads[..., 1::2]
        return torch.stack([x * cosine - y * sine, y * cosine + x * sine], -1).flatten(2).to(heads.dtype)

    return rotated(q), rotated(k)


def reduced(op: str, axis: int) -> Callable[[Any], Any]:
    return lambda x: getattr(torch, "amax" if op == "max" else op)(x, axis)


def softmax(x: Any) -> Any:
    return torch.softmax(x, 1)


def softmax_causal(x: Any) -> Any:
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
    return torch.softmax(x.masked_fill(columns > (rows % len(columns)).unsqueeze(1), -torch.inf), 1)


def rms_norm(x: Any, weight: Any) -> Any:
    return torch.nn.functional.rms_norm(x, x.shape[1:], weight, 1e-5)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, 1e-5)


def add_rms_norm(x: Any, residual: Any, weight: Any) -> Any:
    total = x + residual
    return rms_norm(total, weight), total


def silu_mul(x: Any) -> Any:
    gate, up = x.chunk(2, 1)
    return torch.nn.functional.silu(gate) * up


def cross_entropy(x: Any, target: Any) -> Any:
    return torch.nn.functional.cross_entropy(x.float(), target, reduction="none")


def cross_entropy_gradient(x: Any, target: Any) -> Any:
    """Return the losses and what the backward pass gives for each."""
    shares = torch.softmax(x.float(), 1)
    counts = (target != -100).unsqueeze(1)
    hot = torch.arange(x.shape[1], device=x.device) == target.unsqueeze(1)
    return cross_entropy(x, target), torch.where(counts, shares - hot.float(), 0.0).to(x.dtype)


def quantised(columns: int) -> Callable[[Any], Any]:
    """Return what quantises so many columns with a scale each; 0 for whole rows."""

    def quantise(x: Any) -> Any:
        parts = x.float().unflatten(1, (-1, columns or x.shape[1]))
        scale = parts.abs().amax(2).clamp(min=1e-10) / 448
        return (parts / scale.unsqueeze(2)).flatten(1).to(torch.float8_e4m3fn), scale

    return quantise


def silu_mul_quantised(x: Any) -> Any:
    return quantised(128)(silu_mul(x.float()))


def rms_norm_quantised(x: Any, weight: Any) -> Any:
    return quantised(128)(rms_norm(x.float(), weight.float()))


def rms_norm_quantised_blocks(x: Any, weight: Any) -> Any:
    normed = rms_norm(x.float(), weight.float())
    parts = (
        torch.nn.functional.pad(normed, (0, 0, 0, -len(x) % 128))
        .unflatten(0, (-1, 128))
        .unflatten(2, (-1, 128))
    )
    scale = parts.abs().amax((1, 3)).clamp(min=1e-10) / 448
    shares = (parts / scale[:, None, :, None]).flatten(2).flatten(0, 1)
    return shares[: len(x)].to(torch.float8_e4m3fn), scale


def linear_gelu(a: Any, b: Any, bias: Any) -> Any:
    return torch.nn.functional.gelu(torch.nn.functional.linear(a, b.t(), bias))


def linear_gelu_tanh(a: Any, b: Any, bias: Any) -> Any:
    return torch.nn.functional.gelu(torch.nn.functional.linear(a, b.t(), bias), approximate="tanh")


def addmm_activation(a: Any, b: Any, bias: Any) -> Any:
    """Return the gelu by tanh, which cuBLASLt computes in the product's own launch."""
    return torch._addmm_activation(bias, a, b, use_gelu=True)


def grouped(a: Any, b: Any, ends: Any) -> Any:
    return torch._grouped_mm(a, b.transpose(1, 2), offs=ends)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "transpose": transpose,
    **{f"permute_{axes}": permuted(axes) for axes in ("bac", "acb", "bca", "cab", "cba", "abc")},
    **{
        f"reduce_axis_{op}_{over}": reduced(op, axis)
        for op in ("sum", "mean", "max", "argmax", "argmin")
        for axis, over in enumerate(("rows", "columns"))
    },
    **{
        function.__name__: function
        for function in (
            softmax,
            softmax_causal,
            rms_norm,
            layer_norm,
            add_rms_norm,
            silu_mul,
            cross_entropy,
            cross_entropy_gradient,
            silu_mul_quantised,
            rms_norm_quantised,
            rms_norm_quantised_blocks,
            linear_gelu,
            linear_gelu_tanh,
            grouped,
        )
    },
    "quantise_rows": quantised(0),
    "quantise_groups": quantised(128),
    "rope_half": rope_half,
    "rope_interleaved": rope_interleaved,
}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that torch compiles for the first shapes that it gets."""
    compile_once = functools.cache(lambda: torch.compile(function, fullgraph=True, dynamic=False))

    @functools.wraps(function)
    def call(*tensors: Any, **named: Any) -> Any:
        return compile_once()(*tensors, **named)

    return call


for _name, _function in FUNCTIONS.items():
    globals()[f"{_name}_eager"] = _function
    globals()[f"{_name}_compiled"] = compiled(_function)
