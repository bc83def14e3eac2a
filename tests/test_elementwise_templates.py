"""The templates of vector_add and saxpy, compiled for every architecture, which needs no GPU."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tuner.compiler import compile_source
from tuner.expressions import ITEMSIZE
from tuner.kernel import KernelSpec, VariantSpec
from tuner.kernel_file import load_kernel
from tuner.model import Configuration, Gpu, Problem
from tuner.plan import make_plan, reference_launch
from tuner.render import render, render_launch

KERNELS = ("vector_add", "saxpy")
DTYPES = ("float32", "float16", "bfloat16")
THREADS_PER_SM = {75: 1024, 80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048, 120: 1536}
SAMPLES = 3
"""Configurations of each kernel, variant, dtype and architecture."""

LDG, STG = (0x381, 0x981), (0x386, 0x986)
SIZES = {2: 2, 3: 2, 4: 4, 5: 8, 6: 16}


def gpu(cc: int = 90) -> Gpu:
    threads = THREADS_PER_SM[cc]
    return Gpu(f"sm_{cc}", cc, 132, 60 << 20, 141 << 30, 99 << 10, 100 << 10, max_threads_per_sm=threads)


def sample(
    kernel: KernelSpec, variant: VariantSpec, problem: Problem, device: Gpu, rng: random.Random, count: int
) -> list[dict[str, Any]]:
    """Draw configurations that meet the constraints."""
    names = kernel.environment(problem, device)
    found: list[dict[str, Any]] = []
    for _ in range(1000 * count):
        parameters = {name: rng.choice(p.values) for name, p in variant.parameters.items()}
        if all(c.evaluate({**names, **parameters}) for _, c in variant.constraints_before):
            found.append(parameters)
        if len(found) == count:
            return found
    raise AssertionError(f"{variant.name} has next to no valid configurations")


def code_of(cubin: bytes) -> bytes:
    """Find the machine code of the only kernel in a cubin, which is a 64-bit ELF file."""
    table, size, count, names = struct.unpack_from("<Q10xHHH", cubin, 0x28)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    for name, _, _, _, offset, length in sections:
        if cubin.startswith(b".text.", sections[names][4] + name):
            return cubin[offset : offset + length]
    raise AssertionError("no code in the cubin")


def moves(cubin: bytes, opcodes: tuple[int, ...]) -> Iterator[int]:
    """Give the bytes of each global load or store: bits 0-11 hold the opcode, bits 73-75 the width."""
    for low, high in struct.iter_unpack("<QQ", code_of(cubin)):
        if low & 0xFFF in opcodes:
            yield SIZES[high >> 9 & 7]


@pytest.mark.parametrize("cc", THREADS_PER_SM)
@pytest.mark.parametrize("name", KERNELS)
def test_sample_compiles_and_loads_whole_vectors(name: str, cc: int) -> None:
    kernel, device, rng = load_kernel(name), gpu(cc), random.Random(f"{name} {cc}")
    spilled: list[str] = []
    for dtype, variant in itertools.product(DTYPES, kernel.variants.values()):
        problem = kernel.problem(dtypes={"input": dtype})
        for parameters in sample(kernel, variant, problem, device, rng, SAMPLES):
            configuration = Configuration.of(variant.name, parameters)
            plan = make_plan(kernel, problem, device, configuration)
            ((source, entry),) = render(kernel, problem, device, configuration)
            compiled = compile_source(source, entry, device.arch)
            resources, where = compiled.resources, f"{configuration} {dtype}"
            if resources.spill_bytes:
                names = {**kernel.environment(problem, device), **parameters, "spill_bytes": 4}
                assert not all(c.evaluate(names) for _, c in variant.constraints_after), where
                spilled.append(where)
                continue
            assert resources.stack_bytes == 0, where
            threads = plan.launches[0].threads * max(int(parameters["min_blocks"]), 1)
            assert 0 < resources.registers * threads <= device.registers_per_sm, where
            width = int(parameters["vector_width"]) * ITEMSIZE[dtype]
            items = int(parameters["items_per_thread"])
            assert list(moves(compiled.cubin, LDG)).count(width) >= 2 * items, where
            assert list(moves(compiled.cubin, STG)).count(width) >= items, where
    assert len(spilled) <= 1, spilled


@pytest.mark.parametrize(("cc", "dtype"), ((75, "bfloat16"), (90, "float32")))
@pytest.mark.parametrize("name", KERNELS)
def test_every_hint_reaches_the_machine_code(name: str, dtype: str, cc: int) -> None:
    kernel, device = load_kernel(name), gpu(cc)
    variant = kernel.variants["vectorized"]
    codes = {}
    hints = [variant.parameters[hint].values for hint in ("load_hint", "store_hint")]
    for load, store in itertools.product(*hints):
        parameters = {**variant.defaults, "load_hint": load, "store_hint": store}
        configuration = Configuration.of("vectorized", parameters)
        ((source, entry),) = render(kernel, kernel.problem(dtypes={"": dtype}), device, configuration)
        codes[load, store] = code_of(compile_source(source, entry, device.arch).cubin)
    assert len(set(codes.values())) == len(codes)


@pytest.mark.parametrize("cc", (75, 90))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", KERNELS)
def test_reference_compiles(name: str, dtype: str, cc: int) -> None:
    kernel, device = load_kernel(name), gpu(cc)
    problem = kernel.problem(dtypes={"": dtype})
    assert kernel.reference.cuda is not None
    source, entry = render_launch(kernel, kernel.reference.cuda, problem, device, Configuration("", ()))
    compiled = compile_source(source, entry, device.arch)
    assert compiled.resources.spill_bytes == 0
    launch = reference_launch(kernel, problem, device)
    assert launch is not None
    assert launch.threads == 256


@pytest.mark.parametrize("name", KERNELS)
def test_space_holds_the_plain_kernel(name: str) -> None:
    """16 bytes a load, one vector a thread, 256 threads, no hints: what everybody compares with."""
    kernel, device = load_kernel(name), gpu()
    assert kernel.variants["vectorized"].defaults == {
        "block_size": 256,
        "vector_width": 4,
        "items_per_thread": 1,
        "min_blocks": 0,
        "load_hint": "none",
        "store_hint": "none",
    }
    configuration = Configuration.of("vectorized", kernel.variants["vectorized"].defaults)
    ((source, entry),) = render(kernel, kernel.problem(), device, configuration)
    code = code_of(compile_source(source, entry, device.arch).cubin)
    assert len(code) <= 64 * 16 * 2  # a division of 64-bit integers alone would take more


@pytest.mark.parametrize("n", (1, 3, 255, 257, 4099, 2**28, 2**31 + 5, 2**33))
@pytest.mark.parametrize("name", KERNELS)
def test_grid_covers_every_element(name: str, n: int) -> None:
    kernel, device, rng = load_kernel(name), gpu(), random.Random(n)
    for variant in kernel.variants.values():
        problem = kernel.problem(sizes={"n": n})
        for parameters in sample(kernel, variant, problem, device, rng, 20):
            configuration = Configuration.of(variant.name, parameters)
            (launch,) = make_plan(kernel, problem, device, configuration).launches
            tile = parameters["block_size"] * parameters["vector_width"] * parameters["items_per_thread"]
            tiles = -(-n // tile)
            if variant.name == "vectorized":
                assert launch.grid == (tiles, 1, 1)
            else:
                assert launch.grid == (min(tiles, device.sm_count * parameters["blocks_per_sm"]), 1, 1)
            assert launch.arguments[-1] == ("scalar", "int64", n)
