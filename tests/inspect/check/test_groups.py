"""Kernels that use cooperative groups are run on the CPU: blocks, tiles and grids meet, and lanes exchange."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.check.cpu_run import CpuChild, cpu_run
from tuner.inspect.check.host_worker import HostResult
from tuner.inspect.emulator.building import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")
KERNEL = """\
kernel = { name = "grouped" }
problem = { sizes = { n = 256 }, dtypes = { input = "int32" } }
tensors.x = { shape = ["n"], dtype = "input" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
reference = { python = "reference.py:@NAME@" }
variants.v.parameters.block_size = { values = [64] }
[[variants.v.launches]]
template = "k.cu"
entry = "@NAME@"
arguments = ["x", "y", "n"]
grid = ["n // block_size"]
block = ["block_size"]
cooperative = @COOPERATIVE@
"""
CODE = """\
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
#define HEAD cg::thread_block block = cg::this_thread_block(); \\
    const int i = block.group_index().x * block.size() + block.thread_rank();
extern "C" __global__ void block_turned(const int* x, int* y, int n) {
    HEAD
    __shared__ int room[block_size];
    cg::memcpy_async(block, room, x + block.group_index().x * block_size, sizeof(int) * block_size);
    cg::wait(block);
    y[i] = room[block_size - 1 - block.thread_rank()];
}
extern "C" __global__ void tile_sums(const int* x, int* y, int n) {
    HEAD
    const auto tile = cg::tiled_partition<8>(block);
    int sum = x[i];
    for (int distance = tile.size() / 2; distance > 0; distance /= 2) sum += tile.shfl_xor(sum, distance);
    if (sum != cg::reduce(tile, x[i], cg::plus<int>())) sum = -1;
    y[i] = tile.meta_group_rank() == block.thread_rank() / 8 ? sum : -1;
}
extern "C" __global__ void tile_scans(const int* x, int* y, int n) {
    HEAD
    const cg::thread_block_tile<16> tile = cg::tiled_partition<16>(cg::tiled_partition<32>(block));
    const int before = cg::exclusive_scan(tile, x[i]);
    y[i] = tile.any(before + x[i] != cg::inclusive_scan(tile, x[i], cg::plus<int>())) ? -1 : before + x[i];
}
extern "C" __global__ void tile_that_stays(const int* x, int* y, int n) {
    HEAD
    const auto tile = cg::tiled_partition<16>(block);
    y[i] = x[i];
    if (tile.meta_group_rank() % 2 == 1) return;
    for (int time = 0; time < 4; ++time) y[i] = cg::reduce(tile, x[i], cg::plus<int>());
}
__device__ int next(int* count) {
    const cg::coalesced_group lanes = cg::coalesced_threads();
    int first = 0;
    if (lanes.thread_rank() == 0) first = atomicAdd(count, lanes.size());
    return lanes.shfl(first, 0) + lanes.thread_rank();
}
extern "C" __global__ void evens_of_lanes(const int* x, int* y, int n) {
    HEAD
    __shared__ int count;
    if (block.thread_rank() == 0) count = 0;
    block.sync();
    if (x[i] % 2 == 0) next(&count);
    block.sync();
    y[i] = count;
}
__device__ int turned(cg::thread_group group, int* room, int mine) {
    room[group.thread_rank()] = mine;
    group.sync();
    return room[group.size() - 1 - group.thread_rank()];
}
extern "C" __global__ void groups_turned(const int* x, int* y, int n) {
    HEAD
    __shared__ int all[block_size], parts[block_size];
    y[i] = turned(block, all, x[i]);
    y[i] -= turned(cg::tiled_partition(block, 32), parts + block.thread_rank() / 32 * 32, x[i]);
}
extern "C" __global__ void warps_turned(const int* x, int* y, int n) {
    HEAD
    __shared__ int room[block_size];
    room[block.thread_rank()] = x[i];
    cg::sync(cg::tiled_partition<32>(block));
    y[i] = room[block_size - 1 - block.thread_rank()];
}
extern "C" __global__ void grid_turned(const int* x, int* y, int n) {
    const cg::grid_group grid = cg::this_grid();
    const int i = grid.thread_rank();
    y[n - 1 - i] = x[i];
    grid.sync();
    const int other = y[i];
    grid.sync();
    y[n - 1 - i] = other + static_cast<int>(grid.size()) - n;
}
"""
REFERENCE = """\
import numpy as np
def block_turned(x): return x.reshape(-1, 64)[:, ::-1].ravel()
def tile_sums(x): return np.repeat(x.reshape(-1, 8).sum(1), 8)
def tile_scans(x): return np.cumsum(x.reshape(-1, 16), 1).ravel()
def tile_that_stays(x):
    y = x.reshape(-1, 2, 16).copy()
    y[:, 0] = y[:, :1].sum(2)
    return y.ravel()
def evens_of_lanes(x): return np.repeat((x.reshape(-1, 64) % 2 == 0).sum(1), 64)
def groups_turned(x):
    x = x.reshape(-1, 2, 32)
    return (x[:, ::-1, ::-1] - x[:, :, ::-1]).ravel()
warps_turned = block_turned
def grid_turned(x): return x
"""


def run(child: CpuChild, name: str, folder: Path, *, cooperative: bool) -> HostResult:
    """Run one of the kernels, and return what comes of it."""
    (folder / "k.cu").write_text(CODE)
    (folder / "reference.py").write_text(REFERENCE)
    text = KERNEL.replace("@NAME@", name).replace("@COOPERATIVE@", str(cooperative).lower())
    (folder / "k.toml").write_text(text)
    return cpu_run(child, folder / "k.toml")


@pytest.mark.parametrize(
    "name",
    [
        "block_turned",
        "tile_sums",
        "tile_scans",
        "tile_that_stays",
        "evens_of_lanes",
        "groups_turned",
        "grid_turned",
    ],
)
def test_groups_meet_and_exchange(child: CpuChild, name: str, tmp_path: Path) -> None:
    answer = run(child, name, tmp_path, cooperative=name == "grid_turned")
    assert not answer.fault and not answer.undecided, answer


def test_warps_that_meet_each_for_itself_are_no_block_that_does(child: CpuChild, tmp_path: Path) -> None:
    answer = run(child, "warps_turned", tmp_path, cooperative=False)
    assert answer.fault and "is a barrier missing?" in answer.remedy


def test_a_grid_meets_in_a_cooperative_launch_alone(child: CpuChild, tmp_path: Path) -> None:
    assert (
        "grid.sync() needs cooperative = true" in run(child, "grid_turned", tmp_path, cooperative=False).fault
    )
