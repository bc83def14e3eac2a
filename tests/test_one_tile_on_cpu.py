"""gemm on Hopper with a tile for each cluster, the whole kernel on the CPU: every layout, exchange and cluster."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.sources import rendered
from tuner.emulator.host import COMPILER, HostArray, HostKernel, Schedule
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.model import Configuration, Value
from tuner.space.validity import invalid_reason

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]
HARDWARE = (Path(__file__).parent / "hopper.hpp").read_text()
SMALL: dict[str, Value] = {"block_m": 64, "block_n": 64, "block_k": 64, "stages": 3, "consumers": 1}
TURNS: dict[str, Value] = {"k_order": "interleaved"}
CASES: dict[str, tuple[str, dict[str, Value]]] = {
    "plain": ("wgmma_split_k", {**SMALL, "cluster_n": 1}),
    "pairs along m": ("wgmma_split_k", {**SMALL, "cluster_m": 2}),
    "pairs along n": ("wgmma_split_k", {**SMALL, "block_n": 128, "cluster_n": 2}),
    "a cluster divides k": ("wgmma_split_k", {**SMALL, "block_n": 128, "cluster_k": 2}),
    "so do four": ("wgmma_split_k", {**SMALL, "block_m": 128, "consumers": 2, "cluster_k": 4}),
    "pairs that divide k": ("wgmma_split_k", {**SMALL, "cluster_k": 2, "cluster_m": 2}),
    "clusters divide k": ("wgmma_split_k", {**SMALL, "split_k": 3, "block_m": 128, "consumers": 2}),
    "rows in turn": ("wgmma_split_k", {**SMALL, "split_k": 2, "block_m": 128, **TURNS}),
    "rows in turn, pairs": ("wgmma_split_k", {**SMALL, "split_k": 2, "block_m": 128, "cluster_n": 2}),
    "both divide k": ("wgmma_split_k", {**SMALL, "split_k": 2, "cluster_k": 2, "gpc_locality": True}),
    "few rows": ("wgmma_skinny_m", {**SMALL, "block_m": 8}),
    "few rows, k divided": ("wgmma_skinny_m", {**SMALL, "block_m": 24, "cluster_k": 4, "stages": 2}),
    "shares of rows": ("wgmma_skinny_m", {**SMALL, "block_m": 8, "block_n": 128, "cluster_k": 2, "consumers": 2}),
    "more rows": ("wgmma_skinny_m", {**SMALL, "block_m": 104, "cluster_m": 2, "cluster_k": 2, **TURNS}),
    "pairs that share A": ("wgmma_skinny_m", {**SMALL, "block_m": 32, "cluster_n": 2}),
}  # fmt: skip
ENTRY = """
extern "C" __global__ void run(const unsigned short* a, const unsigned short* b, T* c, float4* partials, unsigned int* counters, int m, int n, int k) {
    static_assert(sizeof(hopper::Map) <= sizeof(TensorMap), "a map holds what a test's does");
    TensorMap map_a, map_b;
    const hopper::Map one{a, A_MAP}, other{b, B_MAP};
    std::memcpy(&map_a, &one, sizeof(one));
    std::memcpy(&map_b, &other, sizeof(other));
    CALL
}
"""  # noqa: E501


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    ("case", "layout"),
    [
        (case, layout)
        for number, case in enumerate(CASES)
        for turn, layout in enumerate(("nn", "tt", "nt", "tn"))
        if turn == number % 4 or case in ("plain", "few rows")
    ],
)
def test_c_is_the_product_to_the_last_bit(case: str, layout: str, tmp_path: Path) -> None:
    name, values = CASES[case]
    m, n, k = (104, 136, 456) if name == "wgmma_split_k" else (40, 136, 456)
    of = GEMM.problem({"m": m, "n": n, "k": k}, {"": "bfloat16"}, {"layout": layout})
    configuration = Configuration.of(name, {**GEMM.variants[name].defaults, **values})
    assert not invalid_reason(GEMM, of, HOPPER, configuration)
    plan = make_plan(GEMM, of, HOPPER, configuration)
    [launch] = plan.launches
    maps = {which: json.loads(str(text)) for kind, which, text in launch.arguments if kind == "map"}
    major = {"a": layout[0] == "n", "b": layout[1] == "t"}
    m_side, n_side = ("b", "a") if name == "wgmma_skinny_m" else ("a", "b")
    cluster = launch.cluster[0] if launch.cluster else 1
    constants = {
        "CLUSTER": cluster, "SHARED_BYTES": launch.shared_bytes,
        "M_K_MAJOR": int(major[m_side]), "N_K_MAJOR": int(major[n_side]),
    }  # fmt: skip
    passed = ["map_a", "map_b", "c"]
    if name == "wgmma_split_k":
        passed += ["partials", "counters"]
    order = ""
    if configuration.values.get("gpc_locality"):
        clusters = launch.grid[0] // cluster
        order = "ClusterOrder order;\n" + "".join(  # any permutation is right
            f"order.of[{i}] = {clusters - 1 - i};\n" for i in range(clusters)
        )
        passed.append("order")
    entry = ENTRY.replace("CALL", f"{order}gemm_wgmma({', '.join([*passed, 'm', 'n', 'k'])});")
    for which in "ab":
        one = maps[which]
        numbers = [one[key] for key in ("rows", "columns", "box_rows", "box_columns")]
        entry = entry.replace(f"{which.upper()}_MAP", ", ".join(map(str, numbers)))
    lines = "".join(f"constexpr unsigned int {key} = {value};\n" for key, value in constants.items())
    text = f"namespace hopper {{\n{lines}}}\n"
    host = HostKernel(text + HARDWARE + rendered(GEMM, of, HOPPER, configuration) + entry, "run", tmp_path)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
    stored = {"a": a if layout[0] == "n" else a.T, "b": b if layout[1] == "n" else b.T}
    inputs = {which: HostArray(matrix.size, "bfloat16", 16) for which, matrix in stored.items()}
    for which, matrix in stored.items():
        inputs[which].fill(matrix.ravel())
    expected, c = HostArray(m * n, "bfloat16", 16), HostArray(m * n, "bfloat16", 16)
    expected.fill((a @ b).ravel())
    scratch = {buffer.name: HostArray(buffer.count, buffer.dtype, 256) for buffer in plan.scratch}
    memory = [scratch.get(which, np.uint64(0)) for which in ("partials", "counters")]
    if "counters" in scratch:
        scratch["counters"].elements[:] = 0
    host(
        launch.grid[0], launch.block[0], launch.shared_bytes, Schedule(1, shuffled=True),
        inputs["a"], inputs["b"], c, *memory, np.int32(m), np.int32(n), np.int32(k),
    )  # fmt: skip
    assert np.array_equal(c.numbers, expected.numbers)
    if "counters" in scratch:
        assert not scratch["counters"].elements.any(), "the next launch finds counts"
