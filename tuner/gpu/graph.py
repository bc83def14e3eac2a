"""Launches as nodes of CUDA graphs, in one chain: no host work lies between them."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

from tuner.gpu.driver import Context, check
from tuner.gpu.tensor_map import encoded
from tuner.runtime.launches import MAX_CLUSTERS, Launch, TensorMap

_F = cu.CUfunction_attribute
_ATTRIBUTE = cu.CUlaunchAttributeID
_C_TYPES: dict[str, Any] = {
    "float64": ctypes.c_double,
    "float32": ctypes.c_float,
    "int64": ctypes.c_longlong,
    "int32": ctypes.c_int,
    "uint32": ctypes.c_uint,
    "int8": ctypes.c_byte,
    "uint8": ctypes.c_ubyte,
}


def in_order(launch: Launch, _size: int) -> range:
    """Number the clusters of a launch as they come."""
    return range(launch.clusters)


class Kernel:
    """A loaded kernel with everything bound that a launch needs.

    Args:
        module: the loaded cubin.
        entry: the kernel's name in it.
        launch: grid, block, shared memory, attributes.
        addresses: device address of each buffer that the arguments name.
        cluster_order: numbers the clusters of a launch, for its table of them; without it, in their own order.
    """

    def __init__(
        self,
        module: Any,
        entry: str,
        launch: Launch,
        addresses: dict[str, int],
        cluster_order: Callable[[Launch, int], Sequence[int]] = in_order,
    ) -> None:
        self.function = check(cu.cuModuleGetFunction(module, entry.encode()))
        self.launch = launch
        if launch.shared_bytes:
            attribute = _F.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(cu.cuFuncSetAttribute(self.function, attribute, launch.shared_bytes))
        if launch.carveout is not None:
            attribute = _F.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
            check(cu.cuFuncSetAttribute(self.function, attribute, launch.carveout))
        if launch.cluster is not None and launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > 8:
            attribute = _F.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            check(cu.cuFuncSetAttribute(self.function, attribute, 1))
        self._values = [
            _table(cluster_order(launch, int(value)))
            if kind == "cluster_order"
            else _argument(kind, name, value, addresses)
            for kind, name, value in launch.arguments
        ]
        pointers = [ctypes.addressof(value) for value in self._values]
        self._pointers = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)

    def add_to(self, graph: Graph) -> None:
        """Append this launch to a graph."""
        launch = self.launch
        params = cu.CUDA_KERNEL_NODE_PARAMS()
        params.func = self.function
        params.gridDimX, params.gridDimY, params.gridDimZ = launch.grid
        params.blockDimX, params.blockDimY, params.blockDimZ = launch.block
        params.sharedMemBytes = launch.shared_bytes
        params.kernelParams = ctypes.addressof(self._pointers)
        node = graph.append_kernel(params, programmatic=launch.programmatic)
        if launch.cluster is not None:
            value = cu.CUkernelNodeAttrValue()
            value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = launch.cluster
            check(
                cu.cuGraphKernelNodeSetAttribute(
                    node, _ATTRIBUTE.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value
                )
            )
        if launch.cooperative:
            value = cu.CUkernelNodeAttrValue()
            value.cooperative = 1
            check(cu.cuGraphKernelNodeSetAttribute(node, _ATTRIBUTE.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value))


class Graph:
    """A chain of nodes, instantiated once and launched as often as wanted."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._graph = check(cu.cuGraphCreate(0))
        self._last: list[Any] = []
        self._ends_with_kernel = False
        self._executable: Any = None
        self._events: list[Any] = []

    def append(self, add: Any, *arguments: Any) -> Any:
        """Add a node that depends on the one before it; ``add`` is the driver's function."""
        node = check(add(self._graph, self._last, len(self._last), *arguments))
        self._last, self._ends_with_kernel = [node], False
        return node

    def append_kernel(self, params: cu.CUDA_KERNEL_NODE_PARAMS, *, programmatic: bool) -> Any:
        """Add a kernel.

        Args:
            params: of the kernel.
            programmatic: whether it may begin before the node before has ended, if that is a kernel, too.
        """
        if programmatic and self._ends_with_kernel:
            node = check(cu.cuGraphAddKernelNode(self._graph, [], 0, params))
            edge = cu.CUgraphEdgeData()
            edge.from_port = cu.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
            edge.type = cu.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.value
            check(cu.cuGraphAddDependencies(self._graph, self._last, [node], [edge], 1))
        else:
            node = check(cu.cuGraphAddKernelNode(self._graph, self._last, len(self._last), params))
        self._last, self._ends_with_kernel = [node], True
        return node

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

    def launch(self) -> None:
        """Queue the whole chain on the context's stream."""
        if self._executable is None:
            self._executable = check(cu.cuGraphInstantiate(self._graph, 0))
        check(cu.cuGraphLaunch(self._executable, self._context.stream))

    def close(self) -> None:
        """Free what the driver holds; harmless after a fault."""
        for event in self._events:
            cu.cuEventDestroy(event)
        if self._executable is not None:
            cu.cuGraphExecDestroy(self._executable)
        cu.cuGraphDestroy(self._graph)
        self._events, self._executable = [], None


def _table(numbers: Sequence[int]) -> Any:
    return (ctypes.c_ubyte * MAX_CLUSTERS)(*numbers)


def _argument(kind: str, name: str, value: Any, addresses: dict[str, int]) -> Any:
    if kind == "buffer":
        return ctypes.c_void_p(addresses[name])
    if kind == "map":
        return encoded(TensorMap(**json.loads(value)), addresses[name])
    if name in ("float16", "bfloat16"):
        return ctypes.c_ushort(_sixteen_bits(float(value), name))
    return _C_TYPES[name](value)


def _sixteen_bits(value: float, dtype: str) -> int:
    if dtype == "float16":
        return int(np.float16(value).view(np.uint16))
    bits = int(np.float32(value).view(np.uint32))
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
