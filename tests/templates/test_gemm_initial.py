"""Initial configurations of gemm: valid wherever a rule holds, some for every card, and compiled without spilling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache

import pytest

from tests.templates.sources import GENERATIONS
from tuner.children.nvrtc import compile_source
from tuner.core.model import Gpu, Problem
from tuner.kernel.initial import MAX_INITIAL, Contains, Settled, settle
from tuner.kernel.load import load_kernel
from tuner.kernel.render import render_launch
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import Allowed, SearchSpace, narrow

GEMM = load_kernel("gemm")
WASTE = "of several rounds at most"
"""The beginning of the space's own condition: how much of the GPU may be idle."""
SQUARES = [(n, n, n) for n in (1, 7, 64, 512, 1000, 1024, 2048, 4096, 4104, 8192, 16384)]
FEW_ROWS = [(m, 8192, 8192) for m in (1, 3, 8, 16, 17, 64, 100, 128, 200)]
OTHERS = [
    (16, 1024, 1024), (32, 28672, 8192), (4096, 11008, 4096), (8192, 28672, 8192), (4096, 16, 4096),
    (512, 512, 65536), (256, 256, 65536), (128, 128, 16384), (4096, 4096, 128), (65536, 256, 1024),
    (16, 4096, 1152), (100, 5120, 576), (300, 300, 448), (4095, 4097, 4093), (4095, 4097, 127), (1000, 1000, 1001),
    (2048, 24, 40), (13752, 272, 2720), (19648, 64, 14592), (17344, 192, 192), (17344, 191, 193), (20, 4097, 4095),
    (16, 2048, 8192), (33, 1024, 1024), (48, 4096, 4096), (64, 512, 8192),
]  # fmt: skip
FEW_COLUMNS = [(18, 1, 693), (8192, 1, 8192), (1000, 3, 777)]
SMALL_K = [(582, 731, 1), (594, 5752, 25), (4096, 4096, 8)]
SHAPES = [*SQUARES, *FEW_ROWS, *OTHERS, *FEW_COLUMNS, *SMALL_K]
COMPILED = [(90, "bfloat16", (4104, 4104, 4104))]


def problems(gpu: Gpu) -> Iterator[Problem]:
    dtypes = ("float32", "float16", "bfloat16") if gpu.cc >= 80 else ("float32", "float16")
    for number, shape in enumerate(SHAPES):
        half = dtypes[1 + number % (len(dtypes) - 1)]
        for dtype in (half, "float32") if number % 3 == 0 else (half,):
            yield problem(shape, dtype, ("nn", "nt")[(number // 2 + (dtype == "float32") + gpu.cc // 10) % 2])
    for shape, dtype in itertools.product(FEW_COLUMNS, dtypes):
        yield problem(shape, dtype, "tn")


def problem(shape: tuple[int, int, int], dtype: str, layout: str = "nn") -> Problem:
    return GEMM.problem(dict(zip("mnk", shape, strict=True)), {"": dtype}, {"layout": layout})


def everything(of: Problem, gpu: Gpu) -> Contains:
    """Return what a search of a problem may try, without enumerating it."""
    return Allowed(GEMM, of, gpu, narrow(GEMM, (), {})).contains


@cache
def settled(cc: int) -> list[tuple[Problem, list[Settled]]]:
    gpu = ARCHITECTURES[cc]
    return [(p, settle(GEMM, p, gpu, everything(p, gpu))) for p in problems(gpu)]


def test_everything_is_the_space() -> None:
    """The short cut of these tests gives what a search would be given."""
    p, gpu = problem((16, 8192, 8192), "float16"), ARCHITECTURES[90]
    space = SearchSpace.from_kernel(GEMM, p, gpu)
    assert settle(GEMM, p, gpu, everything(p, gpu)) == settle(GEMM, p, gpu, space.contains)


@pytest.mark.parametrize("cc", GENERATIONS)
def test_what_holds_is_valid_and_every_problem_has_some(cc: int) -> None:
    """A rule outside of the space would be wrong silently."""
    assert any(reason.startswith(WASTE) for reason, _ in GEMM.variants["wgmma"].pruning_rules)
    beginnings = ("holds when", "the same as one before it", "beyond the first", f"does not meet '{WASTE}")
    for p, entries in settled(cc):
        for one in entries:
            if one.configuration is None:
                allowed = (*beginnings, f"{one.spec.variant} needs")
                assert one.refused.startswith(allowed), f"{p} on {cc}: {one.spec.doc}: {one.refused}"
        count = sum(one.configuration is not None for one in entries)
        worth = math.prod(p.sizes.values()) >= 1 << 20  # of something smaller the default is as good a start
        assert worth <= count <= MAX_INITIAL, f"{p} on {cc}"


def test_every_rule_is_of_use_and_has_its_reason() -> None:
    linear, gpu = load_kernel("linear"), ARCHITECTURES[90]
    wide = linear.problem(dtypes={"input": "bfloat16", "output": "float32"}, options={"op": "x"})
    of_linear = settle(linear, wide, gpu, Allowed(linear, wide, gpu, narrow(linear, (), {})).contains)
    of_gemm = (one for cc in GENERATIONS for _, entries in settled(cc) for one in entries)
    used = {one.spec.doc for one in (*of_gemm, *of_linear) if one.configuration}
    assert [spec.doc for spec in GEMM.initial if not spec.doc or spec.doc not in used] == []


def test_three_warpgroups_take_what_is_one_wave_of_wide_tiles() -> None:
    of, gpu = problem((12512, 408, 1632), "bfloat16", "nt"), ARCHITECTURES[90]
    tried = [one.configuration for one in settle(GEMM, of, gpu, everything(of, gpu)) if one.configuration]
    wide = {"consumers": 3, "block_m": 192, "block_n": 208, "swap_ab": False}
    assert any(wide.items() <= dict(one.values).items() for one in tried)


@pytest.mark.parametrize(("cc", "dtype", "shape"), COMPILED)
def test_none_of_them_spills(cc: int, dtype: str, shape: tuple[int, int, int]) -> None:
    p, gpu = problem(shape, dtype), ARCHITECTURES[cc]
    tried = [one.configuration for one in settle(GEMM, p, gpu, everything(p, gpu)) if one.configuration]
    assert tried
    for configuration in tried[::10]:
        for launch in GEMM.variants[configuration.variant].launches:
            source, entry = render_launch(GEMM, launch, p, gpu, configuration)
            compiled = compile_source(source, entry, gpu.arch, GEMM.compile_options)
            assert compiled.resources.spill_bytes == 0, configuration
