"""gemm on Hopper with a tile for each cluster, the whole kernel on the CPU: every layout, exchange and cluster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.hopper import GEMM, product
from tuner.emulator.host import COMPILER
from tuner.hardware.roofline import ARCHITECTURES
from tuner.model import Configuration, Value

HOPPER = ARCHITECTURES[90]
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
    sizes = {"m": 104 if name == "wgmma_split_k" else 40, "n": 136, "k": 456}
    of = GEMM.problem(sizes, {"": "bfloat16"}, {"layout": layout})
    configuration = Configuration.of(name, {**GEMM.variants[name].defaults, **values})
    done = product(of, HOPPER, configuration, tmp_path)
    assert np.array_equal(done.computed.numbers, done.expected.numbers)
    if "counters" in done.scratch:
        assert not done.scratch["counters"].elements.any(), "the next launch finds counts"
