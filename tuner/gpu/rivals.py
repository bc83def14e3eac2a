"""Baselines in the measuring process: from what the head asks for to something that can be timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner.baselines import BaselineKind
from tuner.gpu.arrays import TensorView
from tuner.gpu.baselines import capture, make_call
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Timed
from tuner.gpu.driver import Context
from tuner.gpu.host import numpy_time_ns


@contextmanager
def open_baseline(
    context: Context, data: ProblemData, item: Mapping[str, Any]
) -> Iterator[Timed | tuple[float, ...]]:
    """Make a baseline ready; NumPy's is timed at once, alone, and gives its times in nanoseconds.

    Args:
        context: of the GPU.
        data: the tensors.
        item: ``kind``, ``text``, ``file`` (or None), ``scalars`` and ``sizes`` by name.

    Raises:
        TunerError: a library is missing, or the call fails.
    """
    kind, text = BaselineKind(item["kind"]), str(item["text"])
    if kind is BaselineKind.NUMPY:
        arrays = {tensor.name: data.download(tensor) for tensor in data.tensors}
        dtypes = {tensor.name: tensor.dtype for tensor in data.tensors}
        yield tuple(numpy_time_ns(text, {**arrays, **item["sizes"], **item["scalars"]}, dtypes=dtypes))
        return
    file = Path(item["file"]) if item["file"] else None
    calls = [
        make_call(
            kind,
            text,
            file,
            {
                tensor.name: TensorView(
                    data.address(tensor.name, copy), tensor.shape, tensor.dtype, tensor.transposed
                )
                for tensor in data.tensors
            },
            item["scalars"],
            item["sizes"],
            int(context.stream),
        )
        for copy in range(data.copies)
    ]
    captured = capture(context, calls)
    try:
        yield captured
    finally:
        captured.close()
