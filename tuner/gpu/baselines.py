"""What a user would otherwise call, inside the same graphs and on the same buffers as a candidate; and what a kernel of
theirs, or the default configuration, makes of a problem's inputs, where that is right."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from tuner.children.measuring import BaselineContestant, PythonCall, ReferenceData
from tuner.core.errors import KernelError, TunerError
from tuner.core.model import Value
from tuner.expressions.library_call import LibraryCall
from tuner.gpu.arrays import TensorView, array_of, import_library, library_version
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Timed, load
from tuner.gpu.captured import PYTHON, Call, Captured, capture
from tuner.kernel.functions import BaselineKind, arguments_for, built, first_line, load_function
from tuner.kernel.modules import on_gpu
from tuner.kernel.reference import Expected, as_results


def library_call(text: str, views: Mapping[str, TensorView], numbers: Mapping[str, Value]) -> Call:
    """Bind a library's call to tensors.

    Args:
        text: the call.
        views: the tensors by name.
        numbers: the problem's sizes and the kernel's scalars by name.

    Raises:
        TunerError: the library is not installed, cannot hold one of the tensors, or lacks the function.
    """
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


def function_call(
    text: str,
    function: Callable[..., Any],
    views: Mapping[str, TensorView],
    numbers: Mapping[str, Value],
    stream: int,
    outputs: Collection[str] = (),
) -> Call:
    """Bind a user's function to tensors.

    Args:
        text: names it.
        function: that one.
        views: the tensors by name.
        numbers: the problem's sizes and the kernel's scalars by name.
        stream: handle of the stream, if the function asks for it.
        outputs: tensors that it returns where it does not ask for them.

    Raises:
        TunerError: it wants something that is not there, or its library cannot hold one of the tensors.
    """
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


def open_baseline(data: ProblemData, baseline: BaselineContestant) -> Captured:
    """Capture a baseline that is a call.

    Args:
        data: the tensors.
        baseline: what is run.

    Raises:
        TunerError: a library is missing, or the call fails.
    """
    text, numbers = baseline.text, baseline.numbers
    if baseline.kind == BaselineKind.CALL:
        return capture(data.helpers.context, [library_call(text, views, numbers) for views in _views(data)])
    return _captured(data, text, load_function(text, baseline.file), numbers)


def open_call(data: ProblemData, call: PythonCall) -> Captured:
    """Capture a user's function, which is a candidate; errors as of :func:`open_baseline`."""
    function = call.function
    if call.model is None:
        name, file = function.name, function.file
        made = built(function, call.parameters) if function.builds else load_function(name, file)
        return _captured(data, name, made, call.numbers)
    set_precision(import_library("torch"), tf32=False)
    try:
        module = on_gpu(function.name, function.file, call.model)
    except TunerError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a user's module throws
        raise TunerError(f"{function.text}: {first_line(error)}", "correct the module") from None
    calls = []
    for views in _views(data):
        outputs = {name: views[name] for name in _outputs(data)}
        tensors = [array_of("torch", view) for name, view in views.items() if name not in outputs]
        calls.append(Call(function.text, PYTHON, partial(module, *tensors), outputs))
    return capture(data.helpers.context, calls)


def expected_of_kernel(data: ProblemData, reference: ReferenceData) -> dict[str, Expected]:
    """Return what other configurations must compute, in the shape that the kernel means.

    Args:
        data: the tensors, whose outputs are overwritten.
        reference: with a kernel that writes the outputs' own dtypes.

    Raises:
        KernelError: it leaves outputs as they were, or writes where it must not.
        DriverFailure: it cannot be launched, or ruined the context.
    """
    assert reference.kernel is not None
    data.seal()
    context, kernel = data.helpers.context, reference.kernel
    opened: Timed = load(data, kernel) if kernel.call is None else open_call(data, kernel.call)
    with closing(opened) as timed:
        data.poison()
        with context.launched() as graph:
            data.add_restore(graph)
            timed.add_to(graph, 0)
        timed.deliver(0)
    if damage := data.damage():
        raise KernelError(f"{reference.rounded} {damage}", "it is the reference: correct it")
    return {
        tensor.name: as_results(tensor.name, tensor.dtype, data.download(tensor), reference)
        for tensor in data.outputs
    }


def _captured(
    data: ProblemData, text: str, function: Callable[..., Any], numbers: Mapping[str, Value]
) -> Captured:
    context = data.helpers.context
    how = numbers, int(context.stream), _outputs(data)
    return capture(context, [function_call(text, function, views, *how) for views in _views(data)])


def _outputs(data: ProblemData) -> list[str]:
    return [tensor.name for tensor in data.tensors if tensor.role == "output"]


def _views(data: ProblemData) -> Iterator[dict[str, TensorView]]:
    """Yield the tensors by name, of each copy."""
    for copy in range(data.copies):
        yield {
            one.name: TensorView(data.address(one.name, copy), one.shape, one.dtype, one.transposed)
            for one in data.tensors
        }
