"""Which tiles of C the persistent product's blocks compute, in which order, and how they divide a last round."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tests.templates.sm90 import chosen, plain_source, problem, together
from tuner.core.model import Value
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, HostKernel, Schedule

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

GRIDS = [(1, 1), (1, 9), (9, 1), (16, 16), (17, 21), (5, 64)]
WALK = """
void test(const int* in, int* out) {
    for (int index = 0; index < in[0] * in[1]; ++index) {
        const TileIndex tile = tile_at(index, in[0], in[1]);
        *out++ = tile.m;
        *out++ = tile.n;
    }
}
"""


def run(host: HostKernel, number: int, given: list[int], count: int) -> HostArray:
    """Return what a test writes."""
    numbers, out = HostArray(len(given), "int32", 4), HostArray(count, "int32", 4)
    numbers.elements[:] = given
    host(1, 1, 0, Schedule(), np.int32(number), numbers, out)
    return out


def test_each_tile_once_and_near_the_one_before(tmp_path: Path) -> None:
    """A curve's steps are of one tile within a band of whole squares; the walks along lines begin each line anew."""
    walks = [("along_n", 16), ("along_m", 8), ("hilbert", 16)]
    of = problem(8192, 8192, 8192)
    sources = [
        plain_source(of, chosen("wgmma", {"raster": raster, "raster_group": group}))
        for raster, group in walks
    ]
    host = together(sources, [WALK] * len(sources), tmp_path)
    for number, (raster, group) in enumerate(walks):
        for tiles_m, tiles_n in GRIDS:
            out = run(host, number, [tiles_m, tiles_n], 2 * tiles_m * tiles_n)
            walk = out.elements.reshape(-1, 2)
            assert (walk >= 0).all() and (walk < (tiles_m, tiles_n)).all()
            assert np.array_equal(np.sort(walk @ (tiles_n, 1)), np.arange(tiles_m * tiles_n))
            if raster == "hilbert" and tiles_m >= group and tiles_n % group == 0:
                steps = np.abs(np.diff(walk[: group * tiles_n], axis=0)).sum(1)
                assert (steps == 1).all()
            elif raster != "hilbert":  # those of a band lie side by side
                lines = walk[: group * min(tiles_m, tiles_n), int(raster == "along_m")]
                assert (np.abs(np.diff(lines)) < group).all()


# What each worker's items are, and what a thread of each writes and adds up; its accumulators hold its number of steps.
SHARES = """
void test(const int* in, int* out) {
    const int m = in[0], n = in[1], k = in[2], workers = in[3];
    const ClusterRank first{0, 0, 0};
    const TileScheduler any(m, n, k, 0, workers);
    const int tiles = any.tiles_m * any.tiles_n, pieces = MMAS * TILE_N / 8;
    const int head[8] = {any.items, any.whole, any.divided, any.splits, tiles, any.steps, SLICES, pieces};
    for (const int value : head) *out++ = value;
    std::vector<float4> partials(workers * CLUSTER * CONSUMERS * pieces * 128, float4{-1, -1, -1, -1});
    std::vector<unsigned int> counters(workers * CLUSTER * CONSUMERS);
    hopper::alone = true;
    for (int round = 0; round < 2; ++round) {  // in the second, all others have written
        for (int worker = 0; worker < workers; ++worker) {
            const TileScheduler scheduler(m, n, k, worker, workers);
            for (int item = scheduler.worker; item < scheduler.items; item += scheduler.workers) {
                const Work work = scheduler.at(item, first);
                if (round == 0) {
                    const int last = scheduler.is_last(item);
                    const int row[8] = {item, work.tile, work.split, work.begin, work.end, work.row, work.column, last};
                    for (const int value : row) *out++ = value;
                }
                if (!scheduler.is_divided(item)) continue;
                float accumulators[MMAS][TILE_N / 2];
                for (auto& of_row : accumulators) {
                    for (float& d : of_row) d = work.end - work.begin;
                }
                Epilogue epilogue{};
                counters.assign(counters.size(), scheduler.splits);  // as if the others were there
                auto store = [&](int i, int column) {
                    if (round == 0) return;
                    int right = 1;
                    for (int d = column / 2; d < min(column + SLICE, TILE_N) / 2; ++d) {
                        right &= accumulators[i][d] == scheduler.steps;
                    }
                    const int row[4] = {work.tile, work.split, i * SLICES_PER_ROW + column / SLICE, right};
                    for (const int value : row) *out++ = value;
                };
                reduce_and_store(accumulators, scheduler, work, epilogue, 0, partials.data(), counters.data(), store);
            }
        }
    }
    int written = 0;
    for (const float4& one : partials) written += one.x >= 0 && one.y >= 0 && one.z >= 0 && one.w >= 0;
    *out = written;
}
"""
DIVIDED: list[dict[str, Value]] = [
    {"epilogue": "overlapped", "block_m": 128, "block_n": 256},
    {"epilogue": "serial", "block_m": 176, "block_n": 128, "swap_ab": True, "cluster_n": 2},
    {"epilogue": "serial", "block_m": 128, "block_n": 128, "schedule": "pingpong"},
    {"epilogue": "serial", "block_m": 64, "block_n": 320, "consumers": 1},
]


def test_every_step_of_every_tile_is_somebodys(tmp_path: Path) -> None:
    """For far more shapes than a launch could be made for, by one thread that does not wait for others."""
    of = problem(3000, 3000, 3000)
    configurations = [
        chosen("wgmma", {"stream_k": True, "block_k": 64, "stages": 3, **values}) for values in DIVIDED
    ]
    host = together([plain_source(of, one) for one in configurations], [SHARES] * len(DIVIDED), tmp_path)
    rng = random.Random(0)
    several = 0
    for turn in range(32):
        number = turn % len(DIVIDED)
        values = configurations[number].values
        high, wide = values["block_m"] * values["cluster_m"], values["block_n"] * values["cluster_n"]
        workers = rng.choice([1, 2, 3, 7, 16, 66, 131, 132])
        tiles_m = rng.choice([1, 2, 3])
        rounds, last = rng.randint(0, 3), rng.randint(0, workers // 2 if rng.random() < 0.8 else workers - 1)
        tiles_n = max((rounds * workers + last) // tiles_m, 1)
        steps = rng.choice([1, 2, 5, 16, 17, 64, 1000])
        sizes = [
            tiles_m * high - rng.randrange(high),
            tiles_n * wide - rng.randrange(wide),
            steps * 64 - rng.randrange(64),
        ]
        tiles = tiles_m * tiles_n
        out = run(host, number, [*sizes, workers], 64 + (8 + 4 * 32) * (tiles + 32 * workers)).elements
        items, whole, last, parts, counted, depth, slices, pieces = map(int, out[:8])
        where = (values, sizes, workers)
        assert (counted, depth, last) == (tiles, steps, tiles % workers if parts > 1 else 0), where
        assert whole == tiles - last, where
        assert items == whole + last * parts and last * parts <= workers and parts <= min(steps, slices), (
            where
        )
        rows = out[8 : 8 + 8 * items].reshape(items, 8).tolist()
        assert sorted(item for item, *_ in rows) == list(range(items)), where
        done = np.zeros((tiles, steps), int)
        corners: dict[int, set[tuple[int, int]]] = {}
        for item, tile, _, begin, end, row, column, is_last in rows:
            assert begin < end and bool(is_last) == (item + workers >= items), where
            assert tile >= whole or (begin, end) == (0, steps), where
            done[tile, begin:end] += 1
            corners.setdefault(tile, set()).add((row, column))
        assert (done == 1).all(), where
        assert (
            all(len(found) == 1 for found in corners.values()) and len(set.union(*corners.values())) == tiles
        ), where
        divided = [row for row in rows if row[1] >= whole]
        assert len({row[0] % workers for row in divided}) == len(divided), "no worker has two parts"
        behind = 8 + 8 * items
        owned = out[behind : behind + 4 * last * slices].reshape(-1, 4).tolist()
        assert sorted((tile, part) for tile, _, part, _ in owned) == [
            (tile, part) for tile in range(whole, tiles) for part in range(slices)
        ], where
        assert all(right for *_, right in owned), "a sum of other parts than all"
        assert {(tile, part) for tile, part, *_ in owned} == {(row[1], row[2]) for row in divided}, (
            "a part of k without a slice of C"
        )
        # Each writes all but its own share: slots that overlapped would hold fewer numbers.
        assert out[behind + 4 * last * slices] == (parts - 1) * last * pieces, where
        several += last > 0 and parts > 1
    assert several >= 10
