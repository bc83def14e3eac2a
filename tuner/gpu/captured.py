"""Calls of libraries and of users' functions, captured: they are timed like a loaded candidate.

A call is captured once for each copy of the tensors and becomes a child graph: no Python is timed, and it is flushed,
rested and interleaved like everything else. What it allocates while it runs comes from a memory pool of its own, which
lives as long as the capture, so that memory that the graph still writes is given to nothing else. Outputs that a user's
function returns, instead of writing to those of the problem, are copied for comparing, outside of what is timed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from cuda.bindings import driver as cu

from tuner.core.errors import CallError, TunerError
from tuner.gpu.arrays import TensorView, import_library, library_version
from tuner.gpu.candidate import COPIES, Piece, Region, Timed, copy_all
from tuner.gpu.driver import Context, Graph
from tuner.kernel.functions import first_line
from tuner.runtime.arrays import read_dlpack
from tuner.runtime.driver import DriverFailure, check
from tuner.runtime.dtypes import ITEMSIZE

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
            _require_whole_cache(context)
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
    with ExitStack() as streams:
        if _involves("torch", library):
            torch = import_library("torch")
            device = torch.device("cuda", int(context.device))
            ours = torch.cuda.ExternalStream(int(context.stream), device=device)
            streams.enter_context(torch.cuda.stream(ours))
        if _involves("cupy", library):
            cuda = import_library("cupy").cuda
            streams.enter_context(cuda.Device(int(context.device)))
            streams.enter_context(cuda.ExternalStream(int(context.stream), int(context.device)))
        yield


def _involves(name: str, library: str) -> bool:
    return library == name or (library == PYTHON and name in sys.modules and bool(library_version(name)))


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
        self._library, self._memory, self.foreign = library, memory, library == PYTHON
        self._calls = calls  # with what they have returned
        self._returned: Sequence[Sequence[Piece]] = [[] for _ in calls]
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

    def take(self, outputs: Sequence[Sequence[Piece]]) -> None:
        """Take over outputs of each copy that are not in the problem's memory; they live from launch to launch."""
        self._returned = outputs
        # Fresh launches are of the first copies alone.
        returned = [piece for each in outputs[:COPIES] for piece in each]
        self.regions = [Region("what it returns", address, size) for _, address, size in returned]

    def deliver(self, copy: int) -> None:
        """Copy outputs that it has returned to where they are compared."""
        copy_all(self._returned[copy])

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


def _require_whole_cache(context: Context) -> None:
    if context.set_aside:
        raise TunerError("it sets a part of the L2 aside", "what lies there would outlast the flush")


def _require_work(graph: Any) -> None:
    _, count = check(cu.cuGraphGetNodes(graph, 0))
    if not count:
        raise TunerError(
            "it queues nothing on the current stream", "it must not use the default stream or one of its own"
        )
    kinds = set(_kinds_in(graph, count))
    # Memory nodes are refused in child graphs (CUDA C++ Programming Guide, Graph Memory Nodes).
    if cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEM_ALLOC in kinds:
        raise TunerError("it takes memory with cudaMallocAsync while it runs", "have it do so before")
    if cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_HOST in kinds:  # which may do anything, in any launch
        raise TunerError("it calls a function of the host while it runs", "have it work on the GPU alone")


def _kinds_in(graph: Any, count: int) -> Iterator[Any]:
    """Yield the type of each node of a graph, and of the graphs in it."""
    for node in check(cu.cuGraphGetNodes(graph, count))[0]:
        yield (kind := check(cu.cuGraphNodeGetType(node)))
        if kind == cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH:
            inner = check(cu.cuGraphChildGraphNodeGetGraph(node))
            yield from _kinds_in(inner, check(cu.cuGraphGetNodes(inner, 0))[1])


def returned(value: object, outputs: Mapping[str, TensorView], stream: int, text: str) -> list[Piece]:
    """Return where outputs belong and lie that a call has returned, in the order in which the task has them.

    Args:
        value: an array, or several, or arrays by the outputs' names.
        outputs: those that the call was not given.
        stream: on which it was captured.
        text: names the call.

    Raises:
        TunerError: they are others, or not as memory of the problem has them.
    """
    if not outputs:
        return []
    several: Sequence[object] = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, Mapping):
        several = [value.get(name) for name in outputs]
    if len(several) != len(outputs) or any(one is None for one in several):
        names = ", ".join(outputs)
        raise TunerError(
            f"{text} neither takes nor returns {names}", f"take {names} as parameters, or return them"
        )
    return [
        _placed(one, name, view, stream) for one, (name, view) in zip(several, outputs.items(), strict=True)
    ]


def _placed(array: object, name: str, view: TensorView, stream: int) -> Piece:
    torch = sys.modules.get("torch")
    if torch and isinstance(array, torch.Tensor) and type(array) not in (torch.Tensor, torch.nn.Parameter):
        kind = type(array).__name__
        raise TunerError(
            f"{kind} is returned for {name}", "return a torch.Tensor, which computes nothing later"
        )
    try:
        address, layout = read_dlpack(array, stream)
    except CallError as error:
        raise TunerError(
            f"what is returned for {name}: {error.problem}", "return an array on the GPU"
        ) from None
    shape = view.shape[::-1] if view.transposed else view.shape
    if layout.device < 0 or (layout.dtype, layout.shape or (1,)) != (view.dtype, shape):
        where = "" if layout.device >= 0 else f" in {layout.memory}"
        raise TunerError(
            f"{layout.dtype} {list(layout.shape)}{where} is returned for {name}",
            f"return {view.dtype} {list(shape)} on the GPU",
        )
    if not layout.is_dense(transposed=view.transposed):
        raise TunerError(f"what is returned for {name} has gaps, or another order", "return it contiguous")
    return view.address, address, math.prod(shape) * ITEMSIZE[view.dtype]
