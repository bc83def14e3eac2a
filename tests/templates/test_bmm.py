"""Batches of products, on the CPU: each tile reads its own matrices, and nothing of the next product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.on_host import product_of
from tests.templates.sm90 import HOPPER, Emulated
from tests.templates.test_sm90_kernel import few_sms
from tuner.core.model import Configuration, Value
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import Schedule
from tuner.kernel.load import load_kernel

EXACT = "relu(x * scale + bias) * row_scale - residual + row_bias * beta"
"""Of small integers it is one."""
SMALL: dict[str, Value] = {"block_m": 64, "block_n": 64, "block_k": 64, "stages": 3, "consumers": 1}
PERSISTENT: dict[str, Value] = {"block_m": 64, "block_n": 128, "block_k": 64, "stages": 4, "consumers": 1}
CASES: dict[str, tuple[str, str, str, tuple[int, int, int, int], dict[str, Value]]] = {
    "persistent": ("wgmma", "nt", "none", (3, 128, 200, 104), {**PERSISTENT, "cluster_m": 2, "c_evict_first": True}),
    "a tile a block": ("wgmma_split_k", "tt", "a", (3, 64, 136, 192), {**SMALL, "cluster_n": 2}),
}  # fmt: skip
FINISHED: dict[str, tuple[str, str, str, tuple[int, int, int, int], dict[str, Value]]] = {
    "finished, persistent": ("wgmma", "nt", "none", (3, 128, 200, 104), {**PERSISTENT, "cluster_m": 2}),
    "finished by mma_sync": (
        "mma_sync", "tn", "none", (3, 40, 72, 40), {"block_m": 32, "block_n": 64, "block_k": 32},
    ),
    "finished from registers": (
        "register_tiled", "nt", "none", (3, 35, 61, 19), {"block_m": 32, "block_n": 64, "thread_m": 4, "block_k": 8},
    ),
}  # fmt: skip


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("case", [*CASES, *FINISHED])
def test_each_product_is_of_its_own_matrices(case: str, tmp_path: Path) -> None:
    variant, layout, broadcast, sizes, values = {**CASES, **FINISHED}[case]
    on_hopper = variant.startswith("wgmma")
    kernel, op = (load_kernel("baddbmm"), {"op": EXACT}) if case in FINISHED else (load_kernel("bmm"), {})
    of = kernel.problem(
        dict(zip(("batch", "m", "n", "k"), sizes, strict=True)),
        {"": "bfloat16" if on_hopper else "float16" if variant == "mma_sync" else "float32"},
        {"layout": layout, "broadcast": broadcast, **op},
    )
    configuration = Configuration.of(variant, {**kernel.variants[variant].defaults, **values})
    if on_hopper:
        gpu = few_sms(of, configuration) if variant == "wgmma" else HOPPER
        assert np.array_equal(*Emulated(of, configuration, gpu, tmp_path).run(Schedule(1, shuffled=True)))
        return
    assert np.array_equal(*product_of(kernel, of, HOPPER, configuration, tmp_path))
