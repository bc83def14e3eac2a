"""The templates of the maps (vector_add, saxpy, transform), compiled for every architecture, which needs no GPU."""

from __future__ import annotations

import random
import struct
from typing import Any

import jinja2
import pytest

from tests.templates.machine_code import LDG, LDGSTS, STG, UBLKCP, code_of, count_of, gpu, moves
from tests.templates.sources import GENERATIONS, draw
from tuner.children.nvrtc import Cubin, compile_source
from tuner.core import paths
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.spec import KernelSpec
from tuner.runtime.dtypes import ITEMSIZE

KERNELS = ("vector_add", "saxpy", "transform")
DTYPES = ("float32", "float16", "bfloat16")
OPERATIONS = ("x + 0.5 * (20 - x)", "x * y + z", "where(x > z, exp(x), tanh(y))")


def problem_of(kernel: KernelSpec, dtype: str, op: str | None = None, n: int = 1 << 20) -> Problem:
    options: dict[str, Value] = {"op": op} if op is not None and "op" in kernel.options else {}
    return kernel.problem({"n": n}, {"": dtype}, options)


def compiled(kernel: KernelSpec, problem: Problem, device: Gpu, configuration: Configuration) -> Cubin:
    ((source, entry),) = render(kernel, problem, device, configuration)
    return compile_source(source, entry, device.arch)


def inputs_of(kernel: KernelSpec, problem: Problem) -> int:
    return sum(tensor.role != "output" for tensor in kernel.present(problem).values())


@pytest.mark.parametrize(
    ("name", "cc"),
    [(name, cc) for i, name in enumerate(KERNELS) for cc in GENERATIONS if GENERATIONS.index(cc) % 3 == i],
)
def test_sample_compiles_and_moves_whole_vectors(name: str, cc: int) -> None:
    kernel, device, rng = load_kernel(name), gpu(cc), random.Random(f"{name} {cc}")
    tried, spilled = 0, []
    for turn, dtype in enumerate(DTYPES):
        problem = problem_of(kernel, dtype, OPERATIONS[(turn + cc) % 3])
        for number, variant in enumerate(kernel.usable_variants(problem, device)[0]):
            # A dtype for each variant and architecture, another one for the next.
            sampled = (number + turn + cc) % 3 == 0
            chosen = [draw(kernel, variant, problem, device, rng)] if sampled else []
            names = {**kernel.environment(problem, device), **variant.defaults}
            if turn == 0 and all(c.evaluate(names) for _, c in variant.constraints_before):
                chosen.append(variant.defaults)
            for parameters in chosen:
                tried += 1
                configuration = Configuration.of(variant.name, parameters)
                where = f"{configuration} {problem}"
                threads = make_plan(kernel, problem, device, configuration).launches[0].threads
                result = compiled(kernel, problem, device, configuration)
                resources = result.resources
                assert "warning" not in result.log.lower(), f"{where}: {result.log}"
                if resources.spill_bytes:
                    assert parameters != variant.defaults, where
                    names = {**kernel.environment(problem, device), **parameters, "spill_bytes": 4}
                    assert not all(c.evaluate(names) for _, c in variant.constraints_after), where
                    spilled.append(where)
                    continue
                assert resources.stack_bytes == 0, where
                threads *= max(int(parameters.get("min_blocks", 1)), 1)
                assert 0 < resources.registers * max(threads, 32) <= device.registers_per_sm, where
                _check_moves(variant.name, parameters, inputs_of(kernel, problem), dtype, result.cubin, where)
    assert len(spilled) <= max(1, tried / 20), spilled


def _check_moves(
    variant: str, parameters: dict[str, Any], inputs: int, dtype: str, cubin: bytes, where: str
) -> None:
    """The code loads and stores as many vectors of the width that the parameters say."""
    width = int(parameters.get("vector_width", 1)) * ITEMSIZE[dtype]
    items = int(parameters.get("unroll", parameters.get("items_per_thread", 1)))
    loads, stores = list(moves(cubin, LDG)).count(width), list(moves(cubin, STG)).count(width)
    if variant == "bulk":
        assert count_of(cubin, UBLKCP) >= inputs + parameters["bulk_store"], where
        items = int(parameters["tile_bytes"]) // (16 * int(parameters["block_size"]))
        through_registers = items * (
            1 if parameters["bulk_store"] else 2
        )  # what is left over goes there, too
        assert list(moves(cubin, STG)).count(16) >= through_registers, where
    elif variant == "staged":
        assert count_of(cubin, LDGSTS) >= items * inputs * parameters["stages"], where
        assert stores >= items, where
    else:
        assert loads >= inputs * items, where
        assert stores >= items, where


@pytest.mark.parametrize("variant", ("one_thread", "one_block", "several_items"))
def test_unrolled_loads_come_before_the_first_store(variant: str) -> None:
    """Else a thread would wait for each of them by itself, and `unroll` would only save branches."""
    kernel = load_kernel("transform")
    configuration = Configuration.of(variant, {**kernel.variants[variant].defaults, "unroll": 4})
    cubin = compiled(kernel, problem_of(kernel, "float16", "x * y + z"), gpu(), configuration).cubin
    opcodes = [low & 0xFFF for low, _ in struct.iter_unpack("<QQ", code_of(cubin))]
    order = "".join("L" if code in LDG else "S" for code in opcodes if code in (*LDG, *STG))
    assert order.startswith("LLL" * 4 + "S" * 4), order


@pytest.mark.parametrize(("name", "cc", "dtype"), [("vector_add", 90, "float32")])
def test_every_hint_reaches_the_machine_code(name: str, dtype: str, cc: int) -> None:
    kernel, device = load_kernel(name), gpu(cc)
    variant, problem = kernel.variants["vectorized"], problem_of(kernel, dtype)
    names = {**kernel.environment(problem, device), **variant.defaults, "vector_width": 4}
    codes = {}
    loads, stores = (variant.parameters[hint].values for hint in ("load_hint", "store_hint"))
    for load, store in {*((load, "none") for load in loads), *(("none", store) for store in stores)}:
        parameters = {**variant.defaults, "vector_width": 4, "load_hint": load, "store_hint": store}
        if all(c.evaluate({**names, **parameters}) for _, c in variant.constraints_before):
            configuration = Configuration.of("vectorized", parameters)
            codes[load, store] = code_of(compiled(kernel, problem, device, configuration).cubin)
    assert len(set(codes.values())) == len(codes) == 7


@pytest.mark.parametrize("name", KERNELS)
def test_little_comes_before_the_first_load(name: str) -> None:
    """When n is small, the time is one trip to memory: the straight way through the code must be short."""
    kernel, device = load_kernel(name), gpu()
    parameters = {**kernel.variants["vectorized"].defaults, "vector_width": 4}
    configuration = Configuration.of("vectorized", parameters)
    cubin = compiled(kernel, problem_of(kernel, "float32"), device, configuration).cubin
    opcodes = [low & 0xFFF for low, _ in struct.iter_unpack("<QQ", code_of(cubin))]
    loads = [i for i, opcode in enumerate(opcodes) if opcode in LDG]
    stores = [i for i, opcode in enumerate(opcodes) if opcode in STG]
    assert loads[0] < 14
    assert stores[0] < 30


@pytest.mark.parametrize(("name", "dtype"), [("vector_add", "bfloat16"), ("saxpy", "float16")])
def test_packed_arithmetic_where_there_is_some(name: str, dtype: str) -> None:
    """Two additions by one instruction, and no conversion on the way of whole vectors."""
    kernel = load_kernel(name)
    parameters = {**kernel.variants["vectorized"].defaults, "vector_width": 8}
    cubin = compiled(
        kernel, problem_of(kernel, dtype), gpu(), Configuration.of("vectorized", parameters)
    ).cubin
    opcodes = [low & 0xFFF for low, _ in struct.iter_unpack("<QQ", code_of(cubin))]
    assert next(i for i, opcode in enumerate(opcodes) if opcode in STG) < 30


PIECES = {
    80: """
    __shared__ __align__(16) float stage[4][1024];
    copy_async<16>(stage[0] + 4 * threadIdx.x, from + 4 * threadIdx.x);
    copy_async<8>(stage[1] + 2 * threadIdx.x, from + 2 * threadIdx.x);
    copy_async_or_zero<4>(stage[2] + threadIdx.x, from + threadIdx.x, threadIdx.x < n);
    commit_copies();
    copy_async_or_zero<16>(stage[3] + 4 * threadIdx.x, from + 4 * threadIdx.x, threadIdx.x < n);
    commit_copies();
    wait_copies<1>();
    wait_copies<0>();
    __syncthreads();
    to[threadIdx.x] = stage[0][threadIdx.x] + stage[1][threadIdx.x] + stage[2][threadIdx.x] + stage[3][threadIdx.x];
""",
    90: """
    __shared__ __align__(128) float stage[2][1024];
    __shared__ Barrier barrier;
    if (threadIdx.x == 0) {
        init_barrier(&barrier, 2);
        publish_barriers();
        expect_bytes(&barrier, 8192);
        bulk_load(stage[0], from, 4096, &barrier);
        bulk_load(stage[1], from + 1024, 4096, &barrier, l2_evict_first_policy());
        arrive(&barrier);
    }
    __syncthreads();
    wait_barrier(&barrier, 0);
    stage[0][threadIdx.x] += stage[1][threadIdx.x];
    publish_to_bulk();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(to, stage[0], 4096);
        bulk_store(to + 1024, stage[1], 4096, l2_evict_first_policy());
        commit_bulk_stores();
        wait_bulk_reads<0>();
        wait_bulk_stores<0>();
    }
""",
}
"""Every function of common/async_copy.cuh.j2, from the compute capability on that has it."""


@pytest.mark.parametrize("cc", PIECES)
def test_every_asynchronous_copy_compiles(cc: int) -> None:
    loader = jinja2.FileSystemLoader(paths.templates())
    header = jinja2.Environment(loader=loader).get_template("common/async_copy.cuh.j2").render()
    source = f'{header}\nextern "C" __global__ void k(const float* from, float* to, int n) {{{PIECES[cc]}}}'
    found = compile_source(source, "k", gpu(cc).arch)
    assert "warning" not in found.log.lower()
    assert count_of(found.cubin, LDGSTS if cc == 80 else UBLKCP) == 4


@pytest.mark.parametrize("n", (1, 257, 4099, 2**31 + 5, 2**33))
@pytest.mark.parametrize("name", KERNELS)
def test_grid_covers_every_element(name: str, n: int) -> None:
    kernel, device, rng = load_kernel(name), gpu(), random.Random(n)
    for dtype in ("float16", "float32"):
        problem = problem_of(kernel, dtype, n=n)
        for variant in kernel.usable_variants(problem, device)[0]:
            if variant.name in ("one_block", "one_element", "several_items") and n >= 2**32:
                names = {**kernel.environment(problem, device), **variant.defaults}
                assert not all(c.evaluate(names) for _, c in variant.constraints_before)
                continue
            for parameters in [draw(kernel, variant, problem, device, rng) for _ in range(10)]:
                configuration = Configuration.of(variant.name, parameters)
                (launch,) = make_plan(kernel, problem, device, configuration).launches
                _check_launch(variant.name, parameters, n, dtype, device, launch)


def _check_launch(
    variant: str, parameters: dict[str, Any], n: int, dtype: str, device: Gpu, launch: Any
) -> None:
    blocks, last = launch.grid[0], [value for _, _, value in launch.arguments]
    assert launch.grid[1:] == (1, 1)
    if variant in ("one_thread", "one_block", "one_element"):
        assert last[-1] == n
        assert blocks == (-(-n // parameters["block_size"]) if variant == "one_element" else 1)
        return
    width = parameters.get("vector_width", 16 // ITEMSIZE[dtype] if variant == "bulk" else 1)
    tile = (
        parameters["tile_bytes"] // ITEMSIZE[dtype]
        if variant == "bulk"
        else parameters["block_size"] * width * parameters["items_per_thread"]
    )
    assert last[-2] * tile + last[-1] == n
    assert 0 <= last[-1] < tile
    assert n // width + tile < 2**32  # the number of any vector that a thread may think of
    assert launch.alignment == width * ITEMSIZE[dtype]
    tiles = -(-n // tile)
    per_sm = parameters.get("blocks_per_sm", 0)
    assert blocks == (min(tiles, device.sm_count * per_sm) if per_sm else tiles)
    if "stages" in parameters:
        share = (launch.shared_bytes + 1024) * max(per_sm, 1)
        assert share <= device.shared_bytes_per_sm
        assert launch.shared_bytes > 0
