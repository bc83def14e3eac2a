"""What a block loads alone, before its cluster is ready, is what its cluster loads for it afterwards."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.templates.sources import pieces
from tuner.core.model import Configuration, Problem
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, HostKernel, Schedule
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]
SAMPLES = 2
ROW, COLUMN, K = 5120, 7168, 100_032
"""Where a stage's tiles begin: in no matrix, nothing is copied."""
KERNEL = """
struct TensorMap { int which; };
using Barrier = unsigned long long;
constexpr int BLOCK_M = {{ block_m }}, BLOCK_N = {{ block_n }}, BLOCK_K = {{ block_k }};
constexpr int CLUSTER_M = {{ cluster_m | default(1) }}, CLUSTER_N = {{ cluster_n }};
constexpr bool LOAD_B_FIRST = false;
constexpr bool A_K_MAJOR = {{ (layout[0] == "n") | lower }}, B_K_MAJOR = {{ (layout[1] == "t") | lower }}, SWAP_AB = @SWAP_AB@;
static int *list, found;
static void note(unsigned int shared, const TensorMap* map, int x, int y, int blocks) {
    const int box[5] = {static_cast<int>(shared), map->which, x, y, blocks};
    std::memcpy(list + 5 * found++, box, sizeof(box));
}
static void load_box(unsigned int shared, const TensorMap* map, int x, int y, Barrier*, unsigned long long = 0) { note(shared, map, x, y, 0); }
static void multicast_box(unsigned int shared, const TensorMap* map, int x, int y, Barrier*, unsigned short blocks, unsigned long long = 0) {
    note(shared, map, x, y, blocks);
}
static void fetch_box(const TensorMap* map, int x, int y) { note(0, map, x, y, 0); }
static void expect_bytes(Barrier* expected, unsigned int bytes) { *expected += bytes; }
static unsigned long long l2_evict_last_policy() { return 0; }
static unsigned long long l2_evict_first_policy() { return 0; }
{% include "sm90/tma_load.cuh.j2" %}
extern "C" __global__ void boxes(int* out, Barrier* expected, int m, int n, int first, int alone) {
    const TensorMap a{0}, b{1};
    list = out + 1;
    found = 0;
    if (alone) load_stage<true>(0, expected, &a, &b, @ROW@, @COLUMN@, @K@, ClusterRank{m, n, first});
    else load_stage<false>(0, expected, &a, &b, @ROW@, @COLUMN@, @K@, ClusterRank{m, n, first});
    out[0] = found;
}
"""  # noqa: E501

Stage = dict[int, tuple[str, int, int]]
"""By address: which 128 bytes lie there, by matrix, column and row."""


def drawn(name: str, of: Problem) -> list[Configuration]:
    """Draw configurations with clusters."""
    [space] = SearchSpace.from_kernel(GEMM, of, HOPPER, [name]).variants
    rows = random.Random(f"{name} {of}").sample(range(len(space)), min(len(space), 20 * SAMPLES))
    some = map(space.configuration, rows)
    clusters = [one for one in some if one.values.get("cluster_m", 1) * one.values["cluster_n"] > 1]
    assert len(clusters) >= SAMPLES
    return clusters[:SAMPLES]


def stages(
    host: HostKernel, values: Any, maps: dict[str, Any], alone: bool
) -> tuple[dict[int, Stage], set[int]]:
    """Return a stage of each block after all of a cluster have loaded, and the bytes that their barriers expect."""
    members = values.get("cluster_m", 1) * values["cluster_n"]
    found: dict[int, Stage] = {block: {} for block in range(members * values.get("cluster_k", 1))}
    expected = HostArray(1, "int64", 8)
    bytes_of = set()
    for block in found:
        out = HostArray(1 + 5 * 256, "int32", 4)
        expected.elements[:] = 0
        rank_m, rank_n = divmod(block % members, values["cluster_n"])
        numbers = (rank_m, rank_n, block // members * members, int(alone))
        host(1, 1, 0, Schedule(), out, expected, *map(np.int32, numbers))
        bytes_of.add(int(expected.elements[0]))
        for to, which, x, y, blocks in out.elements[1 : 1 + 5 * out.elements[0]].reshape(-1, 5).tolist():
            matrix = "ab"[which]
            assert to % 1024 == 0, "pieces change places within eight rows"
            for other in [bit for bit in range(16) if blocks >> bit & 1] or [block]:
                for row in range(maps[matrix]["box_rows"]):
                    assert to + row * 128 not in found[other], "loaded twice"
                    found[other][to + row * 128] = (matrix, x, y + row)
    return found, bytes_of


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("name", ["wgmma_split_k", "wgmma_skinny_m"])
def test_alone_as_together(name: str, layout: str, tmp_path: Path) -> None:
    of = GEMM.problem({"m": 104, "n": 1048, "k": 4104}, {"": "bfloat16"}, {"layout": layout})
    for number, configuration in enumerate(drawn(name, of)):
        values = configuration.values
        template = KERNEL.replace("@SWAP_AB@", str(name == "wgmma_skinny_m").lower())
        for key, value in (("ROW", ROW), ("COLUMN", COLUMN), ("K", K)):
            template = template.replace(f"@{key}@", str(value))
        folder = tmp_path / str(number)
        folder.mkdir()
        host = HostKernel(pieces(GEMM, of, HOPPER, configuration, template, folder), "boxes", folder)
        launch = make_plan(GEMM, of, HOPPER, configuration).launches[-1]
        maps: dict[str, Any] = {}
        for kind, matrix, text in launch.arguments:
            if kind == "map":
                maps.setdefault(matrix, json.loads(str(text)))
        alone, [size] = stages(host, values, maps, alone=True)
        together, sizes_together = stages(host, values, maps, alone=False)
        assert alone == together and sizes_together == {size}
        for rows in alone.values():
            assert sorted(rows) == list(range(0, size, 128))  # whole, and nothing behind it
            assert set(rows.values()) >= {
                ("a", K, ROW) if layout[0] == "n" else ("a", ROW, K),
                ("b", COLUMN, K) if layout[1] == "n" else ("b", K, COLUMN),
            }
