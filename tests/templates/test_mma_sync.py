"""The tensor cores of every card: right on the host at edge-case sizes, and free of spills at the tiles that count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.on_host import HostConfiguration, worst_error
from tests.templates.sources import ptx, widest_load
from tuner.children.nvrtc import compile_source
from tuner.core.model import Configuration, Problem
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, Schedule
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import invalid_reason
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES

GEMM = load_kernel("gemm")


def problem(
    dtype: str = "float16", layout: str = "nn", m: int = 4096, n: int = 4096, k: int = 4096
) -> Problem:
    return GEMM.problem({"m": m, "n": n, "k": k}, {"": dtype}, {"layout": layout})


def configuration(variant: str, of: Problem, cc: int, **parameters: Any) -> Configuration:
    """Return the defaults with these parameters, which must be valid."""
    chosen = Configuration.of(variant, {**GEMM.variants[variant].defaults, **parameters})
    names = {**GEMM.environment(of, ARCHITECTURES[cc]), **chosen.values}
    for reason, condition in GEMM.variants[variant].constraints_before:
        assert condition.evaluate(names), reason
    return chosen


# -- right, on the host

SMALL = {"block_m": 32, "block_n": 64, "block_k": 32, "warps_m": 2, "warps_n": 1, "stages": 2}
WIDE = {"block_m": 64, "block_n": 128, "block_k": 64, "warps_m": 1, "warps_n": 2, "stages": 3}
FLAT = {"block_m": 16, "block_n": 32, "block_k": 64, "warps_m": 1, "warps_n": 2, "stages": 4}
TALL = {"block_m": 256, "block_n": 32, "block_k": 32, "warps_m": 2, "warps_n": 1, "stages": 2}
SQUARE = SMALL | {"block_m": 64}
DEEP = SMALL | {"block_k": 128, "warps_n": 2}
PAIRS, SINGLY = {"vector_width": 2}, {"vector_width": 1}
CASES = [
    # Rows of whole chunks of 16 bytes: of A, B and C, or of all but C.
    ("mma_sync", "float16", "nn", 80, SMALL, [(40, 72, 104), (31, 64, 8), (1, 8, 136)]),
    ("mma_sync", "bfloat16", "nt", 89, SMALL, [(40, 72, 104), (33, 40, 32), (40, 66, 104), (33, 2, 32), (31, 65, 40)]),
    ("mma_sync", "float16", "nn", 75, SMALL, [(40, 72, 104), (7, 8, 16)]),
    ("mma_sync", "float16", "tn", 80, SMALL, [(40, 72, 103), (8, 64, 8), (136, 8, 1)]),
    ("mma_sync", "float16", "tn", 86, TALL, [(264, 40, 100), (8, 72, 33)]),
    ("mma_sync", "float16", "tt", 80, WIDE, [(72, 131, 264), (8, 7, 72)]),
    # Of pairs of elements, or of single ones.
    ("mma_sync", "float16", "nn", 80, SMALL | PAIRS, [(33, 68, 100), (31, 66, 70), (2, 2, 2)]),
    ("mma_sync", "float16", "nn", 89, SMALL | SINGLY, [(33, 67, 71), (3, 5, 7), (1, 1, 1), (40, 72, 104)]),
    ("mma_sync", "bfloat16", "tt", 80, FLAT | SINGLY, [(15, 33, 129)]),
    ("mma_sync_padded", "bfloat16", "nn", 80, SQUARE, [(33, 67, 71), (40, 72, 100), (40, 70, 104)]),
    ("mma_sync_padded", "float16", "nt", 86, SQUARE, [(35, 66, 67)]),
    ("mma_sync_split_k", "float16", "nn", 80, SMALL | {"split_k": 3}, [(40, 72, 200), (8, 8, 72)]),
    ("mma_sync_split_k", "float16", "nt", 75, SMALL | {"split_k": 2}, [(40, 72, 104)]),
    ("mma_sync_cluster_k", "float16", "tn", 90, DEEP | PAIRS | {"cluster_k": 2}, [(42, 72, 201), (2, 2, 33)]),
    ("mma_sync_cluster_k", "float16", "tt", 90, DEEP | SINGLY | {"cluster_k": 4}, [(33, 63, 517), (1, 1, 35)]),
]  # fmt: skip


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(("variant", "dtype", "layout", "cc", "parameters", "sizes"), CASES)
def test_right_on_the_host(
    tmp_path: Path, variant: str, dtype: str, layout: str, cc: int, parameters: dict[str, int],
    sizes: list[tuple[int, int, int]],
) -> None:  # fmt: skip
    of = problem(dtype, layout, *sizes[0])
    chosen = configuration(variant, of, cc, **parameters)
    host = HostConfiguration(GEMM, of, ARCHITECTURES[cc], chosen, tmp_path)
    for seed, (m, n, k) in enumerate(sizes):
        assert not invalid_reason(GEMM, problem(dtype, layout, m, n, k), ARCHITECTURES[cc], chosen)
        assert worst_error(host, {"m": m, "n": n, "k": k}, Schedule(seed)) <= 1, (m, n, k)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_parts_of_k_are_added_in_the_same_order_whichever_comes_first(tmp_path: Path) -> None:
    of = problem("bfloat16", "nn", 33, 35, 257)
    chosen = configuration("mma_sync_cluster_k", of, 90, **SMALL | SINGLY, cluster_k=8)
    host = HostConfiguration(GEMM, of, ARCHITECTURES[90], chosen, tmp_path)
    memory = {name: HostArray(size, "bfloat16", 16) for name, size in [("a", 33 * 257), ("b", 257 * 35)]}
    for x in memory.values():
        x.fill(np.random.default_rng(1).standard_normal(len(x.elements)))
    results = []
    for seed in range(3):
        memory["c"] = HostArray(33 * 35, "bfloat16", 16)
        host.run(of.sizes, memory, Schedule(seed, shuffled=True))
        results.append(memory["c"].elements.copy())
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])


# -- what compiles


def test_no_spills_at_the_tile_that_counts() -> None:
    """CUTLASS, Triton and cuBLAS take it for large products; tests of gemm compile the defaults."""
    of, device = problem("bfloat16"), ARCHITECTURES[80]
    large = {"block_m": 128, "block_n": 256, "block_k": 64, "stages": 3, "warps_m": 2, "warps_n": 4}
    ((source, entry),) = render(GEMM, of, device, configuration("mma_sync", of, 80, **large))
    resources = compile_source(source, entry, device.arch).resources
    assert resources.spill_bytes == resources.stack_bytes == 0


@pytest.mark.parametrize(("vector_width", "cc"), [(8, 90), (1, 90)])
def test_odd_rows_come_by_16_bytes_after_the_wait_for_the_launch_before(vector_width: int, cc: int) -> None:
    of = problem("bfloat16", "tt", 64, 64, 4096)
    shape = {"block_m": 32, "block_n": 32, "block_k": 128, "cluster_k": 8, "vector_width": vector_width}
    chosen = configuration("mma_sync_cluster_k", of, cc, **shape)
    ((source, entry),) = render(GEMM, of, ARCHITECTURES[cc], chosen)
    result = compile_source(source, entry, ARCHITECTURES[cc].arch)
    assert "warning" not in result.log, result.log
    assert result.resources.spill_bytes == 0
    before, wait, behind = ptx(source, entry, cc).partition("griddepcontrol.wait")
    assert wait and "ld.global" not in before and "cp.async" not in before and "ld.global.nc" not in behind
    if vector_width == 1:
        assert widest_load(behind) == 16 and "cp.async" not in behind
    else:
        assert "cp.async" in behind and "ld.global" not in behind
