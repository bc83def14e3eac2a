"""gemm on Hopper with a tile for each cluster, the whole kernel on the CPU: every layout, exchange and cluster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.templates.sm90 import HOPPER, Emulated, chosen, problem
from tuner.core.model import Value
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import Schedule

SMALL: dict[str, Value] = {"block_m": 64, "block_n": 64, "block_k": 64, "stages": 3, "consumers": 1}
INTERLEAVED: dict[str, Value] = {"k_order": "interleaved"}
CASES: dict[str, tuple[str, str, dict[str, Value]]] = {
    "a cluster divides k": ("wgmma_split_k", "tn", {**SMALL, "block_n": 128, "cluster_k": 2}),
    "rows in turn": ("wgmma_split_k", "nn", {**SMALL, "split_k": 2, "block_m": 128, **INTERLEAVED}),
    "both divide k": ("wgmma_split_k", "nt", {**SMALL, "split_k": 2, "cluster_k": 2, "gpc_locality": True}),
    "three pieces side by side": ("wgmma_split_k", "nt", {**SMALL, "block_n": 96, "cluster_k": 4}),
    "few rows, k divided": ("wgmma_skinny_m", "nn", {**SMALL, "block_m": 24, "cluster_k": 4, "stages": 2}),
    "shares of rows": ("wgmma_skinny_m", "tt", {**SMALL, "block_m": 8, "block_n": 128, "cluster_k": 2, "consumers": 2}),
    "more rows": ("wgmma_skinny_m", "nt", {**SMALL, "block_m": 104, "cluster_m": 2, "cluster_k": 2, **INTERLEAVED}),
}  # fmt: skip


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("case", CASES)
def test_c_is_the_product_to_the_last_bit(case: str, tmp_path: Path) -> None:
    name, layout, values = CASES[case]
    of = problem(104 if name == "wgmma_split_k" else 40, 136, 456, layout)
    emulated = Emulated(of, chosen(name, values), HOPPER, tmp_path)
    assert np.array_equal(*emulated.run(Schedule(1, shuffled=True)))
    if "counters" in emulated.memory:
        assert not emulated.memory["counters"].elements.any(), "the next launch finds counts"
