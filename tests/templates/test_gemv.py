"""gemm of one to eight rows: compiled for every architecture, and run on the host in several orders, without a GPU."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.on_host import HostConfiguration, product_at
from tuner.children.nvrtc import compile_source
from tuner.core.model import Configuration, Problem
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, Schedule
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace

GEMM = load_kernel("gemm")
LAYOUTS = {"gemv_columns": ("nn", "tn"), "gemv_dots": ("nt", "tt")}
DTYPES = ("float16", "bfloat16", "float32")
needs_gpp = pytest.mark.skipif(COMPILER is None, reason="no g++")


def problem(name: str, dtype: str, a_transposed: bool = False, **sizes: int) -> Problem:
    layout = LAYOUTS[name][a_transposed]
    return GEMM.problem({"m": 1, "n": 4096, "k": 4096, **sizes}, {"": dtype}, {"layout": layout})


@pytest.mark.parametrize(
    ("name", "dtype", "cc"),
    [("gemv_columns", "float16", 75), ("gemv_dots", "bfloat16", 80), ("gemv_dots", "float16", 120)],
)
def test_compiles_everywhere_and_the_default_of_rows_of_a_without_spills(
    name: str, dtype: str, cc: int
) -> None:
    gpu, rng = ARCHITECTURES[cc], random.Random(f"{name} {cc}")
    m, a_transposed = rng.choice((1, 3, 8)), cc in (75, 90, 120)
    of = problem(name, dtype, a_transposed, m=m)
    space = SearchSpace.from_kernel(GEMM, of, gpu, [name])
    [variant] = space.variants
    drawn = variant.configuration(rng.randrange(len(variant)))
    for configuration in (space.default, drawn) if cc in (75, 80) else (space.default,):
        [(source, entry)] = render(GEMM, of, gpu, configuration)
        result = compile_source(source, entry, gpu.arch)
        assert "warning" not in result.log, result.log
        few = 64 if a_transposed or configuration != space.default else 0
        assert result.resources.spill_bytes <= few, configuration
        [launch] = make_plan(GEMM, of, gpu, configuration).launches
        assert result.resources.registers * launch.threads <= gpu.registers_per_sm


def test_only_for_few_rows_and_each_for_its_layouts() -> None:
    for layout in ("nn", "nt", "tn", "tt"):
        for m in (1, 8, 9):
            of = GEMM.problem({"m": m, "n": 64, "k": 64}, {"": "float32"}, {"layout": layout})
            names = {variant.name for variant in GEMM.usable_variants(of, ARCHITECTURES[75])[0]}
            assert names & set(LAYOUTS) == {n for n, own in LAYOUTS.items() if layout in own and m <= 8}


# -- on the host


def on_host(
    folder: Path, name: str, dtype: str, parameters: Mapping[str, Any], a_transposed: bool = False
) -> HostConfiguration:
    gpu = dataclasses.replace(ARCHITECTURES[75], sm_count=3)
    configuration = Configuration.of(name, {**GEMM.variants[name].defaults, **parameters})
    return HostConfiguration(GEMM, problem(name, dtype, a_transposed), gpu, configuration, folder)


CASES = [
    ("gemv_columns", "float16", {"vector_width": 8, "warps": 4}, [(1, 200, 300), (1, 8, 1), (1, 72, 97)]),
    ("gemv_columns", "bfloat16",
     {"block_m": 4, "vector_width": 4, "lanes_n": 16, "unroll": 4, "warps": 4, "split_k": 4},
     [(3, 68, 257), (4, 64, 1024), (3, 132, 3)]),
    ("gemv_columns", "float32",
     {"block_m": 8, "vector_width": 1, "lanes_n": 32, "unroll": 16, "warps": 8, "split_k": 2},
     [(7, 41, 131), (8, 1, 77)]),
    ("gemv_dots", "float32",
     {"block_m": 4, "vector_width": 2, "warps": 8, "warps_k": 4, "columns": 2, "unroll": 2, "split_k": 2},
     [(3, 17, 1030), (4, 4, 2)]),
    ("gemv_dots", "bfloat16",
     {"block_m": 8, "vector_width": 1, "warps": 2, "warps_k": 2, "columns": 1, "unroll": 8, "split_k": 4},
     [(5, 7, 333), (8, 1, 1)]),
]  # fmt: skip


@needs_gpp
@pytest.mark.parametrize(
    ("name", "dtype", "parameters", "shapes", "a_transposed"),
    [(*case, bool(turn % 2)) for turn, case in enumerate(CASES)],
)
def test_is_exact_where_sums_are(
    name: str,
    dtype: str,
    parameters: dict[str, Any],
    shapes: list[tuple[int, int, int]],
    a_transposed: bool,
    tmp_path: Path,
) -> None:
    host = on_host(tmp_path, name, dtype, parameters, a_transposed=a_transposed)
    for shape in shapes:
        sizes = dict(zip("mnk", shape, strict=True))
        memory = host.scratch(sizes)
        for schedule in (Schedule(1), Schedule(2, shuffled=True), Schedule(3, resident=2, shuffled=True)):
            # The same scratch: a run leaves it usable.
            np.testing.assert_array_equal(*product_at(host, sizes, schedule, memory))


@needs_gpp
def test_gives_the_same_bits_in_any_order(tmp_path: Path) -> None:
    host = on_host(tmp_path, "gemv_columns", "float32", {"vector_width": 4, "warps": 4, "split_k": 8})
    rng, sizes = np.random.default_rng(1), {"m": 1, "n": 68, "k": 600}
    numbers = {"a": rng.normal(size=(1, 600)), "b": rng.normal(size=(600, 68))}
    memory = {name: HostArray(one.size, "float32", 16) for name, one in numbers.items()}
    for name, one in numbers.items():
        memory[name].fill(one.ravel())
    found = []
    for seed in range(4):
        c = HostArray(68, "float32", 16)
        host.run(sizes, {**host.scratch(sizes), **memory, "c": c}, Schedule(seed, shuffled=True))
        found.append(c.numbers)
    np.testing.assert_allclose(found[0], (numbers["a"] @ numbers["b"])[0], rtol=1e-3, atol=1e-4)
    assert all((other == found[0]).all() for other in found)
