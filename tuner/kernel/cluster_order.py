"""Which cluster of a launch gets which work, so that clusters which read the same end up near each other.

A GPU's SMs come in groups (GPCs). We take it that of what SMs of one group ask the L2 for at about the same time, a
line is fetched once and handed to all, and across groups as often as there are groups: NVIDIA does not say, and the
counters in ``results/evidence/deep-k.txt`` agree. Which group a cluster gets is settled by the hardware, differs from
card to card, and is the same in each launch of a grid that the GPU holds at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MAX_CLUSTERS = 256
"""Length of the table, and most clusters that can be placed."""
USUAL_GPCS = 8
"""Of a whole Hopper GPU, which get clusters in turn: what is taken for granted where nobody has looked."""


def gpcs_of_sms(together: Iterable[Sequence[int]]) -> dict[int, int]:
    """Return each SM that was seen a group's number, the same for all that were seen to be of one.

    SMs are counted as ``%smid`` does, which may leave numbers out.

    Args:
        together: of each cluster that was seen, the SMs of its blocks.
    """
    parent: dict[int, int] = {}

    def root(sm: int) -> int:
        parent.setdefault(sm, sm)
        while parent[sm] != sm:
            parent[sm] = parent[parent[sm]]
            sm = parent[sm]
        return sm

    for first, *others in together:
        for sm in (first, *others):
            parent[root(sm)] = root(first)
    return {sm: root(sm) for sm in parent}


def cluster_order(groups: Sequence[int], size: int) -> tuple[int, ...]:
    """Number clusters so that ``size`` successive numbers, from a multiple of it, are of one group if they can be.

    Args:
        groups: of each cluster, in the order in which the hardware begins them, the group that it is in.
        size: clusters that share what they read.

    Returns:
        The number of each cluster: a permutation.
    """
    members: dict[int, list[int]] = {}
    for cluster, group in enumerate(groups):
        members.setdefault(group, []).append(cluster)
    order: list[int] = []
    left: list[list[int]] = []
    for clusters in members.values():
        cut = len(clusters) // size * size
        order += clusters[:cut]
        left.append(clusters[cut:])
    # What is left of a group stays together if it can: a part gets the longest that fits, and of the shortest a piece
    # where none does.
    while any(left):
        left = sorted(filter(None, left), key=len, reverse=True)
        room = size - len(order) % size
        best = next((clusters for clusters in left if len(clusters) <= room), left[-1])
        order += best[:room]
        del best[:room]
    numbers = [0] * len(groups)
    for number, cluster in enumerate(order):
        numbers[cluster] = number
    return tuple(numbers)
