"""The templates of kernels that move elements or add them up along an axis, compiled and run without a GPU."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.on_host import HostConfiguration
from tests.templates.machine_code import STG, gpu, moves
from tests.templates.sources import compiled
from tuner.core.model import Configuration, Value
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, Schedule
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan, tensors_of
from tuner.kernel.reference import numpy_of
from tuner.runtime.dtypes import ITEMSIZE


@pytest.mark.parametrize(("dtype", "cc"), [("bfloat16", 75), ("int8", 90)])
def test_patches_are_turned_in_registers(dtype: str, cc: int) -> None:
    """With 16-byte loads and stores on both sides, nothing spills, and no element is stored by itself."""
    kernel, device, width = load_kernel("transpose"), gpu(cc), 16 // ITEMSIZE[dtype]
    tile = {
        "block_size": 64, "tile_rows": 128, "tile_columns": 128, "load_width": width, "store_width": width
    }  # fmt: skip
    chosen = Configuration.of("tiled", {**kernel.variants["tiled"].defaults, **tile})
    problem = kernel.problem(dict.fromkeys(kernel.sizes, 272), {"": dtype})
    [cubin] = compiled(kernel, chosen, problem, device)
    assert cubin.resources.spill_bytes == cubin.resources.stack_bytes == 0
    assert set(moves(cubin.cubin, STG)) == {16}


TILE = {"block_size": 64, "tile_rows": 32, "tile_columns": 64, "load_width": 4, "store_width": 2}
RUN: list[tuple[str, str, str, dict[str, Value], dict[str, Value], tuple[int, ...]]] = [
    ("transpose", "bfloat16", "tiled", {**TILE, "blocks_per_sm": 2}, {}, (3, 70, 132)),
    ("permute", "float32", "tiled", {**TILE, "blocks_per_sm": 1, "joined": True}, {"axes": "cba"}, (37, 2, 68)),
    ("transpose", "int8", "tiled",
     {**TILE, "tile_rows": 64, "load_width": 1, "store_width": 1, "ends_at": 32, "order": "along_columns"}, {},
     (2, 71, 133)),
    ("permute", "bfloat16", "tiled",
     {**TILE, "tile_rows": 64, "load_width": 2, "store_width": 4, "ends_at": 32, "joined": True}, {"axes": "cba"},
     (37, 4, 66)),
    ("transpose", "bfloat16", "registers", {"load_width": 8, "store_width": 2}, {}, (3, 70, 136)),
    ("permute", "float32", "rows", {"block_size": 64, "order": "input"}, {"axes": "bac"}, (7, 5, 36)),
    ("permute", "bfloat16", "gathered", {"block_size": 64, "vector_width": 8}, {"axes": "bac"}, (7, 5, 37)),
    ("rope", "float32", "heads", {"pairs_per_thread": 2}, {"style": "interleaved", "angles": "computed"},
     (7, 3, 2, 12)),
    ("reduce_axis", "float32", "column_cluster", {"parts": 4, "lanes": 8}, {"over": "rows"}, (150, 68)),
    ("reduce_axis", "bfloat16", "column_cluster",
     {"parts": 16, "lanes": 8, "vector_width": 8, "row_starts": "anywhere"}, {"over": "rows", "op": "argmin"},
     (150, 133)),
    *(
        (
            "reduce_axis", dtype, "columns", {"lanes": 8, "row_starts": "anywhere", **changed},
            {"over": "rows", **options}, sizes,
        )
        for dtype, changed, options, sizes in (
            ("bfloat16", {"parts": 4, "vector_width": 8}, {"op": "max"}, (150, 67)),
            ("float16", {"parts": 1, "vector_width": 8}, {"op": "argmin"}, (33, 133)),
            ("float32", {"parts": 2, "block_size": 128}, {"op": "sum", "before": "x * y"}, (65, 130)),
            ("bfloat16", {"parts": 1, "vector_width": 8}, {"op": "max"}, (1, 5)),
        )
    ),
    ("reduce_axis", "float32", "cluster", {"cluster_size": 2, "threads_per_row": 128}, {"op": "argmax"}, (3, 16384)),
]  # fmt: skip
"""Kernels, dtypes and variants; parameters and options beside the defaults; sizes that no tile divides."""


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(("name", "dtype", "variant", "changed", "options", "sizes"), RUN)
def test_results_where_no_tile_fits(
    name: str,
    dtype: str,
    variant: str,
    changed: Mapping[str, Value],
    options: dict[str, Value],
    sizes: tuple[int, ...],
    tmp_path: Path,
) -> None:
    kernel, device, rng = load_kernel(name), dataclasses.replace(gpu(), sm_count=2), np.random.default_rng(0)
    extents = dict(zip(kernel.sizes, sizes, strict=True))
    problem = kernel.problem(extents, {"": dtype}, options)
    chosen = Configuration.of(variant, {**kernel.variants[variant].defaults, **changed})
    host = HostConfiguration(kernel, problem, device, chosen, tmp_path)
    memory, inputs = host.scratch(extents), {}
    for tensor in tensors_of(kernel, problem, device):
        memory[tensor.name] = HostArray(math.prod(tensor.shape), tensor.dtype, 16)
        if tensor.role == "input":
            memory[tensor.name].fill(rng.integers(0, 100, math.prod(tensor.shape)).astype(np.float32))
            inputs[tensor.name] = memory[tensor.name].numbers.astype(float).reshape(tensor.shape)
    clusters = 16 if variant == "column_cluster" else 1  # whose blocks must all be resident
    host.run(extents, memory, Schedule(seed=1, resident=3 * clusters))
    for output, reference in numpy_of(kernel, problem).items():
        expected = reference.evaluate({**extents, **inputs})[0]
        np.testing.assert_allclose(memory[output].numbers, expected.reshape(-1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("order", ["along_rows", "along_columns"])
def test_a_grid_of_tiles_reaches_all_matrices_within_its_limits(order: str) -> None:
    kernel, device = load_kernel("transpose"), gpu(90)
    problem = kernel.problem({"batch": 300_001, "rows": 65, "columns": 130}, {"": "float32"})
    chosen = Configuration.of(
        "tiled", {**kernel.variants["tiled"].defaults, "load_width": 2, "store_width": 1, "order": order}
    )
    [launch] = make_plan(kernel, problem, device, chosen).launches
    along, rows, parts = launch.grid
    assert along == (3 if order == "along_rows" else 2)
    assert max(rows, parts) < 2**16
    assert 0 <= along * rows * parts - 300_001 * 6 < along * parts


@pytest.mark.parametrize("over", ["columns", "rows"])
def test_places_are_those_of_what_is_not_rounded(over: str) -> None:
    kernel = load_kernel("reduce_axis")
    for op, before, refused in (
        ("argmax", "abs( x )", False), ("argmin", "relu(x)", False), ("argmax", "x * y", True),
        ("argmin", "x + 1", True), ("max", "x * y", False),
    ):  # fmt: skip
        problem = kernel.problem(options={"op": op, "over": over, "before": before})
        usable, _ = kernel.usable_variants(problem, gpu())
        assert bool(usable) != refused, (op, before)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_the_place_of_a_maximum_is_that_of_the_first_nan_or_of_the_first_of_equal_ones(
    tmp_path: Path,
) -> None:
    kernel = load_kernel("reduce_axis")
    problem = kernel.problem(None, {"": "float32"}, {"op": "argmax"})
    given = {"threads_per_row": 8, "rows_per_block": 4, "vector_width": 2, "items_per_thread": 2}
    chosen = Configuration.of("rows", {**kernel.variants["rows"].defaults, **given})
    host = HostConfiguration(kernel, problem, gpu(), chosen, tmp_path)
    rows = np.random.default_rng(0).standard_normal((7, 70)).astype(np.float32)
    rows[0] = -3.5
    rows[1] = -np.inf
    rows[2, [9, 60]] = np.nan
    rows[3, [31, 32]] = np.inf
    rows[4] = -1.0
    rows[4, [40, 50]] = -0.0, 0.0
    rows[5, [3, 68]] = -np.nan, np.inf
    x, index = HostArray(rows.size, "float32", 16), HostArray(7, "int64", 16)
    x.fill(rows.ravel())
    host.run({"rows": 7, "columns": 70}, {"x": x, "index": index}, Schedule(seed=1, resident=3))
    np.testing.assert_array_equal(index.numbers, np.argmax(rows, axis=1))
