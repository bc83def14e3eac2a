"""What a user would otherwise call, inside the same graphs and on the same buffers as a candidate.

A call is captured once for each copy of the tensors and becomes a child graph: no Python is timed, and it is flushed,
rested and interleaved like everything else. What it allocates while it runs comes from a memory pool of its own, which
lives as long as the capture, so that memory that the graph still writes is given to nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver as cu

from tuner.children.measuring import BaselineContestant, PythonCall
from tuner.core.errors import TunerError, UsageError
from tuner.core.model import Value
from tuner.expressions.array import ArrayExpression
from tuner.expressions.library_call import LibraryCall
from tuner.gpu.arrays import (
    TensorView,
    array_of,
    cupy_stream,
    import_library,
    library_version,
    torch_stream,
)
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Timed, copy_all
from tuner.gpu.driver import Context, Graph
from tuner.gpu.returned import Returned, returned
from tuner.kernel.functions import BaselineKind, arguments_for, first_line, load_function
from tuner.kernel.modules import on_gpu
from tuner.runtime.driver import DriverFailure, check

WARM_UPS = 3
"""Calls before a capture. In the first of them libraries compile, choose algorithms and set up their workspaces, which
must not happen while a graph is captured."""
PYTHON = "python"


@dataclass
class Call:
    """A call that is ready to be made, on one copy of the tensors."""

    text: str
    library: str
    """``torch``, ``cupy``, or ``python`` for a user's function, which may use both."""
    run: Callable[[], object]
    outputs: Mapping[str, TensorView] = field(default_factory=dict)
    """Those that it is not given, and has to return."""
    value: object = None
    """What it has returned last."""

    def __call__(self) -> None:
        """Queue its work on its library's current stream."""
        self.value = self.run()


def make_call(
    kind: BaselineKind,
    text: str,
    file: Path | None,
    views: Mapping[str, TensorView],
    scalars: Mapping[str, Value],
    sizes: Mapping[str, int] | None = None,
    stream: int = 0,
    outputs: Collection[str] = (),
) -> Call:
    """Bind a library's call or a user's function to tensors.

    Args:
        kind: ``CALL`` or ``PYTHON``.
        text: the call; or the function's name, behind its module and a colon where there is no file.
        file: the Python file that has the function.
        views: the tensors by name.
        scalars: the kernel's scalars by name.
        sizes: the problem's sizes by name.
        stream: handle of the stream, for functions that ask for it.
        outputs: tensors that a function returns where it does not ask for them.

    Raises:
        TunerError: the library is not installed, cannot hold one of the tensors, or lacks the function; or the
            user's function cannot be loaded, or wants something that is not there.
    """
    numbers = {**(sizes or {}), **scalars}
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
    function = load_function(text, file)
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


def capture(context: Context, calls: Sequence[Call]) -> Captured:
    """Warm up and capture one call on each copy of the tensors.

    Raises:
        TunerError: it fails, or cannot be captured.
        DriverFailure: it has ruined the context.
    """
    text, library = calls[0].text, calls[0].library
    with library_stream(context, library), _own_memory(library) as memory:
        try:
            for _ in range(WARM_UPS):
                for call in calls:
                    call()
            context.synchronize()
            captured = Captured(context, *calls, library=library, memory=memory)
            stream = int(context.stream)
            captured.take([returned(call.value, call.outputs, stream, text) for call in calls])
            return captured
        except TunerError as error:
            raise TunerError(f"{text}: {error.problem}", error.remedy) from None
        except DriverFailure:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a library or a user's function throws
            context.synchronize()  # raises what the driver says if the context is ruined
            raise TunerError(f"{text}: {first_line(error)}") from None


@contextmanager
def library_stream(context: Context, library: str) -> Iterator[None]:
    """Make a library queue its work on the context's stream; ``python`` stands for all that are loaded."""
    with ExitStack() as stack:
        if _involves("torch", library):
            stack.enter_context(torch_stream(context))
        if _involves("cupy", library):
            stack.enter_context(cupy_stream(context))
        yield


def _involves(name: str, library: str) -> bool:
    return library == name or (library == PYTHON and name in sys.modules)


@contextmanager
def _own_memory(library: str) -> Iterator[Any]:
    """Return CuPy a pool of its own; torch takes one by itself while it captures."""
    if not _involves("cupy", library):
        yield None
        return
    cupy = import_library("cupy")
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        yield pool


class Captured(Timed):
    """A captured call, once for each copy of the tensors; is timed like a loaded candidate.

    Args:
        context: whose stream the calls queue their work on.
        calls: the call on each copy, warmed up.
        library: whose calls they are; torch captures its own, because its allocator must know.
        memory: what must live as long as the graphs.

    Raises:
        TunerError: nothing was captured, or something that cannot be a part of another graph.
    """

    def __init__(
        self, context: Context, *calls: Callable[[], None], library: str = "", memory: Any = None
    ) -> None:
        self._graphs: list[Any] = []
        self._owners: list[Any] = []
        """For each graph, the object of torch that owns it and its memory; None where it is ours."""
        self._library, self._memory = library, memory
        self._calls = calls  # with what they have returned
        self._returned: Sequence[Sequence[Returned]] = [[] for _ in calls]
        torch = _capturing_torch(library)
        pool = torch.cuda.graph_pool_handle() if torch else None
        try:
            for call in calls:
                graph, owner = (
                    _with_torch(torch, pool, call) if torch else (_with_driver(context, call), None)
                )
                self._graphs.append(graph)
                self._owners.append(owner)
                _require_work(graph)
        except BaseException:
            self.close()
            raise

    def add_to(self, graph: Graph, copy: int = 0) -> None:
        """Append the call on one copy of the tensors."""
        graph.append(cu.cuGraphAddChildGraphNode, self._graphs[copy])

    def take(self, outputs: Sequence[Sequence[Returned]]) -> None:
        """Take over outputs of each copy that are not in the problem's memory; they live from launch to launch."""
        self._returned = outputs
        self.regions = self.results = [one.region for each in outputs for one in each]

    def deliver(self, copy: int) -> None:
        """Copy outputs that it has returned to where they are compared."""
        copy_all([one.piece for one in self._returned[copy]])

    def close(self) -> None:
        """Free the captures and their memory; no graph that they were added to may run after it."""
        for graph, owner in zip(self._graphs, self._owners, strict=True):
            if owner is None:
                cu.cuGraphDestroy(graph)
            else:
                owner.reset()
        self._graphs, self._owners, self._calls = [], [], ()
        # Both libraries keep what is free, for themselves: gigabytes that the next problem would lack.
        with suppress(RuntimeError):  # a context that is ruined gives nothing back
            if self._memory is not None and sys.modules.get("cupy"):
                self._memory.free_all_blocks()
            if _involves("torch", self._library) and (torch := sys.modules.get("torch")):
                torch.cuda.empty_cache()
        self._memory = None


def _capturing_torch(library: str) -> Any:
    """Return torch where it is involved and hands out what it has captured (2.8 and later)."""
    if not _involves("torch", library):
        return None
    torch = import_library("torch")
    return torch if hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph") else None


def _with_torch(torch: Any, pool: Any, call: Callable[[], None]) -> tuple[Any, Any]:
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    stream = torch.cuda.current_stream()
    failure: Exception | None = None
    try:
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="relaxed"):
            try:
                call()
            except Exception as error:  # noqa: BLE001 - torch must end the capture, whatever has happened
                failure = error
    except Exception as error:  # noqa: BLE001 - the end of a broken capture only says that it is broken
        raise failure or error from None
    if failure:
        raise failure
    return cu.CUgraph(graph.raw_cuda_graph()), graph


def _with_driver(context: Context, call: Callable[[], None]) -> Any:
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    check(cu.cuStreamBeginCapture(context.stream, mode))
    try:
        call()
    except BaseException:
        error, graph = cu.cuStreamEndCapture(context.stream)
        if int(error) == 0 and int(graph):
            cu.cuGraphDestroy(graph)
        raise
    return check(cu.cuStreamEndCapture(context.stream))


def _require_work(graph: Any) -> None:
    _, count = check(cu.cuGraphGetNodes(graph, 0))
    if not count:
        raise TunerError(
            "it queues nothing on the current stream", "it must not use the default stream or one of its own"
        )
    nodes, _ = check(cu.cuGraphGetNodes(graph, count))
    kinds = {int(check(cu.cuGraphNodeGetType(node))) for node in nodes}
    # Memory nodes are refused in child graphs (CUDA C++ Programming Guide, Graph Memory Nodes).
    if int(cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEM_ALLOC) in kinds:
        raise TunerError("it takes memory with cudaMallocAsync while it runs", "have it do so before")


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
    numbers = {**baseline.sizes, **baseline.scalars}
    with closing(_captured(context, data, kind, text, baseline.file, numbers)) as captured:
        yield captured


def open_call(context: Context, data: ProblemData, call: PythonCall) -> Captured:
    """Capture a user's function, which is a candidate; errors as of :func:`open_baseline`."""
    function = call.function
    if call.model is None:
        return _captured(context, data, BaselineKind.PYTHON, function.name, function.file, call.numbers)
    import_library("torch")
    module = on_gpu(function.name, function.file, call.model)
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
) -> Captured:
    calls = []
    for copy in range(data.copies):
        views = _views(data, copy)
        outputs = [tensor.name for tensor in data.tensors if tensor.role == "output"]
        call = make_call(kind, text, file, views, numbers, stream=int(context.stream), outputs=outputs)
        calls.append(call)
    return capture(context, calls)


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
