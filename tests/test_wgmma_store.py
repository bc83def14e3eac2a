"""The last tile of a block, straight from registers to C: the template's own code, on the CPU."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.sources import between, pieces, rendered
from tuner.emulator.host import COMPILER, HostArray, HostKernel, Schedule
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.load import load_kernel
from tuner.model import Configuration
from tuner.space.validity import invalid_reason

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]
BASE = {"swap_ab": False, "block_k": 64, "sm_margin": 0, "raster_group": 4, "cluster_m": 1, "cluster_n": 1}
BEHIND = {**BASE, "epilogue": "overlapped", "store_buffers": 1}
AT_ONCE = {**BASE, "epilogue": "serial"}
TILES = {
    "overlapped": {**BEHIND, "block_m": 128, "block_n": 256, "stages": 3},
    "behind, half a run left": {**BEHIND, "block_m": 192, "block_n": 176, "stages": 3, "consumers": 3},
    "at once": {**AT_ONCE, "block_m": 128, "block_n": 208, "stages": 4},
    "taking turns": {**AT_ONCE, "block_m": 128, "block_n": 128, "stages": 5, "schedule": "pingpong"},
    "taking turns, half a run left": {
        **AT_ONCE, "block_m": 64, "block_n": 144, "stages": 5, "schedule": "pingpong",
    },
}  # fmt: skip

# Sums as the matrix instruction leaves them in registers, of a number for each element of C.
KERNEL = """
{% set swap = false %}
{% include "common/types.cuh.j2" %}
@CONSTANTS@
{% include "gemm/store_sums.cuh.j2" %}
extern "C" __global__ void last_tiles(T* c, int m, int n, int tiles_n) {
    const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const int group_first = PINGPONG ? 0 : group * GROUP_ROWS;
    if (PINGPONG && group != blockIdx.x % 2) return;
    const int row = blockIdx.x / tiles_n * BLOCK_M, column = blockIdx.x % tiles_n * BLOCK_N;
    const int its_row = row, its_column = column;
    float sums[MMAS][RIGHT / 2];
    unsigned int finished[MMAS * RIGHT / 4];
    for (int i = 0; i < MMAS; ++i) {
        for (int j = 0; j < RIGHT / 2; ++j) {
            const int y = row + group_first + i * 64 + 16 * warp + lane / 4 + j / 2 % 2 * 8;
            const int x = column + j / 4 * 8 + lane % 4 * 2 + j % 2;
            sums[i][j] = (y * 37 + x * 11) % 251;
        }
        for (int j = 0; j < RIGHT / 4; ++j) {
            finished[i * (RIGHT / 4) + j] = pack_from_float<T>(sums[i][2 * j], sums[i][2 * j + 1]);
        }
    }
    @STORES@
}
"""


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("layout", ["nn", "nt"])
@pytest.mark.parametrize("name", TILES)
def test_every_element_is_written_and_nothing_beside(name: str, layout: str, tmp_path: Path) -> None:
    m, n = 333, 1160  # tiles end within C and beyond it, in rows anywhere and in columns at eighths
    problem = GEMM.problem({"m": m, "n": n, "k": 1000}, {"": "bfloat16"}, {"layout": layout})
    configuration = Configuration.of("wgmma", {**GEMM.variants["wgmma"].defaults, **TILES[name]})
    assert not invalid_reason(GEMM, problem, HOPPER, configuration)
    source = rendered(GEMM, problem, HOPPER, configuration)
    calls = re.findall(r"^\s*(store_(?:pairs|sums)<\d>\(c, .*;)$", source, re.MULTILINE)
    assert calls
    kernel = KERNEL.replace("@CONSTANTS@", between(source, "using T =", "__device__"))
    kernel = kernel.replace("@STORES@", "\n    ".join(calls))
    text = pieces(GEMM, problem, HOPPER, configuration, kernel, tmp_path)
    host = HostKernel(text, "last_tiles", tmp_path)
    values = configuration.values
    # A tile more than there is each way, as the clusters of a launch have.
    tiles_m, tiles_n = m // values["block_m"] + 2, n // values["block_n"] + 2
    c = HostArray(m * n, "bfloat16", 16)
    grid, threads = tiles_m * tiles_n, 128 * values["consumers"]
    host(grid, threads, 0, Schedule(), c, np.int32(m), np.int32(n), np.int32(tiles_n))
    y, x = np.mgrid[0:m, 0:n]
    assert np.array_equal(c.numbers, ((y * 37 + x * 11) % 251).astype(np.float64).ravel())
