"""The kernels that work on rows: compiled, and run on the CPU where rows are unlike others. Neither needs a GPU."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.on_host import HostConfiguration
from tests.templates.machine_code import gpu
from tests.templates.sources import GENERATIONS, compiled, draw
from tuner.core.model import Configuration
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, Schedule
from tuner.kernel.default import default_configuration
from tuner.kernel.load import load_kernel

needs_gpp = pytest.mark.skipif(COMPILER is None, reason="needs g++")
SAMPLES: list[tuple[str, str, dict[str, int], dict[str, Any]]] = [
    ("softmax", "cluster", {"rows": 9, "columns": 40_001}, {"before": "scale * x + y"}),
    ("norm", "registers", {"rows": 9, "columns": 4096}, {"op": "layer_norm", "before": "x + residual"}),
    ("cross_entropy", "registers", {"rows": 9, "columns": 4097}, {}),
    ("quantize", "registers", {"rows": 9, "groups": 56}, {"by": "group", "norm": "rms_norm"}),
    ("quantize", "bulk", {"rows": 900, "groups": 24}, {"before": "silu(gate) * up", "norm": "rms_norm"}),
    ("gated", "vectorized", {"rows": 9, "columns": 4096}, {"op": "gelu(gate) * up"}),
    ("softmax", "two_pass", {"rows": 9, "columns": 4096}, {"mask": "causal"}),
    ("quantize", "cluster_blocks", {"rows": 900, "groups": 24}, {"by": "block", "norm": "rms_norm"}),
]
"""A variant of each kernel, and a problem: the others are compiled where there is a GPU."""


@pytest.mark.parametrize(
    "number", range(len(SAMPLES)), ids=[f"{name} {variant}" for name, variant, *_ in SAMPLES]
)
def test_a_sample_compiles_without_spills(number: int) -> None:
    name, variant, sizes, options = SAMPLES[number]
    kernel = load_kernel(name)
    cc = 90 if variant in ("cluster", "bulk", "cluster_blocks") else GENERATIONS[number % len(GENERATIONS)]
    problem = kernel.problem(sizes, {"": ("bfloat16", "float32", "float16")[number % 3]}, options)
    parameters = draw(kernel, kernel.variants[variant], problem, gpu(cc), random.Random(number))
    found = compiled(kernel, Configuration.of(variant, parameters), problem, gpu(cc))
    assert all(each.resources.stack_bytes == 0 for each in found)


def on_host(
    name: str, variant: str, given: dict[str, Any], dtype: str, options: dict[str, Any], folder: Path
) -> HostConfiguration:
    """Build a configuration for the CPU; what is not named is the default."""
    kernel = load_kernel(name)
    configuration = Configuration.of(variant, {**kernel.variants[variant].defaults, **given})
    device = dataclasses.replace(gpu(), sm_count=3)
    problem = kernel.problem(None, {"": dtype}, options)
    return HostConfiguration(kernel, problem, device, configuration, folder)


DEFAULTS: list[tuple[str, str, dict[str, int], dict[str, Any], dict[str, Any]]] = [
    # A row is kept where it can be; also one that starts within a vector, and whose end needs one vector more.
    ("softmax", "float32", {"rows": 4096, "columns": 255}, {}, {"variant": "registers", "vector_width": 4}),
    ("softmax", "float32", {"rows": 4096, "columns": 6400}, {}, {"variant": "registers", "vector_width": 4}),
    ("softmax", "float32", {"rows": 4096, "columns": 65_536}, {}, {"variant": "cluster", "vector_width": 4}),
    # A loss alone keeps no row.
    ("cross_entropy", "float32", {"rows": 4096, "columns": 128_256}, {"gradient": "logits"},
     {"variant": "cluster", "row_starts": "aligned", "vector_width": 4}),
    ("cross_entropy", "float32", {"rows": 4096, "columns": 128_256}, {"gradient": "none"},
     {"variant": "two_pass", "row_starts": "aligned", "vector_width": 4}),
    ("cross_entropy", "float32", {"rows": 4096, "columns": 50_257}, {"gradient": "none"},
     {"variant": "two_pass", "row_starts": "anywhere", "vector_width": 4}),
    ("cross_entropy", "float32", {"rows": 8, "columns": 128_256}, {"gradient": "none"}, {"variant": "cluster"}),
    # A team has a group where it can: four rows of 86 groups are work for 172 blocks, not for 4.
    ("quantize", "float32", {"rows": 4, "groups": 86}, {"by": "group"},
     {"variant": "registers", "threads_per_row": 16, "rows_per_block": 2}),
    ("quantize", "bfloat16", {"rows": 4096, "groups": 56}, {"by": "group"},
     {"variant": "registers", "threads_per_row": 8, "rows_per_block": 16}),
    ("quantize", "bfloat16", {"rows": 4, "groups": 56}, {}, {"variant": "registers", "threads_per_row": 512}),
    ("quantize", "float32", {"rows": 512, "groups": 112}, {"norm": "rms_norm"}, {"variant": "bulk"}),
    ("quantize", "bfloat16", {"rows": 8, "groups": 400}, {}, {"variant": "two_pass", "threads_per_row": 256}),
    # Vectors are wide where all SMs have some.
    ("gated", "bfloat16", {"rows": 1, "columns": 8192}, {}, {"vector_width": 2, "fast_math": True}),
    ("gated", "bfloat16", {"rows": 8192, "columns": 14336}, {}, {"vector_width": 8}),
    ("gated", "float32", {"rows": 1, "columns": 5633}, {}, {"vector_width": 1, "fast_math": False}),
    # Floats of a few microseconds are turned in registers.
    ("transpose", "float32", {"rows": 566, "columns": 176}, {}, {"variant": "registers"}),
    ("transpose", "float32", {"rows": 56600, "columns": 176}, {}, {"variant": "tiled"}),
    ("transpose", "int8", {"rows": 566, "columns": 176}, {}, {"variant": "tiled"}),
    # Reductions have work for all SMs.
    ("reduce_axis", "bfloat16", {"rows": 168, "columns": 20872}, {"over": "rows"},
     {"parts": 1, "row_starts": "aligned"}),
    ("reduce_axis", "bfloat16", {"rows": 65536, "columns": 64}, {"over": "rows"}, {"parts": 64}),
    ("reduce_axis", "bfloat16", {"rows": 5816, "columns": 214}, {"over": "rows"}, {"parts": 16, "lanes": 8}),
    ("reduce_axis", "bfloat16", {"rows": 4096, "columns": 4099}, {"over": "rows"}, {"row_starts": "anywhere"}),
    ("reduce_axis", "bfloat16", {"rows": 1048576, "columns": 128}, {"over": "columns"}, {"threads_per_row": 8}),
    ("reduce_axis", "bfloat16", {"rows": 16, "columns": 2**22}, {"over": "columns"}, {"cluster_size": 8}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "sizes", "options", "expected"), DEFAULTS)
def test_the_default_goes_by_the_sizes(
    name: str, dtype: str, sizes: dict[str, int], options: dict[str, Any], expected: dict[str, Any]
) -> None:
    kernel = load_kernel(name)
    default = default_configuration(kernel, kernel.problem(sizes, {"": dtype}, options), gpu())
    assert default is not None
    assert expected.items() <= {"variant": default.variant, **default.values}.items()


@needs_gpp
@pytest.mark.parametrize("columns", [1, 3, 64, 1000])
def test_gated_finds_the_row_of_each_element(columns: int, tmp_path: Path) -> None:
    """By a product with a part of 2**32, which is one too small for first elements of rows."""
    given = {"block_size": 64, "vector_width": 1, "items_per_thread": 2}
    host = on_host("gated", "vectorized", given, "float32", {"op": "gate - up"}, tmp_path)
    rows = 7
    x, out = HostArray(2 * rows * columns, "float32", 16), HostArray(rows * columns, "float32", 16)
    x.fill(np.random.default_rng(0).standard_normal(2 * rows * columns))
    host.run({"rows": rows, "columns": columns}, {"x": x, "out": out}, Schedule(1))
    gate, up = np.hsplit(x.numbers.reshape(rows, -1), 2)
    np.testing.assert_array_equal(out.numbers.reshape(rows, columns), gate - up)


@needs_gpp
def test_softmax_of_special_rows_is_torchs(tmp_path: Path) -> None:
    """Rows that start anywhere, shared by blocks: equal and lowest numbers, infinities, NaN, subnormal results."""
    given = {"cluster_size": 2, "threads_per_row": 128, "items_per_thread": 2, "row_starts": "anywhere"}
    host = on_host("softmax", "cluster", given, "bfloat16", {}, tmp_path)
    columns = 4001
    rows = np.random.default_rng(0).standard_normal((8, columns)) * 3
    rows[1] = -0.75
    rows[2, 7] = np.inf
    rows[3, ::3] = -np.inf
    rows[4] = -np.inf
    rows[5, -1] = np.nan
    rows[6] = np.finfo(np.float32).min
    rows[7] = -80.0
    rows[7, 9] = 10.0
    x, out = (HostArray(rows.size, "bfloat16", 16) for _ in range(2))
    x.fill(rows.ravel())
    host.run({"rows": 8, "columns": columns}, {"x": x, "out": out}, Schedule(1, resident=4))
    wide = x.numbers.astype(np.float64).reshape(rows.shape)
    assert_near(out.numbers.reshape(rows.shape), softmax_of(wide), 2.0**-8)


@needs_gpp
def test_a_causal_softmax_has_nothing_of_later_columns(tmp_path: Path) -> None:
    """Squares of rows, the last one cut; what is left out may be NaN."""
    given = {"threads_per_row": 8, "rows_per_block": 4, "items_per_thread": 3, "vector_width": 4}
    given["row_starts"] = "anywhere"
    host = on_host("softmax", "registers", given, "float32", {"mask": "causal"}, tmp_path)
    rows, columns = 150, 65
    numbers = np.random.default_rng(0).standard_normal((rows, columns))
    hidden = np.arange(columns) > np.arange(rows)[:, None] % columns
    x, out = (HostArray(numbers.size, "float32", 16) for _ in range(2))
    x.fill(np.where(hidden, np.nan, numbers).ravel())
    host.run({"rows": rows, "columns": columns}, {"x": x, "out": out}, Schedule(1, resident=4))
    expected = softmax_of(np.where(hidden, -np.inf, numbers.astype(np.float32).astype(np.float64)))
    assert_near(out.numbers.reshape(numbers.shape), expected, 2e-6)


@needs_gpp
def test_rows_by_way_of_a_ring_have_the_losses_and_gradients_of_others(tmp_path: Path) -> None:
    """Rows start anywhere, and there are more of them than stages; the last vector of the matrix is not whole."""
    given = {
        "threads_per_row": 64,
        "items_per_thread": 2,
        "stages": 2,
        "blocks_per_sm": 1,
        "row_starts": "anywhere",
    }
    host = on_host("cross_entropy", "bulk", given, "bfloat16", {}, tmp_path)
    rows, columns = 11, 1003
    rng = np.random.default_rng(0)
    x, grad = (HostArray(rows * columns, "bfloat16", 16) for _ in range(2))
    x.fill(rng.standard_normal(rows * columns) * 2)
    target, loss = HostArray(rows, "int64", 16), HostArray(rows, "float32", 16)
    at = rng.integers(0, columns, rows)
    at[-1], at[4] = columns - 1, -100
    target.fill(at)
    memory = {"x": x, "target": target, "loss": loss, "grad": grad}
    host.run({"rows": rows, "columns": columns}, memory, Schedule(1, resident=3))
    share = softmax_of(x.numbers.astype(np.float64).reshape(rows, columns))
    counts = (at != -100).astype(float)
    hot = (np.arange(columns) == at[:, None]).astype(float)
    np.testing.assert_allclose(loss.numbers, -counts * np.log((share * hot).sum(1) + 1 - counts), rtol=1e-5)
    expected = (share - hot) * counts[:, None]
    assert np.abs(grad.numbers.reshape(expected.shape) - expected).max() < 2.0**-8


@needs_gpp
def test_a_cluster_takes_rows_of_two_matrices_in_turn_from_its_rings(tmp_path: Path) -> None:
    """The blocks' sums of one row do not meet those of the next; the last block has a part of its part."""
    given = {"cluster_size": 4, "threads_per_row": 64, "items_per_thread": 1, "stages": 3, "blocks_per_sm": 1}
    options = {"op": "layer_norm", "before": "x + residual"}
    host = on_host("norm", "bulk", given, "bfloat16", options, tmp_path)
    rows, columns = 9, 1800
    rng = np.random.default_rng(0)
    memory = {
        name: HostArray(size, "bfloat16", 16)
        for name, size in [
            *((n, rows * columns) for n in ("x", "residual", "total", "out")),
            ("weight", columns),
        ]
    }
    for name in ("x", "residual", "weight"):
        memory[name].fill(rng.standard_normal(len(memory[name].numbers)))
    host.run({"rows": rows, "columns": columns}, memory, Schedule(1, resident=4))
    x, residual, weight = (memory[name].numbers.astype(np.float64) for name in ("x", "residual", "weight"))
    z = (x + residual).reshape(rows, columns)
    expected = (z - z.mean(1, keepdims=True)) / np.sqrt(z.var(1, keepdims=True) + 1e-5) * weight
    assert_near(memory["total"].numbers.reshape(z.shape), z, 2.0**-8)
    np.testing.assert_allclose(
        memory["out"].numbers.astype(np.float64).reshape(z.shape), expected, rtol=2.0**-8, atol=1e-5
    )


def softmax_of(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    with np.errstate(all="ignore"):
        powers = np.exp(x - x.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)  # type: ignore[no-any-return]


def assert_near(found: npt.NDArray[Any], expected: npt.NDArray[np.float64], relative: float) -> None:
    """Compare also infinities and NaNs; what is subnormal may be off by its last place."""
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=relative, atol=2.0**-133)


@needs_gpp
@pytest.mark.parametrize("variant", ["registers", "two_pass"])
def test_layer_norm_keeps_the_digits_of_rows_with_a_large_mean(variant: str, tmp_path: Path) -> None:
    """One warp has no element of the row, and one has a part; rows are equal numbers or far from zero."""
    given = {"threads_per_row": 128, "items_per_thread": 1, "vector_width": 2, "row_starts": "anywhere"}
    host = on_host("norm", variant, given, "float32", {"op": "layer_norm", "after": "n"}, tmp_path)
    rows, columns = 3, 181
    numbers = np.random.default_rng(0).standard_normal((rows, columns))
    numbers[1] += 3000.0
    numbers[2] = 7.0
    x, out = (HostArray(numbers.size, "float32", 16) for _ in range(2))
    x.fill(numbers.ravel())
    host.run({"rows": rows, "columns": columns}, {"x": x, "out": out}, Schedule(1, resident=3))
    wide = x.numbers.astype(np.float64).reshape(rows, columns)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    found = out.numbers.reshape(rows, columns)
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert not found[2].any(), "equal numbers are their mean"
