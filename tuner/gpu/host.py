"""NumPy on the host, for whoever wonders what the GPU is worth."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.reference import ArrayExpression

HOST_DTYPES = {"float16": np.float32, "bfloat16": np.float32}
"""NumPy computes in these at a fraction of its speed, or not at all; it is timed in float32 instead."""
ENOUGH_S = 0.5
"""Samples beyond the least are taken for this long."""


def numpy_time_ns(
    text: str,
    arrays: Mapping[str, npt.NDArray[Any] | float],
    dtypes: Mapping[str, str] | None = None,
    least: int = 3,
    limit_s: float = 10.0,
) -> list[float]:
    """Time plain NumPy on the host, on the wall clock, in nanoseconds.

    Args:
        text: NumPy expressions, one a line.
        arrays: arrays and numbers by name.
        dtypes: what the kernel's tensors are; arrays are converted before, 16-bit floats to float32. Without
            it they are used as they are.
        least: samples to take, as far as the limit allows.
        limit_s: no sample is begun that would end later; the first run always counts where it is the only one.

    Raises:
        ExpressionError: an expression cannot be evaluated.
    """
    expressions = [ArrayExpression(line) for line in text.splitlines() if line.strip()]
    values: dict[str, Any] = dict(arrays)
    for name, dtype in (dtypes or {}).items():
        if isinstance(values.get(name), np.ndarray):
            values[name] = values[name].astype(HOST_DTYPES.get(dtype, dtype))
    samples: list[float] = []
    began = time.perf_counter()
    first_ns = _wall_ns(expressions, values)  # NumPy's threads, and memory touched for the first time
    while True:
        spent_s = time.perf_counter() - began
        likely_s = (samples or [first_ns])[-1] * 1e-9
        if spent_s + likely_s > limit_s or (len(samples) >= least and spent_s > ENOUGH_S):
            return samples or [first_ns]
        samples.append(_wall_ns(expressions, values))


def _wall_ns(expressions: Sequence[ArrayExpression], values: Mapping[str, Any]) -> float:
    began = time.perf_counter_ns()
    for expression in expressions:
        expression.compute(values)
    return float(time.perf_counter_ns() - began)
