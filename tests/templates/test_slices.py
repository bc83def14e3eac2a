"""Products into slices of larger matrices, on the CPU: every way to C finds its rows and leaves what is beside them."""

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
        "gemm", "wgmma", {"layout": "nn"}, (336, 1160, 264),
        {**OVERLAPPED, "stream_k": True, "block_m": 128, "block_n": 256, "stages": 3},
    ),
    "through shared memory": (
        "gemm", "wgmma", {"layout": "nt"}, (336, 1160, 264),
        {**OVERLAPPED, "swap_ab": True, "block_n": 128, "block_m": 208, "stages": 4, "cluster_n": 2},
    ),
    "by the threads": (
        "gemm", "wgmma_padded", {"layout": "nt"}, (333, 710, 259),
        {**SERIAL, "swap_ab": True, "block_n": 128, "block_m": 96, "stages": 5, "c_vector_width": 2},
    ),
    "vectors by the threads": (
        "gemm", "wgmma_padded", {"layout": "nn"}, (333, 712, 259),
        {**SERIAL, "stream_k": True, "block_m": 128, "block_n": 176, "stages": 4, "c_vector_width": 8},
    ),
    "k divided": ("gemm", "wgmma_split_k", {"layout": "nt"}, (104, 136, 456), {**SMALL, "split_k": 2, "cluster_k": 2}),
    "a batch": (
        "bmm", "wgmma", {"layout": "nt"}, (3, 128, 200, 104),
        {"block_m": 64, "block_n": 128, "block_k": 64, "stages": 4, "consumers": 1, "cluster_m": 2},
    ),
    "with a residual": (
        "linear", "wgmma", {"layout": "nn", "op": "x - residual"}, (336, 712, 200),
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
        "scaled_mm", "wgmma", SCALES, (330, 136, 272),
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


@pytest.mark.parametrize("case", [*HOPPERS, *OTHERS])
def test_only_the_slice_is_written(case: str, tmp_path: Path) -> None:
    name, variant, given, sizes, values = {**HOPPERS, **OTHERS}[case]
    kernel = load_kernel(name)
    dtype = given.get("input", "bfloat16" if case in HOPPERS else "float32")
    dtypes = {"": dtype} if name != "scaled_mm" else {}
    dtypes |= {role: given[role] for role in given.keys() & {"output"}}
    options = {option: given[option] for option in kernel.options if option in given}
    of = kernel.problem(dict(zip(kernel.sizes, sizes, strict=True)), dtypes, options)
    configuration = Configuration.of(variant, {**kernel.variants[variant].defaults, **values})
    pitch = round_up(of.sizes["n"], 8) + 24
    if case in HOPPERS:
        alone = HOPPER if "cluster_k" in configuration.values else replace(HOPPER, sm_count=4)
        gpu = few_sms(of, configuration) if "prefetch" in configuration.values else alone
        assert np.array_equal(*Emulated(of, configuration, gpu, tmp_path, pitch).run(ORDER))
        return
    apart = of.sizes["n"] if case == "only a residual" else pitch
    pitches = {"c": apart, "residual": pitch}
    assert np.array_equal(
        *product_of(kernel, of, replace(HOPPER, sm_count=3), configuration, tmp_path, pitches)
    )
