"""One kind of call, checked once: arrays of the same shapes, dtypes and strides only bring other addresses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import CallError
from .dtypes import ITEMSIZE
from .entries import TensorEntry
from .gpu_plans import GpuPlans
from .libraries import Library
from .matching import CallMatch
from .prepared import PreparedPlan


class PreparedCall:
    """What is left to do for arrays that were seen before.

    Args:
        meant: what the arrays mean.
        gpu: where they are.
        plan: what is launched.
        allocates: whether the outputs are allocated.

    Attributes:
        computation: its number in the manifest.
        changed: numbers of the passed arrays that the kernel changes in place.
    """

    def __init__(self, meant: CallMatch, gpu: GpuPlans, plan: PreparedPlan, allocates: bool) -> None:
        self.gpu, self.computation = gpu, meant.computation
        self.changed = [
            number
            for number, tensor in enumerate(meant.inputs)
            if tensor is not None and tensor.role == "inout"
        ]
        self._plan = plan
        self._outputs = [self._output(tensor, meant) for tensor in meant.outputs] if allocates else []
        tensors = [tensor for tensor in (*meant.inputs, *meant.outputs) if tensor is not None]
        self._names = [tensor.name for tensor in tensors]
        self._bytes = [math.prod(meant.shapes[tensor.name]) * ITEMSIZE[tensor.dtype] for tensor in tensors]
        self._low_bits = max(plan.alignments[name] for name in self._names) - 1
        # Memory that was just allocated overlaps nothing.
        there = range(len(tensors) - len(self._outputs))
        written = [number for number in there if tensors[number].role != "input"]
        self._apart = [(a, b) for a in written for b in there if a != b and (b not in written or a < b)]

    def _output(self, tensor: TensorEntry, meant: CallMatch) -> tuple[tuple[int, ...], str, bool]:
        shape = meant.shapes[tensor.name]
        return (shape[::-1] if tensor.transposed else shape), tensor.dtype, bool(tensor.transposed)

    def allocated(self, library: Library, like: Any, stream: int | None) -> list[Any]:
        """Return new arrays for the outputs, by the library of an array."""
        arrays = [(library.empty(like, shape, dtype, stream), flip) for shape, dtype, flip in self._outputs]
        return [library.transposed(array) if flip else array for array, flip in arrays]

    def check(self, addresses: Sequence[int]) -> None:
        """Raise an error for memory that the kernel must not be given.

        Raises:
            CallError: there is none, it is not aligned, or what is written overlaps with something else.
        """
        bits = 0
        for address in addresses:
            bits |= address
        if bits & self._low_bits or 0 in addresses:
            self._check_each(addresses)
        for a, b in self._apart:
            if addresses[a] < addresses[b] + self._bytes[b] and addresses[b] < addresses[a] + self._bytes[a]:
                raise CallError(
                    f"{self._names[a]}, which is written, overlaps with {self._names[b]}",
                    "pass a copy of one",
                )

    def _check_each(self, addresses: Sequence[int]) -> None:
        for name, address in zip(self._names, addresses, strict=True):
            alignment = self._plan.alignments[name]
            if not address:
                raise CallError(f"{name} has no memory", "pass an array that has its elements on the GPU")
            if address % alignment:
                raise CallError(
                    f"{name} lies at {address:#x}, and this kernel needs a multiple of {alignment} bytes",
                    "pass a copy of it",
                )

    def run(self, addresses: Sequence[int], scalars: Mapping[str, float], stream: int) -> None:
        """Launch it in a stream.

        Raises:
            DriverFailure: the driver refuses.
        """
        gpu = self.gpu
        with gpu.lock:
            pushed = gpu.context.push()
            try:
                self._plan.run(
                    dict(zip(self._names, addresses, strict=True)), scalars, stream, gpu.workspaces
                )
            finally:
                if pushed:
                    gpu.context.pop()
