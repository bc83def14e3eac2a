"""A plan on one GPU, ready to be launched: its kernels are loaded, with memory for their arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

from .driver import failure, library
from .dtypes import ITEMSIZE
from .kernel import Kernel
from .plans import ConcretePlan
from .workspaces import Workspaces

MAP_ALIGNMENT = 16
"""Bytes of which the address of a matrix with a tensor map must be a multiple."""


class PreparedPlan:
    """A plan that can be launched, one launch at a time: hold a lock around :meth:`run`.

    Args:
        concrete: what is launched.
        kernels: one for each of its launches.

    Attributes:
        alignments: bytes of which each tensor's address must be a multiple, by name.
    """

    def __init__(self, concrete: ConcretePlan, kernels: Sequence[Kernel]) -> None:
        launches = concrete.plan.launches
        self._kernels = kernels
        self._workspace = concrete.workspace if concrete.plan.scratch else None
        self._zeroed = [(item.name, item.size_bytes) for item in concrete.plan.scratch if item.zeroed]
        self._memset = library().cuMemsetD8Async
        self._scalars = [
            (name, kernels[launch], position, float(launches[launch].arguments[position][2]))
            for name, positions in concrete.scalar_positions.items()
            for launch, position in positions
        ]
        common = max(launch.alignment for launch in launches)
        mapped = {name for launch in launches for kind, name, _ in launch.arguments if kind == "map"}
        self.alignments = {
            tensor.name: max(common, ITEMSIZE[tensor.dtype], MAP_ALIGNMENT if tensor.name in mapped else 1)
            for tensor in concrete.tensors
        }

    def reserve(self, stream: int, workspaces: Workspaces) -> None:
        """Allocate its workspace for a stream, unless that is done; the context is current.

        Raises:
            DriverFailure: there is no memory for it, or no such stream.
        """
        if self._workspace is not None:
            workspaces.addresses(self._workspace, stream)

    def run(
        self, addresses: dict[str, int], scalars: Mapping[str, float], stream: int, workspaces: Workspaces
    ) -> None:
        """Launch it in a stream; the context is current.

        Args:
            addresses: of the tensors by name; those of the scratch memory are added.
            scalars: instead of the plan's own values, by name.
            stream: a handle.
            workspaces: of the GPU.

        Raises:
            DriverFailure: the driver refuses, or there is no memory for the workspace.
        """
        if self._workspace is not None:
            addresses.update(workspaces.addresses(self._workspace, stream))
            for name, size_bytes in self._zeroed:
                error = self._memset(
                    ctypes.c_ulonglong(addresses[name]),
                    0,
                    ctypes.c_size_t(size_bytes),
                    ctypes.c_void_p(stream),
                )
                if error:
                    raise failure(error)
        for name, kernel, position, own in self._scalars:
            kernel.set_scalar(position, scalars.get(name, own))
        for kernel in self._kernels:
            kernel.bind(addresses)
            kernel.launch(stream)
