"""The maps run on the CPU, at sizes around their tiles: indices, tails, rings, what the launches are given."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from tests.emulator import COMPILER, Case, emulate, host_kernel
from tests.test_elementwise_templates import gpu, sample
from tuner.element_code import cuda
from tuner.expressions import ITEMSIZE
from tuner.kernel import KernelSpec
from tuner.model import Configuration, Problem, Value

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

DEVICE = dataclasses.replace(gpu(90), sm_count=2)
"""Of few SMs, so that the blocks of a persistent grid have several tiles each."""
EXPECTED = {"vector_add": "a + b", "saxpy": "2.5f * x + y"}
MUTATIONS = [
    ("elementwise_bulk", "    __syncthreads();  // everybody has read the stage\n", "", "bulk ring"),
    ("elementwise_bulk", "wait_barrier(arrived, 0);", "", "bulk"),
    ("elementwise_bulk", "wait_barrier(arrived + stage, parity)", "wait_barrier(arrived + stage, 0)", "bulk ring"),
    ("elementwise_bulk", "constexpr int AHEAD = STAGES - 1", "constexpr int AHEAD = STAGES", "bulk ring store"),
    ("elementwise_bulk", "wait_bulk_reads<0>();", "", "bulk store"),
    ("elementwise_staged", "wait_copies<STAGES - 1>", "wait_copies<STAGES>", "staged"),
    ("elementwise_staged", "free_stage = STAGES - 1", "free_stage = 0", "staged"),
    ("elementwise_tile", "vectors = rest / VECTOR_WIDTH;", "vectors = rest / VECTOR_WIDTH + 1;", "vectorized"),
    ("elementwise_tile", "threadIdx.x < rest % VECTOR_WIDTH", "threadIdx.x < VECTOR_WIDTH", "vectorized"),
    ("elementwise_tile", "tile += gridDim.x", "tile += gridDim.x + 1", "grid_stride"),
]  # fmt: skip
"""Faults: file, text, what stands there instead, and what must fail then."""


def case_of(configuration: Configuration, dtype: str, rng: random.Random) -> Case:
    """Choose sizes: one, one off the tile, and several times round the ring of every block, and a bit."""
    values = configuration.values
    if "tile_bytes" in values:
        tile = int(values["tile_bytes"]) // ITEMSIZE[dtype]
    else:
        tile = int(values.get("block_size", 1)) * int(values.get("vector_width", 1))
        tile *= int(values.get("items_per_thread", 1))
    blocks = DEVICE.sm_count * int(values.get("blocks_per_sm", 1)) or 2
    long = tile * blocks * (2 * int(values.get("stages", 1)) + 1 if "stages" in values else 2)
    sizes = {1, max(tile - 1, 1), tile, tile + 1, min(long, 1 << 15) + rng.randrange(tile)}
    return Case(configuration, tuple(sorted(sizes)))


def cases_of(
    kernel: KernelSpec, problem: Problem, variant: str, count: int, rng: random.Random, **fixed: Value
) -> list[Case]:
    found: list[Case] = []
    while len(found) < count:
        (parameters,) = sample(kernel, kernel.variants[variant], problem, DEVICE, rng, 1)
        if all(parameters[name] == value for name, value in fixed.items()):
            dtype = problem.dtypes["input"]
            found.append(case_of(Configuration.of(variant, parameters), dtype, rng))
    return found


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("name", ("vector_add", "saxpy"))
def test_every_element_once(name: str, dtype: str, tmp_path: Path) -> None:
    kernel, rng = host_kernel(name, tmp_path), random.Random(f"{name} {dtype}")
    problem = kernel.problem({"n": 1000}, {"": dtype})
    cases = [case for variant in kernel.variants for case in cases_of(kernel, problem, variant, 3, rng)]
    cases += cases_of(kernel, problem, "bulk", 2, rng, stages=1)
    emulate(kernel, problem, DEVICE, cases, EXPECTED[name], tmp_path)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("op", ("x + 0.5 * (20 - x)", "x * z + abs(y)", "maximum(y, 3) / 2"))
def test_every_expression(op: str, dtype: str, tmp_path: Path) -> None:
    kernel, rng = host_kernel("transform", tmp_path), random.Random(f"{op} {dtype}")
    problem = kernel.problem({"n": 1000}, {"": dtype}, {"op": op})
    cases = []
    for variant in kernel.variants:
        cases += cases_of(kernel, problem, variant, 1 if variant.startswith("one_") else 2, rng)
    cases += cases_of(kernel, problem, "bulk", 1, rng, stages=1)
    cases += cases_of(kernel, problem, "bulk", 1, rng, bulk_store=True)
    emulate(kernel, problem, DEVICE, cases, cuda(str(problem.options["op"])), tmp_path)


@pytest.mark.parametrize(("file", "right", "wrong", "what"), MUTATIONS)
def test_emulator_finds_faults(file: str, right: str, wrong: str, what: str, tmp_path: Path) -> None:
    """What the tests above say is worth something only if they can fail."""
    kernel, rng = host_kernel("transform", tmp_path), random.Random(f"{file} {wrong}")
    source = (tmp_path / "common" / f"{file}.cuh.j2").read_text()
    assert source.count(right) == 1 or what == "bulk store"
    (tmp_path / "common" / f"{file}.cuh.j2").write_text(source.replace(right, wrong))
    problem = kernel.problem({"n": 1000}, {"": "float32"})
    variant, *words = what.split()
    fixed: dict[str, Value] = {"bulk_store": "store" in words} if variant == "bulk" else {}
    if variant == "bulk":
        fixed["stages"] = 3 if "ring" in words else 1
    cases = cases_of(kernel, problem, variant, 3, rng, **fixed)
    with pytest.raises(AssertionError, match="ended with"):
        emulate(kernel, problem, DEVICE, cases, cuda(str(problem.options["op"])), tmp_path)
