"""Numbers for the clusters of a launch, so that clusters that read the same data run in the same GPC.

A GPU's SMs form groups, the GPCs. This module assumes that the L2 delivers a line once for all SMs of a GPC that ask
for it at about the same time, and once for each GPC otherwise: NVIDIA does not document it, and the counters in
``results/evidence/deep-k.txt`` agree with it. The hardware decides in which GPC a cluster runs; that differs from card
to card, and is the same in each launch of a grid whose blocks are all resident at once. So it is probed, once for each
kind of grid on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuda.bindings import driver as cu

from .driver import DriverFailure, check
from .kernel import Kernel
from .launches import Launch

USUAL_GPCS = 8
"""GPCs of a whole Hopper GPU. Clusters are assumed to go to them in turn where nothing was measured."""
CLUSTERS = (16, 8, 4)
"""Sizes of clusters that show which SMs are of one GPC: no cluster reaches beyond one."""
PROBES = 20
"""Launches of each: blocks of a second wave land wherever an SM is free, so that clusters overlap differently."""
STAY_NS = 20_000
"""Nanoseconds that a block stays, so that all that fit are there at once."""


def gpcs_of_sms(clusters: Iterable[Sequence[int]]) -> dict[int, int]:
    """Return the number of each SM's GPC: SMs that shared a cluster are in one GPC.

    Args:
        clusters: the SMs of each observed cluster's blocks, as ``%smid`` numbers them, which may leave numbers out.
    """
    parent: dict[int, int] = {}

    def root(sm: int) -> int:
        parent.setdefault(sm, sm)
        while parent[sm] != sm:
            parent[sm] = parent[parent[sm]]
            sm = parent[sm]
        return sm

    for first, *others in clusters:
        for sm in (first, *others):
            parent[root(sm)] = root(first)
    return {sm: root(sm) for sm in parent}


def cluster_order(gpcs: Sequence[int], size: int) -> tuple[int, ...]:
    """Return a number for each cluster: ``size`` consecutive numbers, from a multiple of it, share a GPC if possible.

    Args:
        gpcs: each cluster's GPC, in the order in which the hardware starts the clusters.
        size: clusters that read the same data.

    Returns:
        A permutation of the clusters' indices.
    """
    members: dict[int, list[int]] = {}
    for cluster, gpc in enumerate(gpcs):
        members.setdefault(gpc, []).append(cluster)
    order: list[int] = []
    rests: list[list[int]] = []
    for clusters in members.values():
        cut = len(clusters) // size * size
        order += clusters[:cut]
        rests.append(clusters[cut:])
    # The rest of a GPC stays together if it can: a part gets the longest rest that fits, else a piece of the shortest.
    while any(rests):
        rests = sorted(filter(None, rests), key=len, reverse=True)
        room = size - len(order) % size
        best = next((clusters for clusters in rests if len(clusters) <= room), rests[-1])
        order += best[:room]
        del best[:room]
    numbers = [0] * len(gpcs)
    for number, cluster in enumerate(order):
        numbers[cluster] = number
    return tuple(numbers)


Sms = Callable[[int, int, int], list[list[list[int]]]]
"""Returns the SMs of each cluster's blocks, for each of several launches of a grid: takes the grid's blocks, those of a
cluster, and the launches."""


def probe(module: Any, stream: int, entry: str = "whereabouts") -> Sms:
    """Return what shows on which SMs the blocks of a grid run, in the current context.

    It raises a DriverFailure where clusters of a size do not fit, among other causes.

    Args:
        module: a loaded cubin with the kernel ``entry(int* sms, long long stay_ns)``, each of whose blocks writes its
            SM's number to its own place and stays for a while.
        stream: the stream to launch in, which is waited for. It must not be captured.
        entry: the kernel's name.
    """

    def sms(blocks: int, members: int, times: int) -> list[list[list[int]]]:
        # So much shared memory that there is one block an SM, as of kernels whose clusters are numbered.
        limit = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        shared = int(check(cu.cuDeviceGetAttribute(limit, check(cu.cuCtxGetDevice()))))
        cluster = (members, 1, 1) if members > 1 else None
        arguments = (("buffer", "sms", 0), ("scalar", "int64", STAY_NS))
        launch = Launch((blocks, 1, 1), (32, 1, 1), shared, arguments, cluster)
        address = int(check(cu.cuMemAlloc(4 * blocks)))
        seen = []
        try:
            kernel = Kernel(module, entry, launch, {"sms": address})
            for _ in range(times):
                kernel.launch(stream)
                check(cu.cuStreamSynchronize(stream))
                memory = bytearray(4 * blocks)
                check(cu.cuMemcpyDtoH(memory, address, len(memory)))
                sms = memoryview(memory).cast("i").tolist()
                seen.append([sms[first : first + members] for first in range(0, blocks, members)])
        finally:
            cu.cuMemFree(address)
        return seen

    return sms


@dataclass
class Observed:
    """What was observed on a GPU.

    Attributes:
        gpcs: the GPC of each SM that was in a cluster; ``None`` before the first probe.
        orders: by blocks of the grid, blocks of a cluster, and clusters that share.
    """

    gpcs: dict[int, int] | None = None
    orders: dict[tuple[int, int, int], tuple[int, ...]] = field(default_factory=dict)


class ClusterOrders:
    """Numbers for the clusters of launches on one GPU.

    Args:
        sms: shows where blocks run (:func:`probe`); ``None`` where that cannot be seen, as on a GPU without
            clusters.
        observed: what was observed before on this GPU; it grows.
    """

    def __init__(self, sms: Sms | None, observed: Observed | None = None) -> None:
        self._sms = sms
        self._observed = observed or Observed()

    def of(self, launch: Launch, size: int) -> tuple[int, ...]:
        """Number the clusters of a launch, ``size`` of which share what they read; :func:`cluster_order`.

        Where a GPU cannot be probed, clusters are assumed to go to its GPCs in turn.

        Raises:
            DriverFailure: the context is of no more use.
        """
        blocks, members = math.prod(launch.grid), math.prod(launch.cluster or (1,))
        key = (blocks, members, size)
        if key not in self._observed.orders:
            gpcs = self._gpcs_of_clusters(blocks, members)
            if not gpcs:
                gpcs = [cluster % USUAL_GPCS for cluster in range(blocks // members)]
            self._observed.orders[key] = cluster_order(gpcs, size)
        return self._observed.orders[key]

    def _gpcs_of_clusters(self, blocks: int, members: int) -> list[int]:
        """Return the GPC of each cluster of a grid; nothing if it cannot be observed."""
        if self._sms is None:
            return []
        try:
            gpcs = self.gpcs()
            [clusters] = self._sms(blocks, members, 1)
        except DriverFailure as failure:
            if failure.sticky:
                raise
            return []
        # An SM that no cluster of several reached is a GPC of its own.
        return [gpcs.get(sms[0], -1 - sms[0]) for sms in clusters] if gpcs else []

    def gpcs(self) -> dict[int, int]:
        """Return the GPC of each SM, as clusters of several sizes show it; nothing where it cannot be seen."""
        if self._sms is None:
            return {}
        if self._observed.gpcs is None:
            together: list[list[int]] = []
            for members in CLUSTERS:
                try:
                    for clusters in self._sms(3 * USUAL_GPCS * members, members, PROBES):
                        together += clusters
                except DriverFailure as failure:
                    if failure.sticky:
                        raise  # else clusters of this size do not fit, which smaller ones may
            self._observed.gpcs = gpcs_of_sms(together)
        return self._observed.gpcs
