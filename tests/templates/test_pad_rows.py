"""The copies of matrices whose rows start at odd places, run on the CPU: any pitch, and nothing read behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tuner.core.model import Configuration, Problem
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, HostKernel, Schedule
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.runtime.launches import Launch

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]


def problem(m: int, n: int, k: int, layout: str = "nn") -> Problem:
    return GEMM.problem({"m": m, "n": n, "k": k}, {"": "float16"}, {"layout": layout})


def configuration(of: Problem) -> Configuration:
    return SearchSpace.from_kernel(GEMM, of, HOPPER, ["wgmma_padded"]).default


def names_of(launch: Launch, kind: str) -> list[str]:
    return [name for given, name, _ in launch.arguments if given == kind]


@pytest.fixture(scope="module")
def kernels() -> dict[tuple[str, str], HostKernel]:
    """Kernels by source and entry: most problems have the same one."""
    return {}


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    ("m", "n", "k", "layout"),
    [
        (5, 16, 7, "nn"),
        (3, 1, 1, "nn"),
        (67, 129, 131, "nt"),
        (1, 1029, 261, "nn"),
        (13, 40, 9, "tn"),
        (33, 16, 514, "tt"),
    ],
)
def test_rows_are_copied_to_multiples_of_16_bytes(
    kernels: dict[tuple[str, str], HostKernel], tmp_path: Path, m: int, n: int, k: int, layout: str
) -> None:
    of = problem(m, n, k, layout)
    chosen = configuration(of)
    plan = make_plan(GEMM, of, HOPPER, chosen)
    source, entry = render(GEMM, of, HOPPER, chosen)[0]
    if (source, entry) not in kernels:
        kernels[source, entry] = HostKernel(source, entry, tmp_path)
    draw = np.random.default_rng(7)
    shapes = {"a": (m, k) if layout[0] == "n" else (k, m), "b": (k, n) if layout[1] == "n" else (n, k)}
    memory = {name: HostArray(rows * columns, "float16", 16) for name, (rows, columns) in shapes.items()}
    for array in memory.values():
        array.fill(draw.standard_normal(array.elements.size))
    for buffer in plan.scratch:
        memory[buffer.name] = HostArray(buffer.count, buffer.dtype, 16)
    launch = plan.launches[0]
    arguments = [
        memory[name] if kind == "buffer" else np.dtype(name).type(value)
        for kind, name, value in launch.arguments
    ]
    kernels[source, entry](launch.grid[0], launch.threads, 0, Schedule(seed=m), *arguments)
    for name, (rows, columns) in shapes.items():
        assert (f"{name}_padded" in memory) == (columns % 8 != 0)
        if columns % 8:
            expected = np.zeros((rows, -(-columns // 64) * 64), np.float16)
            expected[:, :columns] = memory[name].elements.reshape(rows, columns)
            assert np.array_equal(memory[f"{name}_padded"].elements.reshape(expected.shape), expected), name


def test_only_what_a_problem_needs_is_copied() -> None:
    for layout, n, k, scratch, maps in [
        ("nn", 4097, 4093, ["a_padded", "b_padded"], ["a_padded", "b_padded"]),
        ("nn", 4096, 4093, ["a_padded"], ["a_padded", "b"]),
        ("nn", 4097, 4096, ["b_padded"], ["a", "b_padded"]),
        ("nt", 4096, 4093, ["a_padded", "b_padded"], ["a_padded", "b_padded"]),
        ("nt", 4097, 4096, [], ["a", "b"]),
        ("tn", 4097, 4096, ["a_padded", "b_padded"], ["a_padded", "b_padded"]),
        ("tt", 4097, 4096, ["a_padded"], ["a_padded", "b"]),
    ]:
        of = problem(4095, n, k, layout)
        plan = make_plan(GEMM, of, HOPPER, configuration(of))
        assert [buffer.name for buffer in plan.scratch] == scratch
        assert len(plan.launches) == len(render(GEMM, of, HOPPER, configuration(of))) == (2 if scratch else 1)
        assert names_of(plan.launches[-1], "map") == maps
        if scratch:
            absent = {"a_padded", "b_padded"} - set(scratch)
            pad = plan.launches[0]
            sizes = [4095, n, k]
            assert [value for kind, _, value in pad.arguments if kind == "scalar"] == [0] * len(
                absent
            ) + sizes
