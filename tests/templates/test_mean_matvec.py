"""The templates of mean_matvec, compiled for every architecture, and what its reference allows."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.compiled_once import front_end
from tests.templates.mean_matvec import DTYPES, KERNEL, LAYOUTS, PRODUCTS, mean_share, problem
from tests.templates.sources import compiled, draw, ptx, widest_load
from tuner.core.model import Configuration
from tuner.kernel.plan import invalid_reason, pruning_reason
from tuner.kernel.reference import tolerance
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.runtime.dtypes import ITEMSIZE

# -- what compiles


DEFAULTS = [
    ("first", "float32", "nml", "float32", 75),
    ("coalesced", "float16", "mnl", "tf32", 80),
    ("mean_then_product", "bfloat16", "nml", "float32", 120),
    ("fused", "float32", "nml", "tf32", 90),
    ("fused_bulk", "float16", "mnl", "tf32", 90),
]
"""Of every variant one generation and kind of problem; the variants together have them all."""


@pytest.mark.parametrize(("name", "dtype", "layout", "product", "cc"), DEFAULTS)
def test_defaults_compile_without_spills(name: str, dtype: str, layout: str, product: str, cc: int) -> None:
    of, device = problem(dtype, layout, product), ARCHITECTURES[cc]
    default = Configuration.of(name, KERNEL.variants[name].defaults)
    if cc > 100 and invalid_reason(KERNEL, of, device, default):  # a block has less shared memory there
        default = SearchSpace.from_kernel(KERNEL, of, device, [name]).default
    assert not invalid_reason(KERNEL, of, device, default)
    assert not pruning_reason(KERNEL, of, device, default)
    for result in compiled(KERNEL, default, of, device):
        assert result.resources.spill_bytes == 0
        assert result.resources.stack_bytes == 0


@pytest.mark.parametrize(("turn", "name"), list(enumerate(KERNEL.variants)))
def test_samples_are_code(name: str, turn: int) -> None:
    variant, dtype = KERNEL.variants[name], DTYPES[turn % 3]
    rng = random.Random(f"{name} {dtype}")
    layout, product = rng.choice([("nml", "float32"), ("mnl", "tf32")])
    of = problem(dtype, layout, product)
    devices = [d for d in ARCHITECTURES.values() if variant in KERNEL.usable_variants(of, d)[0]]
    device = rng.choice(devices)
    parameters = draw(KERNEL, variant, of, device, rng)
    for source, _ in render(KERNEL, of, device, Configuration.of(name, parameters)):
        assert not front_end(source, device.arch), parameters


def test_what_each_architecture_has() -> None:
    def names(cc: int, product: str) -> set[str]:
        return {v.name for v in KERNEL.usable_variants(problem(product=product), ARCHITECTURES[cc])[0]}

    everywhere = {"first", "coalesced"}
    assert names(75, "float32") == names(80, "tf32") == everywhere | {"mean_then_product", "fused"}
    assert names(75, "tf32") == everywhere  # float32 products are allowed where tf32 ones are
    assert names(90, "tf32") == names(120, "float32") == set(KERNEL.variants)


def test_every_variant_leaves_a_space_worth_searching() -> None:
    space = SearchSpace.from_kernel(KERNEL, problem(), ARCHITECTURES[90])
    assert space.default == Configuration.of(
        "mean_then_product", KERNEL.variants["mean_then_product"].defaults
    )
    counts = {variant.name: len(variant) for variant in space.variants}
    assert counts["first"] >= 6 and counts["coalesced"] >= 25
    assert all(counts[name] >= 10_000 for name in ("mean_then_product", "fused", "fused_bulk"))


@pytest.mark.parametrize(("dtype", "width"), [("float16", 2)])
def test_vector_width_is_the_width_of_global_loads(dtype: str, width: int) -> None:
    of, device = problem(dtype), ARCHITECTURES[80]
    parameters = {**KERNEL.variants["mean_then_product"].defaults, "vector_width": width, "parts": 1}
    source, entry = render(KERNEL, of, device, Configuration.of("mean_then_product", parameters))[0]
    assert widest_load(ptx(source, entry, 80)) == width * ITEMSIZE[dtype]


def test_products_are_of_the_kind_that_is_asked_for() -> None:
    for name in ("fused", "fused_bulk"):
        for product in PRODUCTS if name == "fused" else ("tf32",):
            configuration = Configuration.of(name, KERNEL.variants[name].defaults)
            source, entry = render(KERNEL, problem(product=product), ARCHITECTURES[90], configuration)[0]
            text = ptx(source, entry, 90)
            assert ("mma.sync" in text) == ("cvt.rna.tf32.f32" in text) == (product == "tf32")
            assert ("cp.async.bulk" in text) == (name == "fused_bulk")


# -- what is right


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_reference(layout: str) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(3, 4, 5)), rng.normal(size=(5, 5))
    expression = KERNEL.reference.numpy["y"].settled({"layout": layout})
    value, _ = expression.evaluate({"x": x, "w": w})
    groups = x if layout == "nml" else x.transpose(1, 0, 2)
    assert np.allclose(value, [w @ group.mean(axis=0) for group in groups])


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("sizes", [(2, 1, 1), (2, 3, 1000), (2, 1 << 20, 7)])
def test_the_error_of_a_mean_fits_into_the_magnitude(product: str, sizes: tuple[int, int, int]) -> None:
    """The reference scales what a mean may err by so that the tuner's own bound, times it, is that error."""
    of = problem(product=product, sizes=sizes)
    share = mean_share(of)
    names = KERNEL.environment(of, ARCHITECTURES[90])
    rounding = float(KERNEL.reference.operand_rounding.evaluate(names))
    bound = tolerance(sizes[2], "float32", "float32", 1.0, rounding)
    units = share * bound.coefficient * 2**24
    assert units == pytest.approx(min(sizes[1] + 2, 16 + 2 * sizes[1] ** 0.5))


@pytest.mark.parametrize("sign", ["both", "one"])
def test_float32_means_err_by_less_than_that(sign: str) -> None:
    rng = np.random.default_rng(5)
    for vectors in (1, 2, 5, 100, 4096):
        x = rng.standard_normal((vectors, 1000), np.float32)
        x = np.abs(x) if sign == "one" else x
        total = np.zeros(x.shape[1], np.float32)
        for row in x:  # one by one, which errs the most
            total += row
        error = np.abs(total / np.float32(vectors) - x.astype(np.float64).mean(axis=0))
        allowed = min(vectors + 2, 16 + 2 * vectors**0.5) * 2.0**-24
        assert (error <= allowed * np.abs(x).astype(np.float64).mean(axis=0)).all()
