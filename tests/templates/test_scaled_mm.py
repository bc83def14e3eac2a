"""Products of 8-bit floating point with scales, on the CPU, and what NVRTC makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.on_host import product_of
from tests.templates.sm90 import HOPPER, Emulated
from tests.templates.test_wgmma import SERIALISED
from tuner.children.nvrtc import compile_source
from tuner.core.model import Configuration, Problem, Value
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import Schedule
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import invalid_reason
from tuner.kernel.reference import settle_reference, tolerance
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES

SCALED = load_kernel("scaled_mm")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs g++")


def product(
    sizes: tuple[int, int, int], scales: str, accumulation: str = "promoted", output: str = "bfloat16"
) -> Problem:
    of_sizes = dict(zip(("m", "n", "k"), sizes, strict=True))
    return SCALED.problem(of_sizes, {"output": output}, {"scales": scales, "accumulation": accumulation})


def chosen(variant: str, **values: Value) -> Configuration:
    return Configuration.of(variant, {**SCALED.variants[variant].defaults, **values})


ON_HOPPER: dict[str, tuple[Problem, Configuration]] = {
    "a tile is written meanwhile": (
        product((330, 136, 528), "tensor", "fast", "float16"),
        chosen("wgmma", block_m=64, block_n=112, consumers=1, stages=6, epilogue="overlapped"),
    ),
    "promoted, written meanwhile": (
        product((330, 200, 528), "blocks"),
        chosen("wgmma", block_m=128, block_n=64, stages=4, epilogue="overlapped", cluster_m=2),
    ),
    "96 columns, which share no block": (
        product((200, 200, 528), "blocks"), chosen("wgmma", block_m=128, block_n=96, stages=4)
    ),
    "few rows, the ring wraps": (
        product((40, 200, 1168), "blocks", output="float16"),
        chosen("wgmma", block_m=24, block_n=64, consumers=1, swap_ab=True, stages=4),
    ),
    "the ring wraps and begins again": (
        product((66, 72, 1040), "blocks"), chosen("wgmma", block_m=64, block_n=64, consumers=1, stages=4)
    ),
    "two instructions, the ring wraps": (
        product((260, 16, 1040), "blocks"), chosen("wgmma", block_m=256, block_n=128, stages=3)
    ),
    "promoted, in turn": (
        product((66, 72, 1040), "blocks"),
        chosen("wgmma", block_m=64, block_n=64, stages=4, schedule="pingpong"),
    ),
}  # fmt: skip
ANYWHERE: dict[str, tuple[Problem, Configuration]] = {
    "tiled": (product((35, 37, 150), "blocks", output="float32"), chosen("tiled", block_m=32, block_n=32)),
    "mma_sync": (
        product((40, 37, 144), "blocks"),
        chosen("mma_sync", block_m=32, block_n=32, warps_m=1, warps_n=2, stages=2),
    ),
    "mma_sync, fast": (
        product((33, 70, 272), "rows", "fast", "float16"),
        chosen("mma_sync", block_m=32, block_n=64, warps_m=2, warps_n=2),
    ),
}


@needs_compiler
@pytest.mark.parametrize("case", ON_HOPPER)
def test_hoppers_products_have_the_scales_of_their_places(case: str, tmp_path: Path) -> None:
    of, configuration = ON_HOPPER[case]
    sms = 1 if "again" in case or "in turn" in case else 4
    kernel = Emulated(of, configuration, replace(HOPPER, sm_count=sms), tmp_path)
    assert np.array_equal(*kernel.run(Schedule(1, shuffled=True)))


@needs_compiler
@pytest.mark.parametrize("case", ANYWHERE)
def test_products_have_the_scales_of_their_places(case: str, tmp_path: Path) -> None:
    of, configuration = ANYWHERE[case]
    assert np.array_equal(*product_of(SCALED, of, HOPPER, configuration, tmp_path))


COMPILED: dict[str, tuple[int, Problem, Configuration]] = {
    "promoted by blocks": (
        90,
        product((4096, 7168, 16384), "blocks"),
        chosen("wgmma", block_m=256, block_n=128, stages=4, cluster_n=2),
    ),
    "fast": (
        90,
        product((4096, 4096, 4096), "rows", "fast"),
        chosen("wgmma", block_m=128, block_n=256, stages=4, cluster_m=2),
    ),
}


@pytest.mark.parametrize("case", COMPILED)
def test_nothing_spills_or_waits(case: str) -> None:
    cc, of, configuration = COMPILED[case]
    gpu = ARCHITECTURES[cc]
    assert not (reason := invalid_reason(SCALED, of, gpu, configuration)), reason
    [(source, entry)] = render(SCALED, of, gpu, configuration)
    result = compile_source(source, entry, gpu.arch)
    assert not any(code in result.log for code in (*SERIALISED, "warning")), result.log
    assert not result.resources.spill_bytes


def test_the_bound_grows_with_what_the_tensor_cores_add_up() -> None:
    """By 2^-15 of the magnitude for each of k, but at most for 128 where sums are promoted."""
    for accumulation, k, depth in (("promoted", 64, 64), ("promoted", 8192, 128), ("fast", 8192, 8192)):
        of = product((64, 64, k), "tensor", accumulation)
        bound = settle_reference(SCALED, of, HOPPER).tolerance_of("bfloat16")
        in_float32 = tolerance(k, "float32", "bfloat16")
        assert bound.coefficient == pytest.approx(in_float32.coefficient + depth * 2.0**-15)
        assert bound.unit == in_float32.unit
