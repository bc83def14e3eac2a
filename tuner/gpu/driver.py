"""A GPU's context, limits and graphs, and the status of a trial that a failed driver call stands for.

Launches are nodes of CUDA graphs, in one chain: no host work lies between them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from cuda.bindings import driver as cu

from tuner.core.errors import DeviceError
from tuner.core.model import Gpu, Status
from tuner.runtime.driver import (
    ATTRIBUTES,
    DriverFailure,
    attribute_of,
    capability_of,
    check,
    gpu_count,
    name_of,
    uuid_of,
)
from tuner.runtime.kernel import Kernel, attributes

_OUT_OF_MEMORY = 2

_A = cu.CUdevice_attribute


def status_of(failure: DriverFailure) -> Status:
    """Return the status of the trial that caused a failure."""
    if failure.sticky:
        return Status.MEMORY_FAULT
    return Status.OUT_OF_MEMORY if failure.code == _OUT_OF_MEMORY else Status.LAUNCH_ERROR


def fill_bytes(address: int, byte: int, size_bytes: int) -> None:
    """Set memory to a byte, and wait until it is.

    The driver's own call returns before it is done, and our stream does not wait for the default one.
    """
    check(cu.cuMemsetD8(address, byte, size_bytes))
    check(cu.cuStreamSynchronize(0))


def find_device(index: int) -> Any:
    """Return the driver's handle of a GPU, without a context on it.

    Raises:
        DeviceError: there is no such GPU.
    """
    count = gpu_count()
    if not 0 <= index < count:
        raise DeviceError(f"there is no GPU number {index}", f"this machine has {count}: 0 to {count - 1}")
    return check(cu.cuDeviceGet(index))


def described(device: Any) -> Gpu:
    """Return a GPU's name and limits, for which it needs no context."""
    version = int(check(cu.cuDriverGetVersion()))
    clock_hz = attribute_of(device, _A.CU_DEVICE_ATTRIBUTE_CLOCK_RATE) * 1e3
    memory_hz = attribute_of(device, _A.CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) * 1e3
    bus_bytes = attribute_of(device, _A.CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8
    return Gpu(
        name=name_of(device),
        cc=capability_of(device),
        **{limit: attribute_of(device, kind) for limit, kind in ATTRIBUTES.items()},
        memory_bytes=int(check(cu.cuDeviceTotalMem(device))),
        reserved_shared_bytes=attribute_of(device, _A.CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
        clock_hz=clock_hz,
        # Two transfers a clock: all of today's graphics and high-bandwidth memories are double data rate.
        memory_bytes_per_s=2 * memory_hz * bus_bytes,
        uuid=uuid_of(device),
        driver=f"{version // 1000}.{version % 1000 // 10}",
    )


class Context:
    """The primary context of one GPU, current in this thread, and a stream."""

    def __init__(self, index: int) -> None:
        self.device = find_device(index)
        self.handle = check(cu.cuDevicePrimaryCtxRetain(self.device))
        check(cu.cuCtxSetCurrent(self.handle))
        # Lines that a kernel asks the L2 to keep would survive the flush, and the kernel would find them in the next
        # sample: of 30 MiB read with the policy evict_last on an H100, 11.6 us instead of 14.6 (freshness.json).
        with suppress(RuntimeError):  # a driver without it
            cu.cuCtxSetLimit(cu.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0)  # GPUs before 8.0 have none
        self.stream = check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value))

    @property
    def set_aside(self) -> int:
        """Bytes of the L2 that a call has set aside, for lines that survive the flush."""
        error, size = cu.cuCtxGetLimit(cu.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
        return 0 if int(error) else int(size)  # GPUs before 8.0 have none

    def synchronize(self) -> None:
        """Wait for the stream."""
        check(cu.cuStreamSynchronize(self.stream))

    @contextmanager
    def launched(self) -> Iterator[Graph]:
        """Return an empty graph that is launched at the end of the block, and awaited."""
        with closing(Graph(self)) as graph:
            yield graph
            graph.launch()
            self.synchronize()


_EARLY = cu.CUgraphEdgeData()
"""To a node that may begin before the kernel ahead of it has ended."""
_EARLY.from_port = cu.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
_EARLY.type = cu.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.value
_Node = tuple[cu.CUgraphNodeParams, list[tuple[Any, Any]]]


def _node_of(kernel: Kernel) -> _Node:
    """Return what a launch's nodes are made of, and their attributes with the values."""
    launch = kernel.settings
    params = cu.CUgraphNodeParams()
    params.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    node = params.kernel
    node.func = kernel.function
    node.gridDimX, node.gridDimY, node.gridDimZ = launch.grid
    node.blockDimX, node.blockDimY, node.blockDimZ = launch.block
    node.sharedMemBytes = launch.shared_bytes
    node.kernelParams = kernel.arguments
    values = []
    for attribute, words in attributes(launch, node=True).items():
        value = cu.CUkernelNodeAttrValue()
        ctypes.memmove(value.getPtr(), (ctypes.c_uint * len(words))(*words), 4 * len(words))
        values.append((attribute, value))
    return params, values


class Graph:
    """A chain of nodes, instantiated once and launched as often as wanted."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._graph = check(cu.cuGraphCreate(0))
        self._last: list[Any] = []
        self._ends_with_kernel = False
        self._executable: Any = None
        self._events: list[Any] = []
        self._prepared: dict[Kernel, _Node] = {}
        """Of each kernel what its nodes are made of: a group may have thousands, and to make it takes 3 to 10 us."""

    def append(self, add: Any, *arguments: Any) -> Any:
        """Add a node that depends on the one before it; ``add`` is the driver's function."""
        node = check(add(self._graph, self._last, len(self._last), *arguments))
        self._last, self._ends_with_kernel = [node], False
        return node

    def kernel(self, kernel: Kernel) -> None:
        """Append a launch, with what is bound now.

        A programmatic one may begin before the node before has ended, if that is a kernel, too.
        """
        if kernel not in self._prepared:
            self._prepared[kernel] = _node_of(kernel)
        params, values = self._prepared[kernel]
        edges = [_EARLY] if kernel.settings.programmatic and self._ends_with_kernel else None
        node = check(cu.cuGraphAddNode(self._graph, self._last, edges, len(self._last), params))
        self._last, self._ends_with_kernel = [node], True
        for attribute, value in values:
            check(cu.cuGraphKernelNodeSetAttribute(node, attribute, value))

    def memset(self, address: int, byte: int, size_bytes: int) -> None:
        """Append a memset."""
        params = cu.CUDA_MEMSET_NODE_PARAMS()
        # One row of at most 4 GiB - 1; a taller rectangle beyond it.
        width = size_bytes
        height = 1
        while width >= 1 << 32:
            if width % 2:
                raise ValueError("memset of an odd number of bytes above 4 GiB")
            width, height = width // 2, height * 2
        params.dst, params.value, params.elementSize = address, byte, 1
        params.width, params.height, params.pitch = width, height, width
        self.append(cu.cuGraphAddMemsetNode, params, self._context.handle)

    def copy(self, to: int, source: int, size_bytes: int) -> None:
        """Append a copy within the device."""
        params = cu.CUDA_MEMCPY3D()
        params.srcMemoryType = params.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        params.srcDevice, params.dstDevice = source, to
        params.WidthInBytes, params.Height, params.Depth = size_bytes, 1, 1
        self.append(cu.cuGraphAddMemcpyNode, params, self._context.handle)

    def event(self) -> Any:
        """Append the recording of a new event, and give the event."""
        event = check(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DEFAULT.value))
        self._events.append(event)
        self.append(cu.cuGraphAddEventRecordNode, event)
        return event

    def prepare(self) -> None:
        """Bring the chain to the GPU, which its first launch would do as it goes.

        That made the only sample of 160 calls of 1.3 us on an H100 60 % longer in the first launch than later.
        """
        if self._executable is None:
            self._executable = check(cu.cuGraphInstantiate(self._graph, 0))
            check(cu.cuGraphUpload(self._executable, self._context.stream))

    def launch(self) -> None:
        """Queue the whole chain on the context's stream."""
        self.prepare()
        check(cu.cuGraphLaunch(self._executable, self._context.stream))

    def close(self) -> None:
        """Free what the driver holds; harmless after a fault."""
        for event in self._events:
            cu.cuEventDestroy(event)
        if self._executable is not None:
            cu.cuGraphExecDestroy(self._executable)
        cu.cuGraphDestroy(self._graph)
        self._events, self._executable = [], None
