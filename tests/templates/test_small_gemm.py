"""gemm of few columns or a small k: compiled for every architecture, and run on the host in several orders."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.on_host import HostConfiguration, product_at
from tuner.children.nvrtc import compile_source
from tuner.core.model import Configuration, Problem
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import Schedule
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace

GEMM = load_kernel("gemm")
LAYOUTS = {
    "gemv_columns_swap_ab": ("tn", "tt"),
    "gemv_dots_swap_ab": ("nn", "nt"),
    "small_k": ("nn", "nt", "tn", "tt"),
}
FEW_COLUMNS = {name for name in LAYOUTS if name != "small_k"}
DTYPES = ("float16", "bfloat16", "float32")
ORDERS = (Schedule(1), Schedule(3, resident=2, shuffled=True))
needs_gpp = pytest.mark.skipif(COMPILER is None, reason="no g++")


def problem(dtype: str, layout: str, m: int, n: int, k: int) -> Problem:
    return GEMM.problem({"m": m, "n": n, "k": k}, {"": dtype}, {"layout": layout})


@pytest.mark.parametrize(
    ("name", "dtype", "layout", "cc"),
    [
        ("gemv_columns_swap_ab", "float16", "tn", 90),
        ("gemv_dots_swap_ab", "bfloat16", "nt", 120),
        ("small_k", "float16", "nn", 75),
        ("small_k", "float32", "tt", 90),
        ("small_k", "bfloat16", "tn", 90),
    ],
)
def test_the_default_compiles_without_spills_and_waits_for_the_launch_before(
    name: str, dtype: str, layout: str, cc: int
) -> None:
    """What is taken for constant (ld.global.nc) may be read before the wait, which orders all other reads."""
    gpu = ARCHITECTURES[cc]
    of = problem(dtype, layout, 4096, *((3, 4096) if name in FEW_COLUMNS else (4097, 25)))
    configuration = SearchSpace.from_kernel(GEMM, of, gpu, [name]).default
    [(source, entry)] = render(GEMM, of, gpu, configuration)
    result = compile_source(source, entry, gpu.arch, listing=True)
    assert "warning" not in result.log, result.log
    assert result.resources.spill_bytes == 0
    [launch] = make_plan(GEMM, of, gpu, configuration).launches
    assert launch.programmatic == (cc >= 90)
    assert result.resources.registers * launch.threads <= gpu.registers_per_sm
    if launch.programmatic:
        before, wait, behind = result.ptx.partition("griddepcontrol.wait")
        assert wait and "ld.global" in behind
        assert "ld.global" not in before and "ld.global.nc" not in behind


def test_each_is_for_its_problems_only() -> None:
    for layout in ("nn", "nt", "tn", "tt"):
        for n, k in ((1, 64), (8, 33), (9, 32), (8, 1), (64, 64)):
            of = problem("float32", layout, 64, n, k)
            names = {variant.name for variant in GEMM.usable_variants(of, ARCHITECTURES[75])[0]}
            few = {name for name in FEW_COLUMNS if layout in LAYOUTS[name] and n <= 8}
            assert names & set(LAYOUTS) == few | ({"small_k"} if k <= 32 else set())


# -- on the host


def on_host(
    folder: Path, name: str, dtype: str, layout: str, parameters: Mapping[str, Any]
) -> HostConfiguration:
    gpu = dataclasses.replace(ARCHITECTURES[90], sm_count=3)
    configuration = Configuration.of(name, {**GEMM.variants[name].defaults, **parameters})
    n = int(parameters.get("block_n", 9))
    return HostConfiguration(GEMM, problem(dtype, layout, 64, n, 8), gpu, configuration, folder)


COLUMNS, DOTS, SMALL_K = LAYOUTS
CUDA_CORES = {"tensor_cores": False}
CASES = [
    (COLUMNS, "float16", "tn", {"vector_width": 2, "lanes_m": 16, "unroll": 16, "split_k": 1}, [(18, 1, 693)]),
    (COLUMNS, "float32", "tn", {"block_n": 8, "vector_width": 1, "warps": 4, "split_k": 2}, [(41, 8, 131), (1, 8, 7)]),
    (DOTS, "float16", "nn", {"block_n": 3, "vector_width": 8, "unroll": 2}, [(50, 3, 1304), (3, 3, 8)]),
    (DOTS, "bfloat16", "nn", {"block_n": 4, "vector_width": 2, "rows": 2, "split_k": 2}, [(17, 4, 514)]),
    (DOTS, "float32", "nt", {"block_n": 5, "vector_width": 2, "warps_k": 2, "unroll": 2}, [(17, 5, 518), (4, 5, 2)]),
    (SMALL_K, "float16", "tn", {}, [(19, 731, 1), (1, 1, 1), (8, 264, 2), (131, 33, 32)]),
    (SMALL_K, "float16", "nt", {"warps": 16, "rows": 4}, [(33, 257, 25), (67, 7, 32)]),
    (SMALL_K, "bfloat16", "nn", {"vectors": 2, "loads": 2}, [(129, 255, 16), (17, 9, 3), (5, 67, 31)]),
]  # fmt: skip


@needs_gpp
@pytest.mark.parametrize(("name", "dtype", "layout", "parameters", "shapes"), CASES)
def test_every_element_is_right_and_nothing_beside(
    name: str,
    dtype: str,
    layout: str,
    parameters: dict[str, Any],
    shapes: list[tuple[int, int, int]],
    tmp_path: Path,
) -> None:
    host = on_host(tmp_path, name, dtype, layout, parameters)
    for shape in shapes:
        sizes = dict(zip("mnk", shape, strict=True))
        memory = host.scratch(sizes)
        for schedule in ORDERS:  # the same scratch: a run leaves it usable
            assert np.array_equal(*product_at(host, sizes, schedule, memory)), shape
