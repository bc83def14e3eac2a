"""gemm on Hopper with a tile for each cluster: few rows, small products, deep k. What can be known without a GPU."""

from __future__ import annotations

import random
import re

import pytest

from tuner.children.nvrtc import compile_source
from tuner.core.model import Configuration, Problem
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.runtime.launches import Launch

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]
VARIANTS = ("wgmma_split_k", "wgmma_skinny_m")
LAYOUTS = ("nn", "nt", "tn", "tt")
SAMPLES = 10


def problem(layout: str = "nn", dtype: str = "bfloat16", **sizes: int) -> Problem:
    return GEMM.problem({"m": 100, "n": 1048, "k": 4104, **sizes}, {"": dtype}, {"layout": layout})


def drawn(name: str, of: Problem, count: int = SAMPLES) -> list[Configuration]:
    [space] = SearchSpace.from_kernel(GEMM, of, HOPPER, [name]).variants
    rows = random.Random(f"{name} {of}").sample(range(len(space)), count)
    return [space.configuration(row) for row in rows]


def launch_of(of: Problem, configuration: Configuration) -> Launch:
    [launch] = make_plan(GEMM, of, HOPPER, configuration).launches
    return launch


@pytest.mark.parametrize(
    ("name", "dtype", "layout"), [("wgmma_split_k", "bfloat16", "nn"), ("wgmma_skinny_m", "float16", "tt")]
)
def test_compiles_without_spills_pauses_or_fences_of_the_gpu(name: str, layout: str, dtype: str) -> None:
    """An arrival with a cluster-wide release would wait for all memory traffic of the block: microseconds."""
    of = problem(layout, dtype, m=104)
    for configuration in drawn(name, of, 1):
        [(source, entry)] = render(GEMM, of, HOPPER, configuration)
        result = compile_source(source, entry, HOPPER.arch, listing=True)
        assert result.resources.spill_bytes == result.resources.stack_bytes == 0, configuration
        assert not re.search(r"C75\d\d", result.log), result.log  # instructions that wait for each other
        assert "wgmma.mma_async" in result.ptx
        assert not re.search(r"arrive\.release\.cluster|cluster\.arrive\.(?:release|aligned)", result.ptx)


def test_parts_that_exchange_sums_multiply_without_a_pause() -> None:
    """Sums that leave while the matrix unit works on others must not make the compiler wait for it every time."""
    of = problem(m=512, n=512, k=65536)
    space = SearchSpace.from_kernel(GEMM, of, HOPPER, ["wgmma_split_k"])
    parts = [one for one in space.configurations() if int(one.values["split_k"]) > 1]
    for configuration in random.Random(0).sample(parts, 1):
        [(source, entry)] = render(GEMM, of, HOPPER, configuration)
        result = compile_source(source, entry, HOPPER.arch)
        assert result.resources.spill_bytes == 0, configuration
        assert not re.search(r"C75\d\d", result.log), configuration


def test_few_rows_take_the_narrow_side_of_the_instruction() -> None:
    for configuration in drawn("wgmma_skinny_m", problem(m=3), 1):
        assert configuration.values["block_m"] == 8
        [(source, entry)] = render(GEMM, problem(m=3), HOPPER, configuration)
        ptx = compile_source(source, entry, HOPPER.arch, listing=True).ptx
        assert "wgmma.mma_async.sync.aligned.m64n8k16" in ptx


@pytest.mark.parametrize(
    ("layout", "n", "k", "usable"),
    [
        ("nn", 1048, 4100, False),
        ("nt", 1044, 4104, False),
        ("tn", 1048, 4101, True),
        ("tt", 1048, 4101, False),
    ],
)
def test_rows_in_memory_are_whole_16_bytes(layout: str, n: int, k: int, usable: bool) -> None:
    """Of A, B and C; k itself may be odd where no row runs along it."""
    names = {variant.name for variant in GEMM.usable_variants(problem(layout, m=104, n=n, k=k), HOPPER)[0]}
    assert (set(VARIANTS) <= names) == usable
    assert usable or not set(VARIANTS) & names


def test_small_products_have_configurations_that_fill_the_gpu() -> None:
    for size in (512, 1024):
        grids = {
            launch_of(problem(m=size, n=size, k=size), configuration).grid[0]
            for name in VARIANTS
            for configuration in drawn(name, problem(m=size, n=size, k=size), 200)
        }
        assert any(100 <= grid <= HOPPER.sm_count for grid in grids)
