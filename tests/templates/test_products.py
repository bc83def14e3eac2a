"""Products on the CPU by every way to C: into slices of larger matrices, in batches and groups, and finished."""

from __future__ import annotations

from dataclasses import replace
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
from tuner.runtime.expressions import round_up

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")
ORDER = Schedule(1, shuffled=True)
Case = tuple[str, str, dict[str, str], tuple[int, ...], dict[str, Value]]

OVERLAPPED: dict[str, Value] = {"epilogue": "overlapped", "store_buffers": 1, "block_k": 64}
SERIAL: dict[str, Value] = {"epilogue": "serial", "block_k": 64}
SMALL: dict[str, Value] = {"block_m": 64, "block_n": 64, "block_k": 64, "stages": 3, "consumers": 1}
HOPPERS: dict[str, Case] = {
    "from registers, divided": (
        "gemm", "wgmma", {"layout": "nn"}, (264, 264, 264),
        {**OVERLAPPED, "stream_k": True, "block_m": 128, "block_n": 256, "stages": 3},
    ),
    "through shared memory": (
        "gemm", "wgmma", {"layout": "nt"}, (264, 264, 264),
        {**OVERLAPPED, "swap_ab": True, "block_n": 128, "block_m": 208, "stages": 4, "cluster_n": 2},
    ),
    "vectors by the threads": (
        "gemm", "wgmma_padded", {"layout": "nn"}, (133, 392, 259),
        {**SERIAL, "stream_k": True, "block_m": 128, "block_n": 176, "stages": 4, "c_vector_width": 8},
    ),
    "k divided": ("gemm", "wgmma_split_k", {"layout": "nt"}, (104, 136, 456), {**SMALL, "split_k": 2, "cluster_k": 2}),
    "a batch": (
        "bmm", "wgmma", {"layout": "nt"}, (3, 128, 200, 104),
        {"block_m": 64, "block_n": 128, "block_k": 64, "stages": 4, "consumers": 1, "cluster_m": 2},
    ),
    "with a residual": (
        "linear", "wgmma", {"layout": "nn", "op": "x - residual"}, (208, 520, 200),
        {**SERIAL, "schedule": "pingpong", "swap_ab": True, "block_m": 160, "block_n": 128, "stages": 5},
    ),
    "few rows, float32": (
        "linear", "wgmma_skinny_m", {"layout": "nn", "op": "x", "output": "float32"}, (20, 136, 200),
        {**SMALL, "block_m": 24, "cluster_k": 2},
    ),
    "groups": (
        "grouped", "wgmma", {"layout": "nt"}, (4, 200, 136, 128),
        {**SERIAL, "block_m": 64, "block_n": 64, "stages": 5, "consumers": 1},
    ),
}  # fmt: skip
SCALES = {"scales": "rows", "accumulation": "fast"}
HOPPERS |= {
    "scales": (
        "scaled_mm", "wgmma", SCALES, (202, 136, 272),
        {"block_m": 64, "block_n": 96, "stages": 5, "schedule": "pingpong", "cluster_m": 2},
    ),
}  # fmt: skip
OTHERS: dict[str, Case] = {
    "scales, tensor cores": (
        "scaled_mm", "mma_sync", SCALES, (40, 38, 144),
        {"block_m": 32, "block_n": 32, "warps_m": 1, "warps_n": 2, "stages": 2},
    ),
    "tiled": ("linear", "tiled", {"layout": "nn", "op": "x + bias"}, (35, 61, 19), {}),
    "registers": (
        "gemm", "register_tiled", {"layout": "nt"}, (35, 60, 19),
        {"block_m": 32, "block_n": 64, "thread_m": 4, "block_k": 8},
    ),
    "registers, k divided": (
        "gemm", "split_k", {"layout": "tn"}, (36, 61, 40), {"block_m": 32, "block_n": 64, "thread_n": 8, "block_k": 8},
    ),
    "residuals": (
        "baddbmm", "register_tiled", {"layout": "nt", "op": "x - residual"}, (3, 35, 61, 19),
        {"block_m": 32, "block_n": 64, "thread_m": 4, "block_k": 8},
    ),
    "tensor cores": (
        "gemm", "mma_sync", {"layout": "nn", "input": "float16"}, (35, 72, 40),
        {"block_m": 32, "block_n": 64, "block_k": 32, "warps_m": 1, "warps_n": 2},
    ),
    "tensor cores, odd": (
        "gemm", "mma_sync_padded", {"layout": "nn", "input": "float16"}, (35, 69, 37),
        {"block_m": 64, "block_n": 64, "block_k": 32, "warps_m": 1, "warps_n": 2},
    ),
    "tensor cores, a cluster": (
        "gemm", "mma_sync_cluster_k", {"layout": "nn", "input": "float16"}, (35, 69, 137),
        {"block_m": 32, "block_n": 64, "warps_m": 1, "vector_width": 1},
    ),
    "a row": ("gemm", "gemv_columns", {"layout": "nn"}, (3, 72, 520), {"block_m": 4, "split_k": 2, "vector_width": 4}),
    "a column": ("gemm", "gemv_dots_swap_ab", {"layout": "nn"}, (40, 3, 72), {"block_n": 3, "vector_width": 4}),
    "a small k": ("gemm", "small_k", {"layout": "nn", "input": "float16"}, (70, 48, 9), {}),
    "only a residual": (
        "linear", "small_k", {"layout": "nn", "input": "float16", "op": "x - residual"}, (70, 61, 9), {}
    ),
}  # fmt: skip


# What is finished by an expression is so once, before rounding; of small integers it is one, which every dtype has.
EXACT = "relu(x * scale + bias) * row_scale - residual + row_bias * beta"
FINISHED = {"layout": "nn", "op": EXACT}
BATCH = {"layout": "nt", "broadcast": "none"}
PERSISTENT: dict[str, Value] = {"block_m": 64, "block_n": 128, "block_k": 64, "stages": 4, "consumers": 1}
TURNS: dict[str, Value] = {"schedule": "pingpong", "block_n": 128, "stages": 5}
TILE: dict[str, Value] = {"block_m": 32, "block_n": 64}
WHOLE: dict[str, Case] = {
    "finished, overlapped and divided": (
        "linear", "wgmma", FINISHED | {"layout": "nt"}, (264, 264, 264),
        {**OVERLAPPED, "stream_k": True, "block_m": 128, "block_n": 208, "stages": 4},
    ),
    "finished in turn, swapped": (
        "linear", "wgmma", FINISHED, (208, 520, 200), {**SERIAL, **TURNS, "swap_ab": True, "block_m": 160},
    ),
    "finished, few rows, float32": (
        "linear", "wgmma_skinny_m", FINISHED | {"output": "float32"}, (20, 136, 200),
        {"block_m": 24, "block_n": 64, "block_k": 64, "stages": 3, "cluster_k": 2},
    ),
    "finished, both divide k": (
        "linear", "wgmma_split_k", FINISHED | {"layout": "tn"}, (104, 136, 456),
        {**SMALL, "split_k": 2, "cluster_k": 2},
    ),
    "finished from registers": (
        "linear", "register_tiled", FINISHED | {"layout": "nt"}, (35, 61, 19), {**TILE, "thread_m": 4, "block_k": 8},
    ),
    "finished, k divided": (
        "linear", "split_k", FINISHED | {"layout": "tn"}, (35, 61, 40), {**TILE, "thread_n": 8, "block_k": 8},
    ),
    "finished by mma_sync": (
        "linear", "mma_sync", FINISHED | {"input": "float16"}, (35, 72, 40),
        {**TILE, "block_k": 32, "warps_m": 1, "warps_n": 2},
    ),
    "finished by a cluster, float32": (
        "linear", "mma_sync_cluster_k", FINISHED | {"layout": "nt", "input": "float16", "output": "float32"},
        (35, 69, 141), {"block_m": 32, "warps_m": 1, "vector_width": 1, "cluster_k": 2},
    ),
    "finished, a column": (
        "linear", "gemv_dots_swap_ab", FINISHED, (40, 3, 72), {"block_n": 3, "vector_width": 4},
    ),
    # Each product of a batch reads its own matrices, and nothing of the next.
    "a batch, persistent": (
        "bmm", "wgmma", BATCH, (3, 128, 200, 104), {**PERSISTENT, "cluster_m": 2, "c_evict_first": True},
    ),
    "a batch of one A, a tile a block": (
        "bmm", "wgmma_split_k", {"layout": "tt", "broadcast": "a"}, (3, 64, 136, 192), {**SMALL, "cluster_n": 2},
    ),
    "a finished batch": ("baddbmm", "wgmma", BATCH | {"op": EXACT}, (3, 128, 200, 104), {**PERSISTENT, "cluster_m": 2}),
    "a finished batch from registers": (
        "baddbmm", "register_tiled", BATCH | {"op": EXACT}, (3, 35, 61, 19), {**TILE, "thread_m": 4, "block_k": 8},
    ),
    # Every tile finds its group, and ends where that does; empty groups have none.
    "groups taking turns": (
        "grouped", "wgmma", {"layout": "nt"}, (5, 500, 200, 104), {**TURNS, "block_m": 128, "block_k": 64},
    ),
    "groups in pairs": ("grouped", "wgmma", {"layout": "nn"}, (20, 300, 136, 192), {**PERSISTENT, "cluster_m": 2}),
    "groups by mma_sync": (
        "grouped", "mma_sync", {"layout": "nn", "input": "bfloat16"}, (5, 100, 72, 40), {**TILE, "block_k": 32},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", [*HOPPERS, *OTHERS, *WHOLE])
def test_every_element_is_right_and_nothing_beside(case: str, tmp_path: Path) -> None:
    name, variant, given, sizes, values = {**HOPPERS, **OTHERS, **WHOLE}[case]
    kernel, on_hopper = load_kernel(name), variant.startswith("wgmma")
    dtypes = {"": given.get("input", "bfloat16" if on_hopper else "float32")} if name != "scaled_mm" else {}
    dtypes |= {role: given[role] for role in given.keys() & {"output"}}
    options = {option: given[option] for option in kernel.options if option in given}
    of = kernel.problem(dict(zip(kernel.sizes, sizes, strict=True)), dtypes, options)
    configuration = Configuration.of(variant, {**kernel.variants[variant].defaults, **values})
    pitch = 0 if case in WHOLE else round_up(of.sizes["n"], 8) + 24
    if on_hopper:
        alone = HOPPER if "cluster_k" in configuration.values else replace(HOPPER, sm_count=4)
        gpu = few_sms(of, configuration) if "prefetch" in configuration.values else alone
        assert np.array_equal(*Emulated(of, configuration, gpu, tmp_path, pitch).run(ORDER))
        return
    pitches = {"c": of.sizes["n"] if case == "only a residual" else pitch, "residual": pitch} if pitch else {}
    assert np.array_equal(
        *product_of(kernel, of, replace(HOPPER, sm_count=3), configuration, tmp_path, pitches)
    )
