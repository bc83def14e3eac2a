"""Where the blocks of a grid land: asked of the GPU once for each kind of grid."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver as cu

from tuner.gpu.buffers import Helpers
from tuner.gpu.driver import Context, DriverFailure, check
from tuner.gpu.graph import Graph, Kernel
from tuner.kernel.cluster_order import USUAL_GPCS, cluster_order, gpcs_of_sms
from tuner.kernel.launches import Launch

CLUSTERS = (16, 8, 4)
"""Sizes of clusters that show which SMs are of one group: no cluster reaches beyond one."""
LOOKS = 20
"""Launches of each: blocks of a second wave land wherever an SM is free, so that clusters overlap differently."""
STAY_NS = 20_000
"""Nanoseconds that a block stays, so that all that fit are there at once."""

_A = cu.CUdevice_attribute


@dataclass
class _Known:
    """What was found out about a GPU.

    Attributes:
        groups: the group of each SM that was in a cluster; ``None`` before anybody has looked.
        numbers: by blocks of the grid, blocks of a cluster, and clusters that share.
    """

    groups: dict[int, int] | None = None
    numbers: dict[tuple[int, int, int], tuple[int, ...]] = field(default_factory=dict)


class Places:
    """Numbers for the clusters of launches; what was found out is kept as long as the context.

    Args:
        helpers: the tuner's own kernels, on the GPU that is asked.
    """

    def __init__(self, helpers: Helpers) -> None:
        self._helpers = helpers
        self._known = _KNOWN.setdefault(helpers.context, _Known())

    def of(self, launch: Launch, size: int) -> tuple[int, ...]:
        """Number the clusters of a launch, ``size`` of which share what they read;
        :func:`tuner.kernel.cluster_order.cluster_order`.

        A GPU that cannot be asked is taken for one whose groups get clusters in turn.
        """
        blocks, members = math.prod(launch.grid), math.prod(launch.cluster or (1,))
        key = (blocks, members, size)
        if key not in self._known.numbers:
            groups = self._asked(blocks, members)
            if not groups:
                groups = [cluster % USUAL_GPCS for cluster in range(blocks // members)]
            self._known.numbers[key] = cluster_order(groups, size)
        return self._known.numbers[key]

    def _asked(self, blocks: int, members: int) -> list[int]:
        """Return the group of each cluster of a grid; nothing if the GPU does not say."""
        if self._helpers.context.attribute(_A.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 9:
            return []  # it has no clusters
        try:
            groups = self._groups()
            [seen] = self._seen(blocks, members, 1)
        except DriverFailure as failure:
            if failure.sticky:
                raise
            return []
        # An SM that no cluster of several reached is a group of its own.
        return [groups.get(sm, -1 - sm) for sm in seen[:, 0].tolist()] if groups else []

    def _groups(self) -> dict[int, int]:
        if self._known.groups is None:
            together: list[list[int]] = []
            for members in CLUSTERS:
                try:
                    for seen in self._seen(3 * USUAL_GPCS * members, members, LOOKS):
                        together += seen.tolist()
                except DriverFailure as failure:
                    if failure.sticky:
                        raise  # else clusters of this size do not fit, which smaller ones may
            self._known.groups = gpcs_of_sms(together)
        return self._known.groups

    def _seen(self, blocks: int, members: int, times: int) -> list[npt.NDArray[np.int32]]:
        """Return the SMs of a grid's blocks, a row for each cluster, for each of several launches."""
        context = self._helpers.context
        # So much shared memory that there is one block an SM, as of kernels that are placed.
        shared = context.attribute(_A.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        cluster = (members, 1, 1) if members > 1 else None
        arguments = (("buffer", "sms", 0), ("scalar", "int64", STAY_NS))
        launch = Launch((blocks, 1, 1), (32, 1, 1), shared, arguments, cluster)
        address = int(check(cu.cuMemAlloc(4 * blocks)))
        graph = Graph(context)
        found = []
        try:
            Kernel(self._helpers.module, "whereabouts", launch, {"sms": address}).add_to(graph)
            for _ in range(times):
                graph.launch()
                context.synchronize()
                sms = np.zeros(blocks, np.int32)
                check(cu.cuMemcpyDtoH(sms.ctypes.data, address, sms.nbytes))
                found.append(sms.reshape(-1, members))
        finally:
            graph.close()
            cu.cuMemFree(address)
        return found


_KNOWN: weakref.WeakKeyDictionary[Context, _Known] = weakref.WeakKeyDictionary()
