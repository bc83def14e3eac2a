"""What a user would otherwise call, inside the same graphs and on the same buffers as a candidate."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.children.measuring import BaselineContestant, PythonCall
from tuner.core.errors import TunerError, UsageError
from tuner.core.model import Value
from tuner.expressions.array import ArrayExpression
from tuner.expressions.library_call import LibraryCall
from tuner.gpu.arrays import (
    TensorView,
    array_of,
    import_library,
    library_version,
)
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Timed
from tuner.gpu.captured import PYTHON, Call, Captured, capture
from tuner.gpu.driver import Context
from tuner.kernel.functions import BaselineKind, arguments_for, built, first_line, load_function
from tuner.kernel.modules import on_gpu


def make_call(
    kind: BaselineKind,
    text: str,
    file: Path | None,
    views: Mapping[str, TensorView],
    numbers: Mapping[str, Value],
    stream: int = 0,
    outputs: Collection[str] = (),
    function: Callable[..., Any] | None = None,
) -> Call:
    """Bind a library's call or a user's function to tensors.

    Args:
        kind: ``CALL`` or ``PYTHON``.
        text: the call; or the function's name, behind its module and a colon where there is no file.
        file: the Python file that has the function.
        views: the tensors by name.
        numbers: the problem's sizes and the kernel's scalars by name.
        stream: handle of the stream, for functions that ask for it.
        outputs: tensors that a function returns where it does not ask for them.
        function: what is called; by default what is loaded from the file.

    Raises:
        TunerError: the library is not installed, cannot hold one of the tensors, or lacks the function; or the
            user's function cannot be loaded, or wants something that is not there.
    """
    if kind is BaselineKind.CALL:
        call = LibraryCall(text)
        module = import_library(call.library)
        evaluate = call.bind(module)
        used = {name: view for name, view in views.items() if name in call.names}
        values = {**numbers, **{name: array_of(call.library, view) for name, view in used.items()}}

        def run() -> object:
            if call.library == "torch":
                set_precision(module, tf32=call.tf32)
            return evaluate(values)

        return Call(text, call.library, run)
    if kind is not BaselineKind.PYTHON:
        raise UsageError(f"{text!r} is no call", "only calls and Python functions can be made")
    function = function or load_function(text, file)
    library = next((name for name in ("torch", "cupy") if library_version(name)), "")
    tensors = {name: array_of(library, view) for name, view in views.items()}
    positional, named = arguments_for(function, {"stream": stream, **numbers, **tensors}, text)
    taken = [*map(id, positional), *map(id, named.values())]
    returns = {name: views[name] for name in outputs if id(tensors[name]) not in taken}
    if library == "torch":
        set_precision(import_library("torch"), tf32=False)
    return Call(text, PYTHON, lambda: function(*positional, **named), returns)


def set_precision(torch: Any, *, tf32: bool) -> None:
    """Have torch multiply float32 as float32, or as tf32, and add up 16-bit products in float32.

    By the older of torch's two settings of tf32, which sets the newer one, too: to mix them is an error.
    """
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


HOST_DTYPES = {"float16": np.float32, "bfloat16": np.float32, "float8_e4m3fn": np.float32}
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
    numbers = {**baseline.sizes, **baseline.scalars}
    if kind is BaselineKind.NUMPY:
        arrays = {tensor.name: data.download(tensor) for tensor in data.tensors}
        dtypes = {tensor.name: tensor.dtype for tensor in data.tensors}
        yield tuple(numpy_time_ns(text, {**arrays, **numbers}, dtypes=dtypes))
        return
    with closing(_captured(context, data, kind, text, baseline.file, numbers)) as captured:
        yield captured


def open_call(context: Context, data: ProblemData, call: PythonCall) -> Captured:
    """Capture a user's function, which is a candidate; errors as of :func:`open_baseline`."""
    function = call.function
    if call.model is None:
        made = built(function, call.parameters) if function.builds else None
        return _captured(context, data, BaselineKind.PYTHON, function.name, function.file, call.numbers, made)
    set_precision(import_library("torch"), tf32=False)
    try:
        module = on_gpu(function.name, function.file, call.model)
    except TunerError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a user's module throws
        raise TunerError(f"{function.text}: {first_line(error)}", "correct the module") from None
    calls = []
    for copy in range(data.copies):
        views = _views(data, copy)
        outputs = {one.name: views[one.name] for one in data.tensors if one.role == "output"}
        tensors = [array_of("torch", view) for name, view in views.items() if name not in outputs]
        calls.append(Call(function.text, PYTHON, partial(module, *tensors), outputs))
    return capture(context, calls)


def _captured(
    context: Context,
    data: ProblemData,
    kind: BaselineKind,
    text: str,
    file: Path | None,
    numbers: Mapping[str, Value],
    function: Callable[..., Any] | None = None,
) -> Captured:
    stream = int(context.stream)
    outputs = [tensor.name for tensor in data.tensors if tensor.role == "output"]
    views = [_views(data, copy) for copy in range(data.copies)]
    return capture(
        context, [make_call(kind, text, file, each, numbers, stream, outputs, function) for each in views]
    )


def _views(data: ProblemData, copy: int) -> dict[str, TensorView]:
    return {
        tensor.name: TensorView(
            data.address(tensor.name, copy), tensor.shape, tensor.dtype, tensor.transposed
        )
        for tensor in data.tensors
    }


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
