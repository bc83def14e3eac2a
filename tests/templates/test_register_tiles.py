"""Register tiles run on the host in many orders, and what their inner loop is compiled to. No GPU is needed."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.on_host import HostConfiguration, worst_error
from tuner.children.nvrtc import compile_source
from tuner.core.model import Configuration, Problem
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import Schedule
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import invalid_reason
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]

SMALL = {"block_m": 32, "block_n": 64, "thread_m": 4, "thread_n": 8, "block_k": 8}
"""A block of two warps: its edges come soon."""
CASES = {
    "register_tiled-float32-nt": ("register_tiled", {**SMALL, "prefetch": False, "group_m": 8}),
    "register_tiled-float32-nn-tall": (
        "register_tiled",
        {**SMALL, "block_m": 64, "block_n": 32, "thread_m": 8, "thread_n": 4, "lanes_m": 8, "padding": 0},
    ),
    "register_tiled-bfloat16-nn": (
        "register_tiled",
        {**SMALL, "block_k": 16, "vector_width": 8, "double_buffer": False, "prefetch": False},
    ),
    "register_tiled-float16-tn": (
        "register_tiled",
        {**SMALL, "block_m": 64, "block_n": 32, "thread_m": 8, "thread_n": 4, "vector_width": 4, "padding": 0},
    ),
    "register_tiled-bfloat16-tt": ("register_tiled", {**SMALL, "block_k": 16, "vector_width": 8}),
    "split_k-float32-nn": ("split_k", {**SMALL, "split_k": 3, "vector_width": 2}),
}  # fmt: skip
SIZES = ((1, 1, 1), (40, 72, 24), (35, 61, 19), (32, 64, 16))
"""m, n, k: less than a tile, whole vectors but no whole tile, none of it even, whole tiles."""

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="g++ compiles the kernels for the host")


def problem(dtype: str, layout: str, sizes: tuple[int, int, int] = (64, 64, 64)) -> Problem:
    return GEMM.problem(dict(zip("mnk", sizes, strict=True)), {"": dtype}, {"layout": layout})


@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_products_at_edge_case_sizes(case: str, tmp_path: Path) -> None:
    _, dtype, layout, *_ = case.split("-")
    variant, parameters = CASES[case]
    configuration = Configuration.of(variant, {**GEMM.variants[variant].defaults, **parameters})
    of = problem(dtype, layout)
    assert not (reason := invalid_reason(GEMM, of, HOPPER, configuration)), reason
    host = HostConfiguration(GEMM, of, HOPPER, configuration, tmp_path)
    for number, sizes in enumerate(SIZES):
        schedule = Schedule(seed=number, resident=3, shuffled=True)
        assert worst_error(host, dict(zip("mnk", sizes, strict=True)), schedule) <= 1, sizes


# -- the inner loop


def multiply_adds(code: bytes) -> list[tuple[int, int, int, int, int]]:
    """Find ``FFMA R, R, R, R`` in a cubin: registers of result, factors and addend, and which operands are kept.

    Instructions are 128 bits since Volta; the fields are where ``nvdisasm`` shows them to be.
    """
    found = []
    for low, high in struct.iter_unpack("<QQ", code[: len(code) // 16 * 16]):
        if low & 0xFFF == 0x223:
            registers = (low >> 16 & 255, low >> 24 & 255, low >> 32 & 255, high & 255)
            found.append((*registers, high >> 58 & 15))
    return found


def same_bank(code: bytes) -> float:
    """Return the share of multiply-adds that read two new operands from one register bank."""
    count = clashes = 0
    kept: dict[int, int] = {}
    for _, *operands, keep in multiply_adds(code):
        new = [register for slot, register in enumerate(operands) if kept.get(slot) != register]
        kept = {slot: register for slot, register in enumerate(operands) if keep >> slot & 1}
        count += 1
        clashes += max(sum(register % 2 == bank for register in set(new)) for bank in (0, 1)) > 1
    return clashes / count


def test_sums_lie_in_other_banks_than_their_factors() -> None:
    """As NVRTC leaves it, more than six of ten products read two operands from one bank."""
    wide = {"block_n": 256, "thread_m": 16, "block_k": 8, "separate_banks": True}
    configuration = Configuration.of("register_tiled", {**GEMM.variants["register_tiled"].defaults, **wide})
    ((source, entry),) = render(GEMM, problem("float32", "nn", (4096,) * 3), HOPPER, configuration)
    cubin = compile_source(source, entry, HOPPER.arch).cubin
    assert same_bank(cubin) < 0.2
    # It is a share of all products: those of a step, and of one k for what fills no whole step.
    assert len(multiply_adds(cubin)) == (8 + 1) * 16 * 8
