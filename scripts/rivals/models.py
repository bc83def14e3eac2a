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


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "transpose": transpose,
    **{f"permute_{axes}": permuted(axes) for axes in ("bac", "acb", "bca", "cab", "cba", "abc")},
    **{
        f"reduce_axis_{op}_{over}": reduced(op, axis)
        for op in ("sum", "mean", "max")
        for axis, over in enumerate(("rows", "columns"))
    },
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
