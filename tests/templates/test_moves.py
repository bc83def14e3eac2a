"""The templates of kernels that only move elements, compiled without a GPU."""

from __future__ import annotations

import pytest

from tests.templates.machine_code import STG, gpu, moves
from tests.templates.sources import compiled
from tuner.core.model import Configuration
from tuner.kernel.load import load_kernel
from tuner.runtime.dtypes import ITEMSIZE

SAMPLE = [("transpose", "bfloat16", 75), ("transpose", "int8", 90)]
"""Kernels, dtypes and architectures: each takes some tenths of a second."""


@pytest.mark.parametrize(("name", "dtype", "cc"), SAMPLE)
def test_patches_are_turned_in_registers(name: str, dtype: str, cc: int) -> None:
    """With 16-byte loads and stores on both sides, nothing spills, and no element is stored by itself."""
    kernel, device = load_kernel(name), gpu(cc)
    problem = kernel.problem(dict.fromkeys(kernel.sizes, 272), {"": dtype})
    width = 16 // ITEMSIZE[dtype]
    parameters = {
        "block_size": 64, "tile_rows": 128, "tile_columns": 128, "load_width": width, "store_width": width
    }  # fmt: skip
    [cubin] = compiled(
        kernel,
        Configuration.of("tiled", {**kernel.variants["tiled"].defaults, **parameters}),
        problem,
        device,
    )
    assert cubin.resources.spill_bytes == cubin.resources.stack_bytes == 0
    assert set(moves(cubin.cubin, STG)) == {16}
