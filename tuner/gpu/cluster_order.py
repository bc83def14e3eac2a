"""In which GPC the clusters of a grid run: probed once for each kind of grid on a GPU."""

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
from tuner.runtime.launches import Launch

CLUSTERS = (16, 8, 4)
"""Sizes of clusters that show which SMs are of one GPC: no cluster reaches beyond one."""
PROBES = 20
"""Launches of each: blocks of a second wave land wherever an SM is free, so that clusters overlap differently."""
STAY_NS = 20_000
"""Nanoseconds that a block stays, so that all that fit are there at once."""

_A = cu.CUdevice_attribute


@dataclass
class _Probed:
    """What was observed on a GPU.

    Attributes:
        gpcs: the GPC of each SM that was in a cluster; ``None`` before the first probe.
        orders: by blocks of the grid, blocks of a cluster, and clusters that share.
    """

    gpcs: dict[int, int] | None = None
    orders: dict[tuple[int, int, int], tuple[int, ...]] = field(default_factory=dict)


class ClusterOrders:
    """Numbers for the clusters of launches; what was observed is kept as long as the context.

    Args:
        helpers: the tuner's own kernels, on the GPU that is probed.
    """

    def __init__(self, helpers: Helpers) -> None:
        self._helpers = helpers
        self._probed = _PROBED.setdefault(helpers.context, _Probed())

    def of(self, launch: Launch, size: int) -> tuple[int, ...]:
        """Number the clusters of a launch, ``size`` of which share what they read;
        :func:`tuner.kernel.cluster_order.cluster_order`.

        Where a GPU cannot be probed, clusters are assumed to go to its GPCs in turn.
        """
        blocks, members = math.prod(launch.grid), math.prod(launch.cluster or (1,))
        key = (blocks, members, size)
        if key not in self._probed.orders:
            gpcs = self._gpcs_of_clusters(blocks, members)
            if not gpcs:
                gpcs = [cluster % USUAL_GPCS for cluster in range(blocks // members)]
            self._probed.orders[key] = cluster_order(gpcs, size)
        return self._probed.orders[key]

    def _gpcs_of_clusters(self, blocks: int, members: int) -> list[int]:
        """Return the GPC of each cluster of a grid; nothing if it cannot be observed."""
        if self._helpers.context.attribute(_A.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 9:
            return []  # it has no clusters
        try:
            gpcs = self._gpcs()
            [sms] = self._sms(blocks, members, 1)
        except DriverFailure as failure:
            if failure.sticky:
                raise
            return []
        # An SM that no cluster of several reached is a GPC of its own.
        return [gpcs.get(sm, -1 - sm) for sm in sms[:, 0].tolist()] if gpcs else []

    def _gpcs(self) -> dict[int, int]:
        """Return the GPC of each SM, as clusters of several sizes show it."""
        if self._probed.gpcs is None:
            together: list[list[int]] = []
            for members in CLUSTERS:
                try:
                    for sms in self._sms(3 * USUAL_GPCS * members, members, PROBES):
                        together += sms.tolist()
                except DriverFailure as failure:
                    if failure.sticky:
                        raise  # else clusters of this size do not fit, which smaller ones may
            self._probed.gpcs = gpcs_of_sms(together)
        return self._probed.gpcs

    def _sms(self, blocks: int, members: int, times: int) -> list[npt.NDArray[np.int32]]:
        """Return the SMs of a grid's blocks, a row for each cluster, for each of several launches."""
        context = self._helpers.context
        # So much shared memory that there is one block an SM, as of kernels whose clusters are numbered.
        shared = context.attribute(_A.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        cluster = (members, 1, 1) if members > 1 else None
        arguments = (("buffer", "sms", 0), ("scalar", "int64", STAY_NS))
        launch = Launch((blocks, 1, 1), (32, 1, 1), shared, arguments, cluster)
        address = int(check(cu.cuMemAlloc(4 * blocks)))
        graph = Graph(context)
        rows = []
        try:
            Kernel(self._helpers.module, "whereabouts", launch, {"sms": address}).add_to(graph)
            for _ in range(times):
                graph.launch()
                context.synchronize()
                sms = np.zeros(blocks, np.int32)
                check(cu.cuMemcpyDtoH(sms.ctypes.data, address, sms.nbytes))
                rows.append(sms.reshape(-1, members))
        finally:
            graph.close()
            cu.cuMemFree(address)
        return rows


_PROBED: weakref.WeakKeyDictionary[Context, _Probed] = weakref.WeakKeyDictionary()
