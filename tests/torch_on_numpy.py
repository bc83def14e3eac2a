"""torch's functions that baselines of built-in kernels call, played by NumPy."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np


def torch_on_numpy() -> SimpleNamespace:
    def add(x: Any, y: Any, alpha: float = 1, *, out: Any) -> None:
        out[...] = x + out.dtype.type(alpha) * y

    def mm(x: Any, y: Any, *, out: Any) -> None:
        np.matmul(x, y, out=out)

    def scaled_mm(x: Any, y: Any, of_x: Any, of_y: Any, *, use_fast_accum: bool = False, out: Any) -> None:
        if of_x.shape[1] > 1:  # of blocks
            assert not use_fast_accum
            of_x, of_y = np.repeat(of_x, 128, 1), np.repeat(of_y, 128, 0)[:, :1]
        np.matmul(x * of_x, y * of_y, out=out)

    def addmm(c: Any, x: Any, y: Any, *, out: Any) -> None:
        np.add(x @ y, c, out=out)

    def baddbmm(c: Any, x: Any, y: Any, *, beta: float, alpha: float, out: Any) -> None:
        np.add(alpha * (x @ y), beta * c, out=out)

    def reduction(function: Any) -> Any:
        def reduce(x: Any, dim: int, *, keepdim: bool = False, dtype: Any = None, out: Any = None) -> Any:
            more = {} if dtype is None else {"dtype": dtype}
            return function(x, axis=dim, keepdims=keepdim, out=out, **more)

        return reduce

    def softmax(x: Any, dim: int, *, out: Any, logarithm: bool = False) -> None:
        powers = np.exp(x - x.max(dim, keepdims=True))
        sums = powers.sum(dim, keepdims=True)
        out[...] = x - x.max(dim, keepdims=True) - np.log(sums) if logarithm else powers / sums

    return SimpleNamespace(
        add=add,
        softmax=softmax,
        argmax=reduction(np.argmax),
        argmin=reduction(np.argmin),
        log_softmax=partial(softmax, logarithm=True),
        _scaled_mm=scaled_mm,
        mm=mm,
        matmul=mm,
        mul=np.multiply,
        addmm=addmm,
        baddbmm=baddbmm,
        transpose=np.swapaxes,
        permute=np.transpose,
        where=np.where,
        sum=reduction(np.sum),
        mean=reduction(np.mean),
        amax=reduction(np.amax),
        float32=np.float32,
    )
