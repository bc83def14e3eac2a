"""What the persistent product on Hopper asks TMA for that no result shows: what the L2 keeps and what is prefetched."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from math import ceil
from typing import NamedTuple

import numpy as np
import pytest

from tests.templates.sm90 import GEMM, HOPPER, plain_source, problem, tensor_maps, together
from tuner.core.model import Configuration, Gpu, Value
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, Schedule
from tuner.kernel.plan import invalid_reason, make_plan

LOAD, MULTICAST, FETCH, EXPECT = range(4)
"""Kinds of requests, as in sm90.hpp."""
FEW_SMS = replace(HOPPER, sm_count=6)
"""Blocks have several tiles."""
ROOM = 1 << 20
ONCE = """
// Appends what a block asks for.
void write(int number, const unsigned short* of_b, int*& row) {
    for (const hopper::Request& one : *hopper::log) {
        const int which = one.matrix != nullptr && one.matrix->elements == of_b;
        const int numbers[6] = {number, one.kind, which, one.x, one.y, one.policy};
        for (const int value : numbers) *row++ = value;
    }
    hopper::log->clear();
}
"""
TEST = """
// Everything that all producers ask for, block after block.
void test(const int* in, int* out) {
    const int m = in[0], n = in[1], k = in[2], blocks = in[3];
    unsigned short of_a, of_b;
    const TensorMap a = hopper::map_of<TensorMap>({&of_a, 0, 0, BOX_ROWS_A, 64, 128});
    const TensorMap b = hopper::map_of<TensorMap>({&of_b, 0, 0, BOX_ROWS_B, 64, 128});
    Barrier* full = reinterpret_cast<Barrier*>(emulator::dynamic_shared());
    hopper::launch = {CLUSTER, 0, true, true};
    std::vector<hopper::Request> log;
    hopper::log = &log;
    int* row = out + 1;
    for (int number = 0; number < blocks; ++number) {
        blockIdx.x = number;
        const int rank = number % CLUSTER, m_rank = rank / CLUSTER_N, n_rank = rank % CLUSTER_N;
        const Block block{&a, &b, 1 << 20, full, full + STAGES, {m_rank, n_rank, 0}};
        const TileScheduler scheduler(m, n, k, number / CLUSTER, blocks / CLUSTER);
        produce(block, scheduler, produce_first(block, scheduler));
        write(number, &of_b, row);
    }
    hopper::log = nullptr;
    out[0] = (row - out - 1) / 6;
}
"""
KINDS: list[dict[str, Value]] = [
    {"cluster_m": 1, "cluster_n": 2, "swap_ab": True, "raster": "along_n", "l2_evict_last": "a"},
    {"cluster_m": 1, "cluster_n": 1, "swap_ab": False, "schedule": "pingpong", "l2_evict_last": "b"},
    {"cluster_m": 1, "cluster_n": 1, "block_n": 320, "prefetch": True},
    {"cluster_m": 2, "cluster_n": 1, "swap_ab": True, "prefetch": True},
]
OF = problem(344, 600, 328, "nt")


class Request(NamedTuple):
    """128 bytes by a number of rows of A, which is 0, or of B: column and row of memory."""

    kind: int
    matrix: int
    x: int
    y: int
    policy: int


def drawn(kind: dict[str, Value], rng: random.Random) -> tuple[Configuration, Gpu]:
    """Draw a valid configuration of a kind, and a GPU for it."""
    parameters = GEMM.variants["wgmma"].parameters
    gpu = HOPPER if kind.get("prefetch") else FEW_SMS
    for _ in range(100_000):
        values = {key: rng.choice(one.values) for key, one in parameters.items()}
        values |= {"prefetch": False, "stream_k": False, "sm_margin": 0} | kind
        one = Configuration.of("wgmma", values)
        if not invalid_reason(GEMM, OF, gpu, one):
            return one, gpu
    raise AssertionError(f"nothing valid has {kind}")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Configuration, list[list[Request]]]]:
    """Return what the producer of each block asks for, of a configuration of each kind."""
    if COMPILER is None:
        pytest.skip("needs g++")
    rng = random.Random(str(OF))
    cases = [drawn(kind, rng) for kind in KINDS]
    launches = [make_plan(GEMM, OF, gpu, one).launches[-1] for one, gpu in cases]
    codes = []
    for launch in launches:
        (_, a), (_, b), *_ = tensor_maps(launch)
        codes.append(TEST.replace("BOX_ROWS_A", str(a.box_rows)).replace("BOX_ROWS_B", str(b.box_rows)))
    sources = [plain_source(OF, one, gpu) for one, gpu in cases]
    host = together(sources, codes, tmp_path_factory.mktemp("loads"), ONCE)
    found = []
    for number, ((one, _), launch) in enumerate(zip(cases, launches, strict=True)):
        blocks = launch.grid[0]
        given, out = HostArray(4, "int32", 4), HostArray(ROOM, "int32", 4)
        given.elements[:] = [*OF.sizes.values(), blocks]
        host(1, 1, 4096, Schedule(), np.int32(number), given, out)
        requests: list[list[Request]] = [[] for _ in range(blocks)]
        count = int(out.elements[0])
        for block, *request in out.elements[1 : 1 + 6 * count].reshape(count, 6).tolist():
            requests[block].append(Request(*request))
        found.append((one, requests))
    return found


def test_the_l2_keeps_what_is_to_stay(asked: list[tuple[Configuration, list[list[Request]]]]) -> None:
    for one, requests in asked:
        last = one.values["l2_evict_last"]
        policies = {(request.matrix, request.policy) for some in requests for request in some
                    if request.kind in (LOAD, MULTICAST)}  # fmt: skip
        of = [0 if last == "none" else 2 if last == matrix else 1 for matrix in "ab"]
        assert policies == set(enumerate(of)), one


def test_each_box_is_prefetched_by_one(asked: list[tuple[Configuration, list[list[Request]]]]) -> None:
    """Of all blocks together: what the ring has no room for yet, nothing twice, and nothing else."""
    for one, requests in asked:
        values = one.values
        fetched = Counter(request[1:4] for some in requests for request in some if request.kind == FETCH)
        if not values["prefetch"]:
            assert not fetched
            continue
        ahead = 2 if values["cluster_m"] * values["cluster_n"] > 1 else values["stages"]
        needed = set()
        for some in requests:
            steps = [request.kind for request in some].count(EXPECT)
            assert steps == ceil(OF.sizes["k"] / values["block_k"]) > ahead, "one tile a block"
            step = 0
            for request in some:
                step += request.kind == EXPECT
                if request.kind in (LOAD, MULTICAST) and step > ahead:
                    needed.add(request[1:4])
        assert fetched.keys() == needed and set(fetched.values()) == {1}, one
