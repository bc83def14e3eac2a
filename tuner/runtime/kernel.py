"""A loaded kernel with everything bound that a launch needs, in a stream or as a node of a graph.

The driver wants the 128 bytes of a tensor map at a multiple of 64, which the bindings' own structure is not: its bytes
lie 48 behind one. So that call goes through ctypes, to memory of ours.
"""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuda.bindings import driver as cu

from .driver import DriverFailure, LaunchAttribute, LaunchConfig, check, failure, library
from .dtypes import ITEMSIZE
from .launch_limits import packed
from .launches import MAX_CLUSTERS, Launch, TensorMap
from .structs import leaves, size_of

PORTABLE_CLUSTER = 8
"""Blocks of the largest cluster that every GPU with clusters has."""

_NO_STRIDES: Mapping[str, int] = {}
_F = cu.CUfunction_attribute
_ATTRIBUTE = cu.CUlaunchAttributeID


def in_order(launch: Launch, _size: int) -> range:
    """Number the clusters of a launch as they come."""
    return range(launch.clusters)


def attributes(launch: Launch, *, node: bool) -> dict[cu.CUlaunchAttributeID, tuple[int, ...]]:
    """Return the launch attributes with their values; those of a graph's node, or of a launch in a stream.

    A launch whose blocks wait for each other is cooperative: the driver refuses a grid that would wait for ever.
    """
    chosen = {}
    if launch.cluster is not None:
        chosen[_ATTRIBUTE.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION] = tuple(launch.cluster)
    if launch.cooperative or launch.resident:
        chosen[_ATTRIBUTE.CU_LAUNCH_ATTRIBUTE_COOPERATIVE] = (1,)
    if launch.programmatic and not node:  # in a graph it is an edge
        chosen[_ATTRIBUTE.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION] = (1,)
    return chosen


class Kernel:
    """A launch of a loaded kernel: the function's attributes are set, and its arguments have memory of their own.

    That memory is used by one caller at a time: hold a lock from :meth:`bind` or :meth:`set_scalar` until the launch
    that they were for has returned, or give each thread a kernel. The driver copies the arguments while it is called,
    so that they may change right after. The context of the module must be current.

    Args:
        module: the loaded cubin.
        entry: the kernel's name in it.
        launch: grid, block, shared memory, attributes.
        addresses: device address of each buffer that the arguments name, bound at once; without it by :meth:`bind`.
        cluster_order: numbers the clusters of a launch, for its table of them; without it, in their own order.

    Attributes:
        function: the driver's handle.
        settings: the launch, as it was given.
        arguments: host address of an array with a pointer to each argument.

    Raises:
        DriverFailure: the module has no such kernel, or the GPU not as much shared memory, or a map is refused.
    """

    def __init__(
        self,
        module: Any,
        entry: str,
        launch: Launch,
        addresses: Mapping[str, int] | None = None,
        cluster_order: Callable[[Launch, int], Sequence[int]] = in_order,
    ) -> None:
        self.function = check(cu.cuModuleGetFunction(module, entry.encode()))
        self.settings = launch
        self._set_function_attributes()
        self._buffers: list[tuple[str, ctypes.c_void_p]] = []
        self._maps: list[tuple[str, EncodedMap]] = []
        self._strides: list[tuple[str, ctypes.c_int32, int]] = []
        self._values: list[Any] = []
        pointers = []
        for argument in launch.arguments:
            kind, name, value = argument
            if kind == "map":
                encoded = EncodedMap(TensorMap(**json.loads(str(value))))
                self._maps.append((name, encoded))
                self._values.append(encoded)
                pointers.append(encoded.pointer)
                continue
            if kind == "cluster_order":
                memory: Any = (ctypes.c_ubyte * MAX_CLUSTERS)(*cluster_order(launch, int(value)))
            else:
                memory = (ctypes.c_ubyte * size_of(argument))()
            self._values.append(memory)
            pointers.append(ctypes.addressof(memory))
        self._held: dict[int, Any] = {}
        self._leaves = list(leaves(launch.arguments))
        for number, (argument_number, offset, kind, name, value) in enumerate(self._leaves):
            if kind == "buffer":
                place = ctypes.c_void_p.from_buffer(self._values[argument_number], offset)
                self._buffers.append((name, place))
            elif kind == "stride":
                stride = ctypes.c_int32.from_buffer(self._values[argument_number], offset)
                self._strides.append((name, stride, int(value)))
            elif kind == "scalar":
                self.set_scalar(number, value)
        self._pointers = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
        self.arguments = ctypes.addressof(self._pointers)
        self._prepare_launch()
        if addresses is not None:
            self.bind(addresses)

    def _set_function_attributes(self) -> None:
        check(cu.cuFuncLoad(self.function))  # else its first launch loads it, which a capture would refuse
        shared, carveout, cluster = self.settings.shared_bytes, self.settings.carveout, self.settings.cluster
        # Another kernel of the same function may need more: the limit is never lowered.
        limit = _F.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        if shared and shared > check(cu.cuFuncGetAttribute(limit, self.function)):
            check(cu.cuFuncSetAttribute(self.function, limit, shared))
        if carveout is not None:
            preferred = _F.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
            check(cu.cuFuncSetAttribute(self.function, preferred, carveout))
        if cluster is not None and math.prod(cluster) > PORTABLE_CLUSTER:
            allowed = _F.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            check(cu.cuFuncSetAttribute(self.function, allowed, 1))

    def _prepare_launch(self) -> None:
        launch, chosen = self.settings, attributes(self.settings, node=False)
        self._attributes = (LaunchAttribute * max(1, len(chosen)))()
        for attribute, (number, words) in zip(self._attributes, chosen.items(), strict=False):
            attribute.id = int(number)
            attribute.value[: len(words)] = words
        grid, block, shared = launch.grid, launch.block, launch.shared_bytes
        self._config = LaunchConfig(grid, block, shared, None, self._attributes, len(chosen))
        self._call = library().cuLaunchKernelEx
        pointers = ctypes.addressof(self._config), int(self.function), self.arguments
        self._call_arguments = (*map(ctypes.c_void_p, pointers), None)

    def bind(self, addresses: Mapping[str, int], strides: Mapping[str, int] = _NO_STRIDES) -> None:
        """Take these addresses of buffers; a tensor map is encoded again only if its matrix has moved.

        Args:
            addresses: by name.
            strides: elements from row to row of matrices whose rows lie apart, by name.

        Raises:
            DriverFailure: a map is refused.
        """
        for name, memory in self._buffers:
            memory.value = addresses[name]
        for name, stride, own in self._strides:
            stride.value = strides.get(name, own)
        for name, encoded in self._maps:
            encoded.encode(addresses[name], strides.get(name, 0))

    def set_scalar(self, position: int, value: Any) -> None:
        """Take another value of a scalar, by its position among the leaves of the launch's arguments; it must fit."""
        if self._held.get(position) is value:  # the plan's own, as a rule: packing it takes a microsecond
            return
        self._held[position] = value
        leaf = self._leaves[position]
        part = packed(value, leaf.name)
        memory = ctypes.addressof(self._values[leaf.argument]) + leaf.offset
        ctypes.memmove(memory, part, len(part))

    def launch(self, stream: int) -> None:
        """Launch it in a stream, with what is bound; 0 is the default stream.

        Raises:
            DriverFailure: the driver refuses it, or an earlier launch has ruined the context.
        """
        self._config.stream = stream
        error = self._call(*self._call_arguments)
        if error:
            raise failure(error)


BYTES, ALIGNMENT = 128, 128
_DTYPES = {
    "float16": cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    "bfloat16": cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    "float32": cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    "float8_e4m3fn": cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8,
}
_SWIZZLES, _PROMOTIONS = (0, 32, 64, 128), (0, 64, 128, 256)
"""Bytes of each, in the order of the driver's numbers."""


class EncodedMap:
    """The bytes of a map of a row-major matrix; elements outside of it count as zeros.

    Attributes:
        pointer: where the 128 bytes lie, a multiple of 128.
    """

    def __init__(self, tensor_map: TensorMap) -> None:
        self._room = (ctypes.c_ubyte * (BYTES + ALIGNMENT))()
        start = ctypes.addressof(self._room)
        self.pointer = start + -start % ALIGNMENT
        self._address = ctypes.c_void_p()
        # Dimensions are named from the fastest; the distance of columns is not, because they are neighbours.
        self._columns, self._itemsize = tensor_map.columns, ITEMSIZE[tensor_map.dtype]
        self._stride = ctypes.c_uint64()
        self._encode = library().cuTensorMapEncodeTiled
        self._arguments = (
            ctypes.c_void_p(self.pointer),
            int(_DTYPES[tensor_map.dtype]),
            2,
            self._address,
            (ctypes.c_uint64 * 2)(tensor_map.columns, tensor_map.rows),
            ctypes.byref(self._stride),
            (ctypes.c_uint32 * 2)(tensor_map.box_columns, tensor_map.box_rows),
            (ctypes.c_uint32 * 2)(1, 1),
            int(cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
            _SWIZZLES.index(tensor_map.swizzle),
            _PROMOTIONS.index(tensor_map.promotion),
            int(cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        )

    def encode(self, address: int, stride: int = 0) -> None:
        """Make it the map of the matrix at an address; nothing is done if it is that already.

        Args:
            address: of the matrix.
            stride: elements from row to row; 0 where nothing is between them.

        Raises:
            DriverFailure: the driver refuses it.
        """
        stride = (stride or self._columns) * self._itemsize
        if self._address.value == address and self._stride.value == stride:
            return
        self._address.value, self._stride.value = address, stride
        error = self._encode(*self._arguments)
        if error:
            self._address.value = None
            raise DriverFailure(error, "cuTensorMapEncodeTiled")
