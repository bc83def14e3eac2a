"""What a user would otherwise call, inside the same graphs and on the same buffers as a candidate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tuner.children.measuring import BaselineContestant, PythonCall
from tuner.core.errors import TunerError
from tuner.core.model import Value
from tuner.expressions.library_call import LibraryCall
from tuner.gpu.arrays import (
    TensorView,
    array_of,
    import_library,
    library_version,
)
from tuner.gpu.buffers import ProblemData
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


def open_baseline(context: Context, data: ProblemData, baseline: BaselineContestant) -> Captured:
    """Capture a baseline that is a call.

    Args:
        context: of the GPU.
        data: the tensors.
        baseline: what is run.

    Raises:
        TunerError: a library is missing, or the call fails.
    """
    numbers = {**baseline.sizes, **baseline.scalars}
    return _captured(context, data, BaselineKind(baseline.kind), baseline.text, baseline.file, numbers)


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
