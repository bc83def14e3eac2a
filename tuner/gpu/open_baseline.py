"""Baselines in the measuring process: from what the head asks for to something that can be timed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.children.measuring import BaselineContestant
from tuner.core.model import Value
from tuner.expressions.array import ArrayExpression
from tuner.gpu.arrays import TensorView
from tuner.gpu.baselines import capture, make_call
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Timed
from tuner.gpu.driver import Context
from tuner.kernel.baselines import BaselineKind

HOST_DTYPES = {"float16": np.float32, "bfloat16": np.float32}
"""NumPy computes in these at a fraction of its speed, or not at all; it is timed in float32 instead."""
ENOUGH_S = 0.5
"""Samples beyond the least are taken for this long."""


@contextmanager
def open_baseline(
    context: Context, data: ProblemData, baseline: BaselineContestant
) -> Iterator[Timed | tuple[float, ...]]:
    """Make a baseline ready; NumPy's is timed at once, alone, and gives its times in nanoseconds.

    Args:
        context: of the GPU.
        data: the tensors.
        baseline: what is run.

    Raises:
        TunerError: a library is missing, or the call fails.
    """
    kind, text = BaselineKind(baseline.kind), baseline.text
    if kind is BaselineKind.NUMPY:
        arrays = {tensor.name: data.download(tensor) for tensor in data.tensors}
        dtypes = {tensor.name: tensor.dtype for tensor in data.tensors}
        yield tuple(numpy_time_ns(text, {**arrays, **baseline.sizes, **baseline.scalars}, dtypes=dtypes))
        return
    calls = [
        make_call(
            kind,
            text,
            baseline.file,
            {
                tensor.name: TensorView(
                    data.address(tensor.name, copy), tensor.shape, tensor.dtype, tensor.transposed
                )
                for tensor in data.tensors
            },
            baseline.scalars,
            baseline.sizes,
            int(context.stream),
        )
        for copy in range(data.copies)
    ]
    with closing(capture(context, calls)) as captured:
        yield captured


def numpy_time_ns(
    text: str,
    arrays: Mapping[str, npt.NDArray[Any] | Value],
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
