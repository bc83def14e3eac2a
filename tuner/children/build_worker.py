"""The compiling child for functions that build kernels with Triton: what they launch is compiled into Triton's cache.

The measuring process finds it there; by itself it would compile one configuration after the other while the GPU waits.
Nothing is launched: Triton is told which GPU to compile for, and arrays have shapes but no memory (torch's device
``meta``). What cannot be compiled so is compiled where it is measured, which also says what is wrong with it. Memory is
not limited: importing torch maps more of it than a compiler may.
"""

from __future__ import annotations

import importlib
import os
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from msgspec import structs

from tuner.children.compilation import COMPILING, Compilation, CompileRequest, ReadRequest, RenderRequest
from tuner.children.compile_worker import Compiler
from tuner.children.measuring import PythonCall
from tuner.core.errors import CompileError
from tuner.core.model import Gpu
from tuner.core.processes import ParentPipe
from tuner.kernel.functions import arguments_for, built
from tuner.kernel.load import read_kernel
from tuner.kernel.plan import tensors_of
from tuner.runtime.launches import Buffer

THREADS_OF_WARP = 32
MOST_FAILURES = 3
"""After so many one after the other no more is tried: importing a file that needs a GPU may take seconds each time."""


def compile_only(gpu: Gpu) -> None:
    """Have launches of Triton's kernels compile them for a GPU, and do no more."""
    compiler = importlib.import_module("triton.backends.compiler")
    runtime = importlib.import_module("triton.runtime")
    target = compiler.GPUTarget("cuda", gpu.cc, THREADS_OF_WARP)
    asked = {"get_current_target": target, "get_current_device": 0, "get_current_stream": 0}
    answers = {name: (lambda *_, answer=answer: answer) for name, answer in asked.items()}
    runtime.driver.set_active(SimpleNamespace(**answers))
    launch = runtime.JITFunction.run

    def run(kernel: Any, *arguments: Any, **how: Any) -> Any:
        return launch(kernel, *arguments, **{**how, "warmup": True})

    runtime.JITFunction.run = run


class Builder:
    """Answers requests as the compiling child does, and compiles what a function launches."""

    def __init__(self) -> None:
        self._compiler = Compiler(None)
        self._failures = 0
        """In a row."""

    def answer(self, request: CompileRequest) -> Compilation:
        """Return the function that a request names, with what it launches compiled if that is possible here."""
        compilation = self._compiler.answer(request)
        if (
            compilation.call is None
            or not isinstance(request, RenderRequest)
            or self._failures == MOST_FAILURES
        ):
            return compilation
        began = time.monotonic()
        try:
            _compile(request, compilation.call)
            self._failures = 0
        except CompileError:  # of this configuration
            pass
        except (Exception, SystemExit):  # noqa: BLE001 - whatever a user's file throws
            self._failures += 1
        return structs.replace(compilation, compile_s=time.monotonic() - began)


def _compile(request: RenderRequest, call: PythonCall) -> None:
    function = built(call.function, call.parameters)
    tensors = tensors_of(read_kernel(request.kernel_file), request.problem, request.gpu)
    available = {"stream": 0, **call.numbers, **{tensor.name: _array(tensor) for tensor in tensors}}
    positional, named = arguments_for(function, available, call.function.text)
    function(*positional, **named)


def _array(tensor: Buffer) -> Any:
    torch = importlib.import_module("torch")
    array = torch.empty(tensor.shape, dtype=getattr(torch, tensor.dtype), device="meta")
    return array.permute(*reversed(range(array.dim()))) if tensor.transposed else array


def main() -> None:
    """Serve until the parent closes the pipe."""
    pipe = ParentPipe(COMPILING)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch is imported: this process needs no context
    with suppress(Exception):
        importlib.import_module("torch")
    builder, gpu = Builder(), None
    while (request := pipe.receive()) is not None:
        if gpu is None and not isinstance(request, ReadRequest):
            gpu = request.gpu  # a pool's requests are all of one
            with suppress(Exception):
                compile_only(gpu)
        pipe.send(builder.answer(request))


if __name__ == "__main__":
    main()
