"""The orders in which gemm on Hopper walks over the tiles of C, without a GPU: the template's own lines, run here."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.sources import definition
from tests.test_wgmma_split_last import HOPPER, chosen, problem, source_of
from tuner.emulator.host import COMPILER, HostArray, HostKernel, Schedule
from tuner.kernel.load import load_kernel
from tuner.model import Configuration, Problem
from tuner.space.validity import invalid_reason, pruning_reason

WALK = """
struct Tile {
    int m;
    int n;
};
@TILE_OF@
extern "C" __global__ void walk(int* out, int tiles_m, int tiles_n) {
    for (int index = 0; index < tiles_m * tiles_n; ++index) {
        const Tile tile = tile_of(index, tiles_m, tiles_n);
        out[2 * index] = tile.m;
        out[2 * index + 1] = tile.n;
    }
}
"""
GRIDS = [(1, 1), (1, 9), (9, 1), (4, 4), (16, 16), (32, 43), (43, 32), (17, 21), (5, 64), (64, 64)]


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("group", [4, 8, 16])
@pytest.mark.parametrize("raster", ["along_n", "along_m", "hilbert"])
def test_each_tile_once_and_near_the_one_before(raster: str, group: int, tmp_path: Path) -> None:
    """A curve's steps are of one tile within a band of whole squares; the walks along lines begin each line anew."""
    source = source_of(problem(8192, 8192, 8192), chosen("wgmma", {"raster": raster, "raster_group": group}))
    host = HostKernel(WALK.replace("@TILE_OF@", definition(source, "tile_of")), "walk", tmp_path)
    for tiles_m, tiles_n in GRIDS:
        out = HostArray(2 * tiles_m * tiles_n, "int32")
        host(1, 1, 0, Schedule(), out, np.int32(tiles_m), np.int32(tiles_n))
        walk = [(int(m), int(n)) for m, n in out.elements.reshape(-1, 2)]
        assert sorted(walk) == [(m, n) for m in range(tiles_m) for n in range(tiles_n)]
        if raster == "hilbert" and tiles_m >= group and tiles_n % group == 0:
            band = walk[: group * tiles_n]
            steps = [abs(a - c) + abs(b - d) for (a, b), (c, d) in pairwise(band)]
            assert set(steps) == {1}


def is_searched(of: Problem, configuration: Configuration) -> bool:
    """Whether a search may try it; it may be run in any case."""
    gemm = load_kernel("gemm")
    assert not invalid_reason(gemm, of, HOPPER, configuration)
    return not pruning_reason(gemm, of, HOPPER, configuration)


@pytest.mark.parametrize(("length", "searched"), [(8192, True), (1024, False), (264, False)])
def test_what_is_kept_is_tried_where_the_l2_does_not_hold_all(length: int, searched: bool) -> None:
    of = problem(length, length, length)
    for kept in ("a", "b"):
        assert is_searched(of, chosen("wgmma", {"l2_evict_last": kept})) == searched


@pytest.mark.parametrize(
    ("length", "group", "searched"), [(8192, 16, True), (8192, 8, False), (1024, 16, False)]
)
def test_so_is_a_curve_in_large_squares(length: int, group: int, searched: bool) -> None:
    of = problem(length, length, length)
    assert is_searched(of, chosen("wgmma", {"raster": "hilbert", "raster_group": group})) == searched


@pytest.mark.parametrize(("length", "searched"), [(4096, True), (1024, False)])
def test_sms_are_left_idle_where_there_is_work_for_them(length: int, searched: bool) -> None:
    of = problem(length, length, length)
    assert is_searched(of, chosen("wgmma", {"sm_margin": 4})) == searched


@pytest.mark.parametrize(
    ("kept", "a", "b"), [("none", "", ""), ("a", "last", "first"), ("b", "first", "last")]
)
def test_loads_name_their_policy(kept: str, a: str, b: str) -> None:
    source = source_of(problem(8192, 8192, 8192), chosen("wgmma", {"l2_evict_last": kept, "cluster_m": 2}))
    for name, policy in (("a", a), ("b", b)):
        loads = [line for line in source.splitlines() if "_box(to_" in line and f"&map_{name}," in line]
        found = {re.findall(r"keep_(\w+)_out", line)[0] if "keep_" in line else "" for line in loads}
        assert len(loads) >= 2 and found == {policy}
