"""Which cluster gets which work: what is seen of a GPU's groups, and what is made of it."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tuner.children.nvrtc import compile_source
from tuner.core.model import Configuration
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.runtime.cluster_order import ClusterOrders, Observed, cluster_order, gpcs_of_sms
from tuner.runtime.driver import DriverFailure
from tuner.runtime.kernel import in_order
from tuner.runtime.launch_limits import UnlaunchableError
from tuner.runtime.launches import MAX_CLUSTERS, Launch, Plan

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]
DEEP = {"block_m": 128, "block_n": 128, "split_k": 8, "cluster_m": 2, "stages": 6, "consumers": 2}
H200 = [*range(8, 12), *[*range(2, 8), 0, 1] * 4, *[*range(2, 8), 1] * 4]
"""Groups of the 64 first pairs of blocks, as one H200 gave them: pairs of their own first, then all groups in turn."""


def test_sms_that_were_in_one_cluster_are_of_one_group() -> None:
    groups = gpcs_of_sms([[0, 2], [2, 4], [1, 3], [5, 700]])
    assert groups.keys() == {0, 1, 2, 3, 4, 5, 700}  # numbers of SMs may have gaps
    assert len({groups[sm] for sm in (0, 2, 4)}) == len({groups[sm] for sm in (1, 3)}) == 1
    assert groups[5] == groups[700]
    assert len(set(groups.values())) == 3


def test_parts_are_of_one_group_if_they_can_be() -> None:
    for size in (1, 2, 4, 8):
        numbers = cluster_order(H200, size)
        assert sorted(numbers) == list(range(64))
        of = {number: H200[cluster] for cluster, number in enumerate(numbers)}
        parts = [{of[number] for number in range(first, first + size)} for first in range(0, 64, size)]
        whole = sum(H200.count(group) // size for group in set(H200))
        assert sum(len(part) == 1 for part in parts) >= whole
    assert len([part for part in parts if len(part) == 1]) == 7  # of eight: the last has what is left


def test_what_is_left_of_a_group_is_not_cut_needlessly() -> None:
    groups = [0] * 5 + [1] * 5 + [2] * 3 + [3] * 3
    numbers = cluster_order(groups, 8)
    assert [{groups[c] for c in range(16) if numbers[c] // 8 == part} for part in (0, 1)] == [{0, 2}, {1, 3}]
    groups = [0] * 12 + [1] * 3 + [2]  # whole parts first: what is left of the first group is with the others
    numbers = cluster_order(groups, 8)
    assert [{groups[c] for c in range(16) if numbers[c] // 8 == part} for part in (0, 1)] == [{0}, {0, 1, 2}]


@pytest.mark.parametrize("seed", range(20))
def test_any_groups_give_a_permutation(seed: int) -> None:
    draw = random.Random(seed)
    groups = [draw.randrange(draw.randrange(1, 12)) for _ in range(draw.randrange(1, 130))]
    assert sorted(cluster_order(groups, draw.randrange(1, 20))) == list(range(len(groups)))


def plan_of(n: int = 512, **parameters: object) -> Plan:
    variant = GEMM.variants["wgmma_split_k"]
    values = {**variant.defaults, **DEEP, **parameters}
    problem = GEMM.problem({"m": 512, "n": n, "k": 65536}, {"": "bfloat16"}, {"layout": "nn"})
    return make_plan(GEMM, problem, HOPPER, Configuration.of(variant.name, values))


def test_too_many_clusters_are_refused_where_they_are_to_be_placed() -> None:
    assert plan_of(n=1 << 14, gpc_locality=False)
    with pytest.raises(UnlaunchableError, match=f"has {MAX_CLUSTERS}"):
        plan_of(n=1 << 14, gpc_locality=True)


def test_without_a_gpu_that_says_more_clusters_are_numbered_in_order() -> None:
    launch = Launch((12, 2, 1), (32, 1, 1), 0, ())
    assert list(in_order(launch, 3)) == list(range(24))
    assert list(in_order(replace(launch, cluster=(2, 1, 1)), 3)) == list(range(12))


class FakeSms:
    """A GPU with groups of 4 SMs, whose numbers have gaps, and two SMs that no cluster reaches."""

    def __init__(self, failures: Mapping[int, int] | None = None) -> None:
        self.failures = failures or {}
        self.launched: list[tuple[int, int, int]] = []

    def __call__(self, blocks: int, members: int, times: int) -> list[list[list[int]]]:
        self.launched.append((blocks, members, times))
        if members in self.failures:
            raise DriverFailure(self.failures[members], "failure")
        sms = [*(1000 + block for block in range(2)), *(4 * (block % 4) + block // 4 for block in range(16))]
        groups = [list(range(4 * group, 4 * group + 4)) for group in range(4)]
        return [groups if members > 1 else [[sm] for sm in sms]] * times


EIGHTEEN = Launch((18, 1, 1), (32, 1, 1), 0, ())


def order_of(size: int, failures: Mapping[int, int] | None = None) -> tuple[int, ...]:
    """Return the numbers of eighteen clusters."""
    return ClusterOrders(FakeSms(failures)).of(EIGHTEEN, size)


def test_a_gpu_is_asked_once() -> None:
    sms, observed = FakeSms(), Observed()
    order = ClusterOrders(sms, observed)
    numbers = order.of(EIGHTEEN, 4)
    assert sorted(numbers) == list(range(18))
    for group in range(4):  # those of one group come 4 apart, behind the two that are alone
        assert len({numbers[cluster] // 4 for cluster in range(2 + group, 18, 4)}) == 1
    assert [members for _, members, _ in sms.launched] == [16, 8, 4, 1]
    assert order.of(EIGHTEEN, 4) == numbers and len(sms.launched) == 4
    later = FakeSms()
    again = ClusterOrders(later, observed)  # another candidate's
    assert again.of(EIGHTEEN, 4) == numbers and not later.launched
    assert again.of(EIGHTEEN, 2) and later.launched == [(18, 1, 1)]
    assert order_of(4) == numbers


def test_clusters_that_do_not_fit() -> None:
    assert order_of(4, {16: 912}) == order_of(4)
    in_turn = cluster_order([cluster % 8 for cluster in range(18)], 4)
    assert order_of(4, {16: 912, 8: 912, 4: 701}) == in_turn
    assert order_of(4, {1: 912}) == in_turn
    for members in (16, 1):
        with pytest.raises(DriverFailure):
            order_of(4, {members: 700})


def test_a_gpu_without_clusters_is_not_asked() -> None:
    assert ClusterOrders(None).of(EIGHTEEN, 4) == cluster_order([cluster % 8 for cluster in range(18)], 4)


@pytest.mark.parametrize("gpc_locality", [False, True])
def test_the_table_is_read_only_where_it_counts(gpc_locality: bool) -> None:
    problem = GEMM.problem({"m": 512, "n": 512, "k": 65536}, {"": "bfloat16"}, {"layout": "nn"})
    values = {**GEMM.variants["wgmma_split_k"].defaults, **DEEP, "gpc_locality": gpc_locality}
    configuration = Configuration.of("wgmma_split_k", values)
    [launch] = make_plan(GEMM, problem, HOPPER, configuration).launches
    assert ("cluster_order" in {kind for kind, _, _ in launch.arguments}) == gpc_locality
    [(source, entry)] = render(GEMM, problem, HOPPER, configuration)
    ptx = compile_source(source, entry, HOPPER.arch, listing=True).ptx
    assert bool(re.search(r"\.param .*\[256\]", ptx)) == gpc_locality
