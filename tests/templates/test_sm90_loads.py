"""What the persistent product on Hopper asks TMA for, and where its instructions look for it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

import numpy as np
import pytest

from tests.templates.sm90 import GEMM, HOPPER, plain_source, problem, tensor_maps, together
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, HostKernel, Schedule
from tuner.kernel.plan import invalid_reason, make_plan
from tuner.runtime.launches import TensorMap

LOAD, MULTICAST, FETCH, EXPECT = range(4)
"""Kinds of requests, as in sm90.hpp."""
FEW_SMS = replace(HOPPER, sm_count=6)
"""Blocks have several tiles."""
ROOM = 1 << 20
STAGES_AT = 1 << 20
"""An address of the ring: nothing is copied there."""

ONCE = """
// Appends what a block asks for.
void write(int number, const unsigned short* of_b, int*& row) {
    for (const hopper::Request& one : *hopper::log) {
        const int which = one.matrix != nullptr && one.matrix->elements == of_b;
        const int stage = (one.barrier - hopper::FIRST_ADDRESS) / 8;
        const int numbers[9] = {number, one.kind, which, static_cast<int>(one.shared), one.x, one.y, stage,
                                static_cast<int>(one.blocks), one.policy};
        for (const int value : numbers) *row++ = value;
    }
    hopper::log->clear();
}

std::vector<unsigned short> numbered(int rows, int depth, bool k_major) {
    std::vector<unsigned short> elements(rows * depth);
    for (int row = 0; row < rows; ++row) {
        for (int k = 0; k < depth; ++k) {
            elements[k_major ? row * depth + k : k * rows + row] = row * depth + k + 1;
        }
    }
    return elements;
}

struct Tile {
    const float* accumulators;
    int m, n, k;
    bool m_along_k, n_along_k;
    std::vector<int> read = std::vector<int>(m * n * k / 16);  // how often an element was read, for each step

    // Says how often the instructions of a thread that are not run yet read what they should not.
    int wrong_reads(int first_row, bool first) {
        int wrong = 0;
        auto& said = hopper::warpgroup_here().said[0];
        for (const hopper::Products& one : said) {
            const int at = one.d - accumulators, column = at % (n / 2) * 2;
            const int row = first_row + at / (n / 2) * 64;
            const auto bits = [](unsigned long long tile, bool along_k, int line, int deep) {
                return hopper::bits_of(hopper::here(), tile, along_k, line, deep);
            };
            const int step = (bits(one.m_tile, m_along_k, 0, 0) - 1) % k;
            wrong += one.accumulate != (!first || step > 0);
            for (int deep = 0; deep < 16; ++deep) {
                for (int i = 0; i < 64; ++i) {
                    wrong += bits(one.m_tile, m_along_k, i, deep) != (row + i) * k + step + deep + 1;
                }
                for (int i = 0; i < one.columns; ++i) {
                    wrong += bits(one.n_tile, n_along_k, i, deep) != (column + i) * k + step + deep + 1;
                }
            }
            for (int i = 0; i < 64; ++i) {
                for (int j = 0; j < one.columns; ++j) ++read.at(((row + i) * n + column + j) * (k / 16) + step / 16);
            }
        }
        said.clear();
        return wrong;
    }
};
"""
TEST = """
constexpr unsigned int STAGES_AT = 1 << 20;

struct Maps {
    TensorMap a, b;
    explicit Maps(unsigned short* elements_a, unsigned short* elements_b, const int* size)
        : a(hopper::map_of<TensorMap>({elements_a, size[0], size[1], BOX_ROWS_A, 64, 128})),
          b(hopper::map_of<TensorMap>({elements_b, size[2], size[3], BOX_ROWS_B, 64, 128})) {}
};

// Everything that all producers ask for, block after block.
void producers(const int* in, int* out) {
    const int m = in[0], n = in[1], k = in[2], blocks = in[3], nothing[4] = {};
    unsigned short of_a, of_b;
    const Maps maps(&of_a, &of_b, nothing);
    Barrier* full = reinterpret_cast<Barrier*>(emulator::dynamic_shared());
    hopper::launch = {CLUSTER, 0, true, true};
    std::vector<hopper::Request> log;
    hopper::log = &log;
    int* row = out + 1;
    for (int number = 0; number < blocks; ++number) {
        blockIdx.x = number;
        const int rank = number % CLUSTER, m_rank = rank / CLUSTER_N, n_rank = rank % CLUSTER_N;
        const Block block{&maps.a, &maps.b, STAGES_AT, full, full + STAGES, {m_rank, n_rank, 0}};
        const TileScheduler scheduler(m, n, k, number / CLUSTER, blocks / CLUSTER);
        produce(block, scheduler, produce_first(block, scheduler));
        write(number, &of_b, row);
    }
    hopper::log = nullptr;
    out[0] = (row - out - 1) / 9;
}

// Elements that are numbered, in a stage: whether each instruction reads those it should. Says how often it does not.
void instructions(int* out) {
    hopper::launch = {1, STAGE_BYTES + 2048, MTile::K_MAJOR, NTile::K_MAJOR};
    hopper::blocks[0].reset(new hopper::Block{emulator::dynamic_shared()});
    auto a = numbered(BLOCK_M, BLOCK_K, A_K_MAJOR), b = numbered(BLOCK_N, BLOCK_K, B_K_MAJOR);
    const int size[4] = {A_K_MAJOR ? BLOCK_M : BLOCK_K, A_K_MAJOR ? BLOCK_K : BLOCK_M, B_K_MAJOR ? BLOCK_N : BLOCK_K,
                         B_K_MAJOR ? BLOCK_K : BLOCK_N};
    const Maps maps(a.data(), b.data(), size);
    const unsigned int stage = hopper::FIRST_ADDRESS + 1023 & ~1023u;
    Barrier* full = reinterpret_cast<Barrier*>(emulator::dynamic_shared() + STAGE_BYTES + 1024);
    init_barrier(full, 1);
    load_stage<true>(stage, full, &maps.a, &maps.b, 0, 0, 0, ClusterRank{0, 0, 0});
    for (auto& load : hopper::here().loads) load();
    hopper::here().loads.clear();
    int wrong = hopper::here().barrier(hopper::address_of(full)).phase != 1;  // all bytes that it waits for have come

    static float accumulators[MMAS][TILE_N / 2];  // a fiber has a small stack
    Tile tile{accumulators[0], TILE_M, TILE_N, BLOCK_K, MTile::K_MAJOR, NTile::K_MAJOR};
    for (int row = 0; row < TILE_M; row += GROUP_ROWS) {
        for (const bool first : {true, false}) {
            mma_stage(accumulators, stage, row, first);
            wrong += tile.wrong_reads(row, first);
        }
    }
    for (const int times : tile.read) wrong += times != 2;
    hopper::blocks.clear();
    out[0] = wrong;
}

void test(const int* in, int* out) { in[0] > 0 ? producers(in, out) : instructions(out); }
"""


class Row(NamedTuple):
    """128 bytes of a matrix: 0 is A, 1 is B; column and row of memory."""

    matrix: int
    x: int
    y: int


@dataclass
class Fill:
    """What a stage gets in one step of k, from all blocks of the cluster."""

    stage: int
    rows: dict[int, Row]
    """By address in the stage."""
    boxes: set[Row]
    first: dict[int, tuple[int, int]]
    """Column and row at which the tile of each matrix begins."""


KINDS: list[dict[str, Value]] = [
    {"cluster_m": 1, "cluster_n": 1, "stream_k": True},
    {"cluster_m": 2, "cluster_n": 1, "swap_ab": False, "raster": "along_m", "stream_k": True},
    {"cluster_m": 1, "cluster_n": 2, "swap_ab": True, "raster": "along_n", "l2_evict_last": "a"},
    {"cluster_m": 1, "cluster_n": 2, "swap_ab": False, "schedule": "pingpong", "l2_evict_last": "b"},
    {"cluster_m": 1, "cluster_n": 1, "block_n": 320, "prefetch": True},
    {"cluster_m": 2, "cluster_n": 1, "swap_ab": True, "prefetch": True},
    {"cluster_m": 2, "cluster_n": 2, "raster": "hilbert", "block_k": 128},
    {"cluster_m": 4, "cluster_n": 1, "consumers": 3},
]
"""Of wgmma_padded those that it has."""
KINDS_OF = {"nt": KINDS[::2], "tn": KINDS[1::2], "tt": KINDS[1::3]}
"""By layout: A and B lie along k in one, along their tiles in the next, and the third has one of each."""
Case = tuple[Configuration, Gpu]


def drawn(name: str, of: Problem) -> list[Case]:
    """Draw a valid configuration of each kind."""
    parameters = GEMM.variants[name].parameters
    rng = random.Random(f"{name} {of}")
    cases = []
    kinds = KINDS_OF[str(of.options["layout"])]
    for kind in kinds:
        if any(value not in parameters[key].values for key, value in kind.items() if key in parameters):
            continue
        gpu = HOPPER if kind.get("prefetch") else FEW_SMS
        for _ in range(100_000):
            values = {key: rng.choice(one.values) for key, one in parameters.items()}
            values |= {"prefetch": False, "stream_k": False, "sm_margin": 0} | kind
            one = Configuration.of(name, {key: values[key] for key in parameters})
            if not invalid_reason(GEMM, of, gpu, one):
                cases.append((one, gpu))
                break
    assert len(cases) >= len(kinds) - 1
    return cases


class Side(NamedTuple):
    """Configurations of a variant in a layout, compiled side by side."""

    of: Problem
    cases: list[Case]
    host: HostKernel


@pytest.fixture(
    scope="module",
    params=[("wgmma", "nt"), ("wgmma", "tn"), ("wgmma_padded", "tt")],
    ids="-".join,
)
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Side:
    if COMPILER is None:
        pytest.skip("needs g++")
    name, layout = request.param
    m, n, k = (345, 599, 329) if name == "wgmma_padded" else (344, 600, 328)
    of = problem(m, n, k, layout)
    cases = drawn(name, of)
    sources = [plain_source(of, one, gpu) for one, gpu in cases]
    codes = []
    for one, gpu in cases:
        a, b = boxes_of(of, one, gpu)
        codes.append(TEST.replace("BOX_ROWS_A", str(a.box_rows)).replace("BOX_ROWS_B", str(b.box_rows)))
    return Side(of, cases, together(sources, codes, tmp_path_factory.mktemp("side"), ONCE))


def boxes_of(of: Problem, one: Configuration, gpu: Gpu) -> list[TensorMap]:
    """Return the maps of A and B."""
    maps = tensor_maps(make_plan(GEMM, of, gpu, one).launches[-1])[:2]
    assert [name.removesuffix("_padded") for name, _ in maps] == ["a", "b"]
    return [found for _, found in maps]


def asked(side: Side, number: int, blocks: int) -> dict[int, list[list[int]]]:
    """Return what the producer of each block asks for."""
    given, out = HostArray(4, "int32", 4), HostArray(ROOM, "int32", 4)
    given.elements[:] = [*(side.of.sizes[name] for name in "mnk"), blocks]
    side.host(1, 1, 4096, Schedule(), np.int32(number), given, out)
    found: dict[int, list[list[int]]] = {block: [] for block in range(blocks)}
    count = int(out.elements[0])
    for block, *request in out.elements[1 : 1 + 9 * count].reshape(count, 9).tolist():
        found[block].append(request)
    return found


def fills_of(
    requests: dict[int, list[list[int]]], cluster: int, maps: list[TensorMap], room: int
) -> dict[int, list[Fill]]:
    """Return, for each block, what each of its steps brings."""
    fills: dict[int, list[Fill]] = {}
    for block, some in requests.items():
        expected = [request for request in some if request[0] == EXPECT]
        assert {size for _, _, size, *_ in expected} == {room}, "the barrier waits for the bytes of a stage"
        fills[block] = [Fill(stage, {}, set(), {}) for *_, stage, _, _ in expected]
    for block, some in requests.items():
        step = -1
        for kind, matrix, to, x, y, stage, blocks, _ in some:
            step += kind == EXPECT
            if kind not in (LOAD, MULTICAST):
                continue
            assert (kind == LOAD) == (blocks == 1 << block % cluster), "one block is enough for a plain load"
            for rank in (rank for rank in range(16) if blocks >> rank & 1):
                assert rank < cluster
                fill = fills[block // cluster * cluster + rank][step]
                assert fill.stage == stage, "the same step is in the same stage of all blocks"
                fill.boxes.add(Row(matrix, x, y))
                at = to - STAGES_AT - stage * room
                assert at % 1024 == 0, "pieces change places within eight rows"
                for row in range(maps[matrix].box_rows):
                    assert at + row * 128 not in fill.rows, "loaded twice"
                    fill.rows[at + row * 128] = Row(matrix, x, y + row)
    for fill in (fill for some in fills.values() for fill in some):
        assert fill.rows.keys() == set(range(0, room, 128)), "every byte of a stage"
        for matrix in (0, 1):
            rows = [row for row in fill.rows.values() if row.matrix == matrix]
            fill.first[matrix] = min(row.x for row in rows), min(row.y for row in rows)
    return fills


def test_a_stage_gets_the_tiles_of_one_step_alone_as_together(side: Side) -> None:
    """Alone as together; of all blocks' steps each step of each tile once, within the bytes that the launch has."""
    for number, (one, gpu) in enumerate(side.cases):
        values = one.values
        maps = boxes_of(side.of, one, gpu)
        assert all(
            (found.box_columns, found.swizzle) == (64, 128) and 0 < found.box_rows <= 256 for found in maps
        )
        launch = make_plan(GEMM, side.of, gpu, one).launches[-1]
        buffers = values["consumers"] * values["store_buffers"] * 8192
        room, rest = divmod(launch.shared_bytes - 1024 - 16 * values["stages"] - buffers, values["stages"])
        assert rest == 0
        cluster = values["cluster_m"] * values["cluster_n"]
        requests = asked(side, number, launch.grid[0])
        fills = fills_of(requests, cluster, maps, room)
        # Rows of memory run along k, or along the tile, which is then loaded in whole boxes.
        tiles = {0: values["block_m"], 1: values["block_n"]}
        along_k = {0: str(side.of.options["layout"])[0] == "n", 1: str(side.of.options["layout"])[1] == "t"}
        depth = values["block_k"]
        places: set[tuple[tuple[int, Row], ...]] = set()
        steps: Counter[tuple[int, int, int]] = Counter()
        for some in fills.values():
            assert [fill.stage for fill in some] == [i % values["stages"] for i in range(len(some))]
            for fill in some:
                places.add(tuple((at, relative(row, fill)) for at, row in sorted(fill.rows.items())))
                (x_a, y_a), (x_b, y_b) = fill.first[0], fill.first[1]
                (row_of_c, k_a), (column_of_c, k_b) = (
                    (y_a, x_a) if along_k[0] else (x_a, y_a),
                    (y_b, x_b) if along_k[1] else (x_b, y_b),
                )
                assert k_a == k_b, "A and B of the same step"
                steps[row_of_c, column_of_c, k_a] += 1
        [same] = places  # of all steps, blocks, and ways to load
        for matrix in (0, 1):
            rows = {(row.x, row.y) for _, row in same if row.matrix == matrix}
            width, height = (
                (depth, tiles[matrix]) if along_k[matrix] else (ceil(tiles[matrix] / 64) * 64, depth)
            )
            assert rows == {(x, y) for x in range(0, width, 64) for y in range(height)}
        m, n, k = (side.of.sizes[name] for name in "mnk")
        high, wide = values["cluster_m"] * values["block_m"], values["cluster_n"] * values["block_n"]
        assert set(steps.values()) == {1}
        assert steps.keys() == {
            (row, column, step)
            for row in range(0, ceil(m / high) * high, values["block_m"])
            for column in range(0, ceil(n / wide) * wide, values["block_n"])
            for step in range(0, k, depth)
        }
        for kind, matrix, *_, policy in (request for some in requests.values() for request in some):
            last = values.get("l2_evict_last", "none")
            if kind in (LOAD, MULTICAST):
                assert policy == (0 if last == "none" else 2 if last == "ab"[matrix] else 1)


def relative(row: Row, fill: Fill) -> Row:
    """Return a row as it lies to its tile's first."""
    x, y = fill.first[row.matrix]
    return Row(row.matrix, row.x - x, row.y - y)


def test_each_box_is_prefetched_by_one(side: Side) -> None:
    """Of all blocks together: what the ring has no room for yet, nothing twice, and nothing else."""
    prefetching = 0
    for number, (one, gpu) in enumerate(side.cases):
        values = one.values
        launch = make_plan(GEMM, side.of, gpu, one).launches[-1]
        requests = asked(side, number, launch.grid[0])
        fetched = Counter(
            Row(*which) for some in requests.values() for kind, *which in map(fetch, some) if kind == FETCH
        )
        if not values["prefetch"]:
            assert not fetched
            continue
        prefetching += 1
        cluster = values["cluster_m"] * values["cluster_n"]
        ahead = 2 if cluster > 1 else values["stages"]
        needed = set()
        for some in requests.values():
            kinds = [request[0] for request in some]
            assert kinds.count(EXPECT) == ceil(side.of.sizes["k"] / values["block_k"]) > ahead, (
                "one tile a block"
            )
            step = 0
            for request in some:
                step += request[0] == EXPECT
                if request[0] in (LOAD, MULTICAST) and step > ahead:
                    needed.add(Row(*fetch(request)[1:]))
        assert fetched.keys() == needed and set(fetched.values()) == {1}, one
    assert prefetching >= len(side.cases) // 4


def fetch(request: list[int]) -> tuple[int, int, int, int]:
    """Return kind, matrix, column and row of a request."""
    kind, matrix, _, x, y, *_ = request
    return kind, matrix, x, y


def test_instructions_read_what_was_loaded(side: Side) -> None:
    """Each its 64 rows and its columns at its 16 of k, all of them together each element of the tile."""
    nothing, out = HostArray(4, "int32", 4), HostArray(1, "int32", 4)
    nothing.elements[:] = 0
    for number, (one, _) in enumerate(side.cases):
        side.host(1, 1, 1 << 18, Schedule(), np.int32(number), nothing, out)
        assert out.elements[0] == 0, one
