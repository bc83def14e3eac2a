"""Kernels that call CUB's collectives are run on the CPU, where what CUB does not promise does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.check.cpu_run import CpuChild
from tests.inspect.check.test_accesses import said
from tuner.inspect.emulator.building import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")
KERNEL = """\
kernel = { name = "collectives" }
problem = { sizes = { n = 64 }, dtypes = { input = "int32" } }
tensors.x = { shape = ["2 * n"], dtype = "input", init = "index" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
reference = { numpy = "x[:n]" }
variants.v.parameters = { Op = { values = [64] }, items = { values = [2] }, T = { values = [3] } }
[[variants.v.launches]]
template = "k.cu"
entry = "k"
arguments = ["x", "y", "n"]
grid = [1]
block = ["Op"]
"""
HEAD = """\
#include <cub/block/block_reduce.cuh>
#include <cub/cub.cuh>
using Reduce = cub::BlockReduce<int, Op, cub::BLOCK_REDUCE_RAKING>;
using Scan = cub::BlockScan<int, Op>;
using Load = cub::BlockLoad<int, Op, items>;
using Striped = cub::BlockLoad<int, Op, items, cub::BLOCK_LOAD_STRIPED>;
using Store = cub::BlockStore<int, Op, items>;
struct After {
    int begin;
    __device__ int operator()(int total) { const int now = begin; begin += total; return now; }
};
extern "C" __global__ void k(const int* x, int* y, int n) {
    __shared__ union {
        Reduce::TempStorage reduce;
        Scan::TempStorage scan;
        Load::TempStorage load;
    } room;
    __shared__ cub::WarpReduce<int, 16>::TempStorage halves[4];
    __shared__ cub::WarpScan<int>::TempStorage warps[2];
    const int t = threadIdx.x;
    int right = 1, out, total, pair[items], pairs[items];
"""
CASES = """\
out = Reduce(room.reduce).Sum(x[t]); right &= t > 0 || out == 2016;
out = Reduce(room.reduce).Reduce(x[t], cub::Max(), 10); right &= t > 0 || out == 9;
out = Reduce().Reduce(x[t], cuda::minimum<>()); right &= t > 0 || out == 0;
Load(room.load).Load(x, pair); out = Reduce(room.reduce).Sum(pair); right &= pair[1] == 2 * t + 1 && (t || out == 8128);
Striped().Load(x, pair, 70, -1); right &= pair[0] == t && pair[1] == (t < 6 ? 64 + t : -1);
Scan(room.scan).ExclusiveSum(x[t], out, total); right &= out == t * (t - 1) / 2 && total == 2016;
Scan(room.scan).InclusiveSum(t > 9, out); right &= out == (t > 9 ? t - 9 : 0);
Scan(room.scan).InclusiveScan(x[t], out, cub::Max()); right &= out == t;
Scan(room.scan).ExclusiveScan(x[t], out, 5, cub::Max(), total); right &= out == max(5, t - 1) && total == 63;
Scan(room.scan).ExclusiveScan(x[t], out, cub::Sum()); right &= t == 0 || out == t * (t - 1) / 2;
pair[0] = pair[1] = t; Scan(room.scan).ExclusiveSum(pair, pair); right &= pair[0] == t * (t - 1) && pair[1] == t * t;
After after{100}; Scan(room.scan).ExclusiveSum(1, out, after); right &= out == 100 + t && (t > 0 || after.begin == 164);
out = cub::WarpReduce<int, 16>(halves[t / 16]).Sum(x[t]); right &= t % 16 != 0 || out == 16 * t + 120;
cub::WarpScan<int>(warps[t / 32]).InclusiveSum(1, out); right &= out == t % 32 + 1;
pairs[0] = t, pairs[1] = -t; Store().Store(y, pairs, 5); __syncthreads(); right &= y[2] == 1 && y[3] == -1;
"""
TAIL = "    y[t] = right ? x[t] : -1;\n}\n"
SYNC = "    __syncthreads();\n"
CODE = HEAD + SYNC.join(CASES.splitlines(keepends=True)) + SYNC + TAIL


def test_collectives_are_right_and_their_rules_hold(child: CpuChild, tmp_path: Path) -> None:
    """Parameters may have the names that CUB's own headers use."""
    assert said(child, tmp_path, CODE, KERNEL) == "; "
    sums = "for (int i = 0; i < 9; ++i) { Scan(room.scan).ExclusiveSum(i, out); right &= out == i * t; }"
    again = HEAD + sums + TAIL
    assert "elements are wrong" in said(child, tmp_path, again, KERNEL), "without a barrier"
    narrow = HEAD + "cub::BlockReduce<int, 32>().Sum(1);" + TAIL
    assert "a block of another size than CUB's template names" in said(child, tmp_path, narrow, KERNEL)
