"""Clusters run in the GPC where they ran before, so that a table of their order is worth something."""

from __future__ import annotations

import pytest

from tuner.gpu.buffers import Helpers
from tuner.gpu.clocks import Clocks
from tuner.gpu.driver import Context, described
from tuner.runtime.cluster_order import ClusterOrders, probe
from tuner.runtime.launches import Launch

PAIRS = Launch((128, 1, 1), (32, 1, 1), 0, (), cluster=(2, 1, 1))
SHARE = 8
PROBES = 9


def test_clusters_that_share_are_of_one_group_in_later_launches_too() -> None:
    context = Context(0)
    gpu = described(context.device)
    if gpu.cc < 90:
        pytest.skip("needs clusters")
    sms = probe(Helpers(context, gpu, None).module, int(context.stream))
    orders = ClusterOrders(sms)
    assert orders.gpcs(), "nothing was observed, and GPCs are assumed"
    numbers = orders.of(PAIRS, SHARE)
    assert sorted(numbers) == list(range(64))
    groups = orders.gpcs()
    sizes = [list(groups.values()).count(group) for group in set(groups.values())]
    assert sum(sizes) <= gpu.sm_count and sum(size >= 8 for size in sizes) >= 4, sizes
    # Another process on the GPU takes its turn between two launches, and the blocks after it begin with another group.
    good = 0
    for seen in sms(128, 2, PROBES):
        parts: list[set[int]] = [set() for _ in range(64 // SHARE)]
        for cluster, number in enumerate(numbers):
            parts[number // SHARE].update(groups.get(sm, -1) for sm in seen[cluster])
        good += sum(len(part) == 1 for part in parts) >= len(parts) // 2
    if good <= PROBES // 2 and Clocks(gpu.uuid).processes() > 1:
        pytest.skip("other processes use the GPU")
    assert good > PROBES // 2, f"{good} of {PROBES} launches; in the last {parts}"
