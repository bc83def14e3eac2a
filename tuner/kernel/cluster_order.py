"""Numbers for the clusters of a launch, so that clusters that read the same data run in the same GPC.

A GPU's SMs form groups, the GPCs. This module assumes that the L2 delivers a line once for all SMs of a GPC that ask
for it at about the same time, and once for each GPC otherwise: NVIDIA does not document it, and the counters in
``results/evidence/deep-k.txt`` agree with it. The hardware decides in which GPC a cluster runs; that differs from card
to card, and is the same in each launch of a grid whose blocks are all resident at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

USUAL_GPCS = 8
"""GPCs of a whole Hopper GPU. Clusters are assumed to go to them in turn where nothing was measured."""


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
