"""The templates of reduce: compiled for every architecture, and run on the host in many orders; neither needs a GPU."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.on_host import HostConfiguration
from tests.templates.machine_code import LDG, code_of, moves
from tests.templates.machine_code import gpu as limits_of
from tests.templates.sources import draw
from tuner.children.nvrtc import compile_source
from tuner.core.model import Configuration, Gpu, Problem
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, HostKernel, KernelFault, Schedule
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.reference import norm_allowance, settle_reference, tolerance
from tuner.kernel.render import render, render_launch
from tuner.kernel.variant_spec import LaunchSpec
from tuner.runtime.dtypes import ITEMSIZE

KERNEL = load_kernel("reduce")
OPERATIONS = ("sum", "max", "mean")
DTYPES = ("float32", "float16", "bfloat16")
WAITING = ("mailbox", "bulk")
"""Variants in which a block waits for the others."""

needs_gpp = pytest.mark.skipif(COMPILER is None, reason="needs g++")


def gpu(cc: int = 90) -> Gpu:
    shared = 227 << 10 if cc in (90, 100) else 99 << 10
    return dataclasses.replace(limits_of(cc), shared_bytes_optin=shared, shared_bytes_per_sm=shared + 1024)


def problem_of(n: int = 1 << 26, dtype: str = "float32", op: str = "sum") -> Problem:
    return KERNEL.problem({"n": n}, {"": dtype}, {"op": op})


# -- compiled


@pytest.mark.parametrize("cc", (75, 90))
def test_sample_compiles_and_loads_whole_vectors(cc: int) -> None:
    device, rng = gpu(cc), random.Random(cc)
    spilled = []
    for number, (dtype, op) in enumerate(zip(DTYPES, OPERATIONS, strict=True)):
        problem = problem_of(100_003, dtype, op)
        for turn, variant in enumerate(KERNEL.usable_variants(problem, device)[0]):
            # Another dtype, and other variants' defaults, for the next architecture.
            sampled = (turn + number + cc) % 6 == 0
            chosen = [draw(KERNEL, variant, problem, device, rng)] if sampled else []
            for parameters in chosen if number else [*[variant.defaults][(turn + cc // 5) % 2 :], *chosen]:
                configuration = Configuration.of(variant.name, parameters)
                make_plan(KERNEL, problem, device, configuration)
                sources = render(KERNEL, problem, device, configuration)
                compiled = [compile_source(source, entry, device.arch) for source, entry in sources]
                where = f"{configuration} {dtype} {op}"
                if compiled[0].resources.spill_bytes:
                    assert parameters != variant.defaults, where
                    spilled.append(where)
                    continue
                assert all(found.resources.stack_bytes == 0 for found in compiled), where
                if variant.name == "bulk":
                    continue  # its loads are the copy engine's
                width = int(parameters["vector_width"]) * ITEMSIZE[dtype]
                found = list(moves(compiled[0].cubin, LDG)).count(width)
                assert found >= int(parameters["items_per_thread"]), where
    assert len(spilled) <= 1, spilled


def test_every_hint_reaches_the_machine_code() -> None:
    variant, device = KERNEL.variants["ticket"], gpu()
    codes = set()
    for hint in variant.parameters["load_hint"].values:
        configuration = Configuration.of("ticket", {**variant.defaults, "load_hint": hint})
        ((source, entry),) = render(KERNEL, problem_of(), device, configuration)
        codes.add(code_of(compile_source(source, entry, device.arch).cubin))
    assert len(codes) == len(variant.parameters["load_hint"].values)


def test_a_block_waits_only_where_all_are_there() -> None:
    """A variant in which a block waits is launched only where the whole grid is on the GPU at once."""
    device = gpu()
    for name, variant in KERNEL.variants.items():
        names = {**KERNEL.environment(problem_of(), device), **variant.defaults, "spill_bytes": 0}
        blocks = variant.parameters.get("blocks_per_sm")
        if name not in WAITING:
            continue
        assert blocks is not None
        for fit in range(1, 5):
            allowed = all(c.evaluate({**names, "active_blocks": fit}) for _, c in variant.constraints_after)
            assert allowed == (fit >= int(variant.defaults["blocks_per_sm"]))
        for n, each in itertools.product((1, 1 << 16, 1 << 30), blocks.values):
            configuration = Configuration.of(name, {**variant.defaults, "blocks_per_sm": each})
            (launch,) = make_plan(KERNEL, problem_of(n), device, configuration).launches
            assert launch.grid[0] <= int(each) * device.sm_count


@pytest.mark.parametrize("n", (1, 1 << 16, (1 << 31) + 5))
def test_grids_and_scratch_agree(n: int) -> None:
    device, rng = gpu(), random.Random(n)
    problem = problem_of(n)
    for variant in KERNEL.usable_variants(problem, device)[0]:
        for parameters in [draw(KERNEL, variant, problem, device, rng) for _ in range(20)]:
            plan = make_plan(KERNEL, problem, device, Configuration.of(variant.name, parameters))
            blocks = plan.launches[0].grid[0]
            for buffer in plan.scratch:
                assert buffer.count == (1 if buffer.name == "tickets" else blocks)
                assert buffer.zeroed_once == (buffer.name in ("tickets", "boxes"))
            assert plan.launches[0].arguments[-1] == ("scalar", "int64", n)


# -- how exact it must be


@pytest.mark.parametrize("exponent", (0, 16, 24, 33))
def test_the_bound_detects_a_missing_tile(exponent: int) -> None:
    """A sum of normal numbers without some of them is off by the square root of their number, on average."""
    n = 1 << exponent
    answer = settle_reference(KERNEL, problem_of(n), gpu())
    bound = tolerance(answer.reduction, answer.accumulate, "float32", answer.tolerance)
    expected, magnitude = math.sqrt(n), math.sqrt(2 / math.pi) * n
    scale = math.sqrt(expected**2 + magnitude**2 / bound.reduction)
    allowed = bound.norm_coefficient * norm_allowance(1) * scale
    # 40 sqrt(n) units of rounding: 128 threads, each of which adds up 2^15 numbers one after the other.
    assert allowed > 4 * 40 * 2.0**-24 * math.sqrt(n)
    assert allowed < (0.2 if n <= 1 << 24 else 20)
    exact = settle_reference(KERNEL, problem_of(n, op="max"), gpu())
    assert exact.tolerance < 1e-6


# -- run on the host

CASES: list[tuple[str, dict[str, Any]]] = [
    ("one_block", {"block_size": 128, "vector_width": 4, "items_per_thread": 2}),
    ("two_pass", {"block_size": 128, "vector_width": 2, "items_per_thread": 4, "blocks_per_sm": 2}),
    ("ticket", {"block_size": 128, "vector_width": 4, "items_per_thread": 1, "batches_per_block": 4}),
    ("ticket", {"block_size": 256, "vector_width": 8, "items_per_thread": 4, "batches_per_block": 1}),
    ("mailbox", {"block_size": 256, "vector_width": 4, "items_per_thread": 2, "blocks_per_sm": 3}),
    ("mailbox", {"block_size": 128, "vector_width": 2, "blocks_per_sm": 8, "prefetch": True}),
    ("mailbox", {"block_size": 256, "blocks_per_sm": 2, "order": "contiguous", "prefetch": True}),
    ("cluster", {"block_size": 128, "vector_width": 4, "items_per_thread": 2, "cluster_size": 4}),
    ("bulk", {"block_size": 128, "items_per_thread": 2, "stages": 3, "blocks_per_sm": 2}),
]
"""Small blocks, since each thread is a fiber; what is not named is the default."""


def on_host(
    folder: Path,
    variant: str,
    parameters: Mapping[str, Any],
    dtype: str,
    op: str,
    edit: Callable[[str], str] = str,
) -> HostConfiguration:
    """Build a configuration for the CPU, with a grid for three SMs."""
    device = dataclasses.replace(gpu(), sm_count=3)
    configuration = Configuration.of(variant, {**KERNEL.variants[variant].defaults, **parameters})
    return HostConfiguration(KERNEL, problem_of(1000, dtype, op), device, configuration, folder, edit)


def reduced(
    host: HostConfiguration,
    numbers: npt.NDArray[np.float32],
    schedule: Schedule,
    scratch: Mapping[str, HostArray] | None = None,
) -> np.float32:
    """Run it once, on new scratch memory if none is given."""
    sizes = {"n": len(numbers)}
    alignment = host.plan(sizes).launches[0].alignment
    x = HostArray(len(numbers), host.problem.dtypes["input"], alignment)
    x.fill(numbers)
    memory = {**(scratch or host.scratch(sizes)), "x": x, "out": HostArray(1, "float32", 4)}
    host.run(sizes, memory, schedule)
    return np.float32(memory["out"].elements[0])


def schedules(variant: str) -> list[Schedule]:
    """All blocks at once, in two orders; and few at a time, where none waits for one that has not started."""
    few = Schedule(3, resident=1 << 20 if variant == "cluster" else 2, shuffled=variant == "ticket")
    return [Schedule(1), Schedule(2, shuffled=True), few]


@needs_gpp
@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{v}-{i}" for i, (v, _) in enumerate(CASES)])
def test_every_element_counts_once(case: int, tmp_path: Path) -> None:
    """Small whole numbers add up without rounding, so that the result must be exact; scratch serves many launches."""
    variant, parameters = CASES[case]
    dtype, op = ("float32", "bfloat16")[case % 2], OPERATIONS[case % 3]
    if parameters.get("vector_width") == 8:
        dtype = "bfloat16"
    host = on_host(tmp_path, variant, parameters, dtype, op)
    values = host.configuration.values
    width = int(values.get("vector_width", 16 // ITEMSIZE[dtype]))
    tile = int(values["block_size"]) * width * int(values["items_per_thread"])
    tile *= int(values.get("batches_per_block", 1))
    rng = np.random.default_rng(case)
    for n in (1, tile - 1, tile, 2 * tile + width + 1, 7 * tile + 5):
        numbers = rng.integers(-8, 9, n).astype(np.float32)
        memory = host.scratch({"n": n})
        total = np.float32(numbers.sum(dtype=np.float64))
        expected = {"sum": total, "max": numbers.max(), "mean": total / np.float32(n)}[op]
        for schedule in schedules(variant):
            assert reduced(host, numbers, schedule, memory) == expected, (n, schedule)


@needs_gpp
@pytest.mark.parametrize("case", (1, 2, 6, 7, 8))
def test_the_order_of_additions_is_always_the_same(case: int, tmp_path: Path) -> None:
    """Normal numbers: another order would give other last bits."""
    variant, parameters = CASES[case]
    host = on_host(tmp_path, variant, parameters, "float32", "sum")
    numbers = np.random.default_rng(case).standard_normal(30_011).astype(np.float32)
    found = set()
    for seed in range(3):
        few = Schedule(seed, resident=2 + seed, shuffled=variant == "ticket")
        schedule = Schedule(seed, shuffled=True) if seed % 2 or variant == "cluster" else few
        found.add(float(reduced(host, numbers, schedule)))
    assert len(found) == 1
    assert found.pop() == pytest.approx(float(numbers.sum(dtype=np.float64)), abs=1e-3)


@needs_gpp
@pytest.mark.parametrize("case", (0, 4, 8))
def test_a_nan_is_the_maximum(case: int, tmp_path: Path) -> None:
    variant, parameters = CASES[case]
    host = on_host(tmp_path, variant, parameters, "float32", "max")
    n = 9001
    for place in (None, 0, n - 1):
        numbers = np.random.default_rng(case).standard_normal(n).astype(np.float32) - np.float32(100.0)
        if place is not None:
            numbers[place] = np.nan
        found = reduced(host, numbers, Schedule())
        assert found == numbers.max() if place is None else np.isnan(found)


@needs_gpp
@pytest.mark.parametrize("op", OPERATIONS)
def test_reference_is_right(op: str, tmp_path: Path) -> None:
    spec = KERNEL.reference.cuda
    assert isinstance(spec, LaunchSpec)
    source, entry = render_launch(KERNEL, spec, problem_of(1000, op=op), gpu(), Configuration("", ()))
    smaller = source.replace("BLOCKS = 1024, THREADS = 256", "BLOCKS = 8, THREADS = 32")
    assert smaller != source
    kernel = HostKernel(smaller, entry, tmp_path)
    for n in (1, 31, 1000, 20_011):
        numbers = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        x, out, magnitude = HostArray(n, "float32", 4), HostArray(1, "float64", 8), HostArray(1, "float32", 4)
        x.fill(numbers)
        for schedule in (Schedule(1), Schedule(2, resident=2, shuffled=True)):
            kernel(8, 32, 0, schedule, x, out, magnitude, np.int64(n))
            wide = numbers.astype(np.float64)
            expected = {"sum": wide.sum(), "max": wide.max(), "mean": wide.mean()}[op]
            size = {"sum": abs(wide).sum(), "max": abs(wide.max()), "mean": abs(wide).mean()}[op]
            assert out.elements[0] == pytest.approx(expected, rel=1e-12, abs=1e-12 * n)
            assert magnitude.elements[0] == pytest.approx(size, rel=1e-6)


@needs_gpp
def test_blocks_of_a_cluster_that_do_not_wait_are_found(tmp_path: Path) -> None:
    """What passes above would not pass with a fault in it."""
    parameters = next(given for name, given in CASES if name == "cluster")

    def broken(source: str) -> str:
        assert "wait_for_senders(&barrier);\n    mine" in source
        return source.replace("wait_for_senders(&barrier);\n    mine", "mine")

    host = on_host(tmp_path, "cluster", parameters, "float32", "sum", broken)
    numbers = np.arange(20_011, dtype=np.float32) % 9 - 4
    results = set()
    for schedule in schedules("cluster"):
        try:
            results.add(float(reduced(host, numbers, schedule)))
        except (AssertionError, KernelFault):
            results.add(math.inf)
    assert results != {float(numbers.sum(dtype=np.float64))}
