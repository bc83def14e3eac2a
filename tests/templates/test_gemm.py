"""The templates of gemm, compiled for every architecture: what can be known of them without a GPU."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compiled_once import front_end
from tests.templates.sources import GENERATIONS, broken, compiled, draw, ptx, widest_load
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.load import load_kernel
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.variant_spec import VariantSpec
from tuner.runtime.dtypes import ITEMSIZE

GEMM = load_kernel("gemm")
DTYPES = ("float16", "bfloat16", "float32")
LAYOUTS = ("nn", "nt", "tn", "tt")
ELSEWHERE = ("wgmma", "gemv", "mma_sync_padded", "mma_sync_cluster_k", "small_k")
EVERYWHERE = [name for name in GEMM.variants if not name.startswith(ELSEWHERE)]
"""Variants of every architecture and size. The others have tests of their own, as in test_wgmma.py and test_gemv.py."""


def problem(dtype: str, layout: str = "nn", size: int = 4096) -> Problem:
    return GEMM.problem(sizes=dict.fromkeys("mnk", size), dtypes={"": dtype}, options={"layout": layout})


def usable(variant: VariantSpec, dtype: str, layout: str, device: Gpu) -> bool:
    return variant.requires is None or bool(
        variant.requires.evaluate(GEMM.environment(problem(dtype, layout), device))
    )


def defaults(variant: VariantSpec, cc: int, size: int = 4096) -> dict[str, Any]:
    # Without cp.async a tile waits in registers, for one step only: a third stage is refused.
    tensor_cores = variant.name.startswith("mma_sync")
    stages = {"stages": 2} if cc == 75 and tensor_cores else {}
    return {**variant.defaults, **stages, **({"vector_width": 1} if size == 1 and tensor_cores else {})}


def default_cases() -> Iterator[Any]:
    # Of every variant one layout, dtype and generation; the variants together have them all.
    for turn, name in enumerate(EVERYWHERE):
        variant = GEMM.variants[name]
        dtypes = [dtype for dtype in DTYPES if usable(variant, dtype, "nn", ARCHITECTURES[90])]
        dtype, layout, cc = dtypes[turn % len(dtypes)], LAYOUTS[turn % 4], GENERATIONS[turn % 4]
        cc = cc if usable(variant, dtype, layout, ARCHITECTURES[cc]) else 90
        yield pytest.param(name, dtype, layout, cc, id=f"{name}-{dtype}-{layout}-{cc}")


@pytest.mark.parametrize(("name", "dtype", "layout", "cc"), list(default_cases()))
def test_defaults_compile_without_spills(name: str, dtype: str, layout: str, cc: int) -> None:
    variant, device = GEMM.variants[name], ARCHITECTURES[cc]
    configuration = Configuration.of(name, defaults(variant, cc))
    result, *_ = compiled(GEMM, configuration, problem(dtype, layout), device)
    assert result.resources.spill_bytes == 0
    assert result.resources.stack_bytes == 0


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_defaults_are_valid_everywhere(cc: int) -> None:
    for variant in map(GEMM.variants.__getitem__, EVERYWHERE):
        for dtype in DTYPES:
            if not usable(variant, dtype, "nn", ARCHITECTURES[cc]):
                assert variant.name.startswith("mma_sync") and (
                    dtype == "float32" or (cc, dtype) == (75, "bfloat16")
                )
                continue
            for layout in [one for one in LAYOUTS if usable(variant, dtype, one, ARCHITECTURES[cc])]:
                for size in (1, 4096):
                    of = problem(dtype, layout, size)
                    assert not broken(GEMM, variant, defaults(variant, cc, size), of, ARCHITECTURES[cc])


@pytest.mark.parametrize("name", EVERYWHERE)
def test_samples_are_code(name: str) -> None:
    variant = GEMM.variants[name]
    dtypes = [dtype for dtype in DTYPES if usable(variant, dtype, "nn", ARCHITECTURES[90])]
    dtype = dtypes[EVERYWHERE.index(name) % len(dtypes)]
    rng = random.Random(f"{name} {dtype}")
    everywhere = itertools.product(LAYOUTS, ARCHITECTURES.values())
    possible = [(layout, device) for layout, device in everywhere if usable(variant, dtype, layout, device)]
    layout, device = rng.choice(possible)
    of = problem(dtype, layout)
    parameters = draw(GEMM, variant, of, device, rng)
    for source, _ in render(GEMM, of, device, Configuration.of(name, parameters)):
        assert not front_end(source, device.arch), (parameters, device.arch)


@pytest.mark.parametrize(("dtype", "width"), [("bfloat16", 8)])
def test_vector_width_is_the_width_of_global_loads(dtype: str, width: int) -> None:
    variant, of, device = GEMM.variants["register_tiled"], problem(dtype), ARCHITECTURES[80]
    small = {"block_m": 32, "block_n": 32, "thread_m": 4, "thread_n": 4}
    parameters = {**variant.defaults, **small, "vector_width": width}
    assert not broken(GEMM, variant, parameters, of, device)
    source, entry = render(GEMM, of, device, Configuration.of(variant.name, parameters))[0]
    assert widest_load(ptx(source, entry, 80)) == width * ITEMSIZE[dtype]


def test_tensor_cores_are_fed_16_bytes_at_a_time() -> None:
    variant, of = GEMM.variants["mma_sync"], problem("float16")
    new, entry = render(GEMM, of, ARCHITECTURES[80], Configuration.of("mma_sync", variant.defaults))[0]
    text = ptx(new, entry, 80)
    assert re.search(r"cp\.async\.cg\.shared\.global \[%\w+\], \[%\w+\], 16, ", text)
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in text
    old, entry = render(GEMM, of, ARCHITECTURES[75], Configuration.of("mma_sync", variant.defaults))[0]
    text = ptx(old, entry, 75)
    assert "cp.async" not in text
    assert widest_load(text) == 16
    assert "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32" in text


def test_no_source_needs_a_header() -> None:
    for variant in GEMM.variants.values():
        for source, _ in render(
            GEMM, problem("float16"), ARCHITECTURES[90], Configuration.of(variant.name, variant.defaults)
        ):
            assert "#include" not in source


def test_every_variant_leaves_a_space_worth_searching() -> None:
    space = SearchSpace.from_kernel(GEMM, problem("float16"), ARCHITECTURES[90])
    for dtype, variant in (("float16", "mma_sync"), ("float32", "register_tiled")):
        default = SearchSpace.from_kernel(GEMM, problem(dtype), ARCHITECTURES[90]).default
        assert default == Configuration.of(variant, GEMM.variants[variant].defaults)
    counts = dict.fromkeys(GEMM.variants, 0) | {variant.name: len(variant) for variant in space.variants}
    few = [
        name
        for name in counts
        if name.startswith(("wgmma_skinny_m", "gemv", "small_k", "mma_sync_cluster_k")) or "padded" in name
    ]
    assert all(100 <= count <= 150_000 for name, count in counts.items() if name not in few), counts
    assert not any(counts[name] for name in few)  # 4096 is not few, and rows begin at multiples of 16 bytes
