"""Sizes are launch arguments of every built-in kernel: one cubin of a configuration serves all sizes that it allows."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from tests.builtin_kernels import own_kernels
from tests.compiled_once import front_end
from tests.templates.sources import GENERATIONS
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import invalid_reason
from tuner.kernel.render import render, render_launch
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec

HOPPER = ARCHITECTURES[90]
DRAWS = 400
SIZES_OF_A_KIND, OTHER_SIZES = 1, 1
"""Problems of a dtype and layout at which a configuration is drawn, and others at which it is rendered, too."""
LENGTHS = (1, 6, 35, 64, 136, 1023, 4096, 32768, 98310)
SIZES: dict[str, list[tuple[int, ...]]] = {
    "gemm": [
        *[(1, 1, 1), (1, 4096, 4096), (1, 4088, 1000), (5, 4096, 4096), (8, 136, 1032), (7, 4097, 4095), (8, 6, 70)],
        *[(33, 66, 70), (100, 1048, 4104), (127, 129, 131), (128, 256, 8192), (257, 262, 74), (512, 512, 65536)],
        *[(1000, 1001, 1002), (1024, 1024, 1024), (4096, 4096, 4096), (4095, 4097, 4093), (4095, 4096, 4090)],
        *[(8192, 8192, 8192), (2304, 768, 6144), (12288, 1024, 12296), (9001, 4160, 4168)],
        *[(8192, 1, 8192), (4096, 1, 1024), (1000, 3, 777), (4096, 3, 4090), (4096, 8, 4096), (136, 8, 1032)],
        *[(582, 731, 1), (2048, 2048, 1), (594, 5752, 25), (1023, 1025, 25), (1024, 1024, 16), (64, 70, 16)],
    ],
    "transpose": [
        *[(1, 1, 1), (3, 35, 1023), (2, 64, 4096), (1, 4096, 136), (128, 2048, 128), (1, 8192, 8192), (7, 98310, 16)],
        *[(9, 1000, 1002), (1, 12, 98304)],
    ],
    "permute": [
        *[(1, 1, 1), (3, 35, 1023), (64, 64, 96), (4096, 32, 136), (128, 256, 128), (96, 8192, 16), (7, 70, 4100)],
        *[(1000, 2, 1001), (98304, 1, 12)],
    ],
    "reduce_axis": [
        *[(1, 1), (3, 35), (64, 1024), (4096, 4096), (98310, 16), (6, 98304), (7, 1000), (1000, 1002), (8192, 8192)],
        *[(33, 65536), (200, 40000)],
    ],
    "rope": [
        *[(1, 1, 1, 1), (3, 35, 2, 7), (64, 32, 8, 64), (4096, 32, 32, 40), (16384, 128, 1, 32), (7, 9, 9, 33)],
        *[(1000, 64, 8, 96), (98304, 1, 1, 12)],
    ],
    "mean_matvec": [
        *[(1, 1, 1), (3, 5, 7), (17, 40, 33), (64, 64, 100), (130, 17, 260), (1, 4097, 36), (256, 64, 256)],
        *[(1024, 1024, 1024), (8, 65536, 1024), (512, 512, 512), (300, 40, 1028), (1000, 1000, 2052)],
    ],
}  # fmt: skip
"""Odd ones, even ones, and multiples of vectors; of all others LENGTHS."""
VARIANTS = [(name, variant) for name in own_kernels() for variant in load_kernel(name).variants]


def problems(kernel: KernelSpec, dtype: str, options: tuple[Value, ...]) -> list[Problem]:
    sizes = SIZES.get(kernel.name, list(itertools.product(LENGTHS, repeat=len(kernel.sizes))))
    chosen = dict(zip(kernel.options, options, strict=True))
    return [kernel.problem(dict(zip(kernel.sizes, size, strict=True)), {"": dtype}, chosen) for size in sizes]


def kinds(kernel: KernelSpec) -> Iterator[list[Problem]]:
    """Yield problems of all sizes, in each dtype and each choice of the options."""
    for dtype in kernel.dtypes[next(iter(kernel.dtypes))]:
        for options in itertools.product(*kernel.options.values()):
            yield problems(kernel, dtype, options)


def drawn(
    kernel: KernelSpec, variant: str, of: Problem, gpu: Gpu, rng: random.Random
) -> Configuration | None:
    """Return a configuration that is valid for a problem; None where none was found."""
    spec, names = kernel.variants[variant], kernel.environment(of, gpu)
    for _ in range(DRAWS):
        values = {name: rng.choice(parameter.values) for name, parameter in spec.parameters.items()}
        if all(condition.holds({**names, **values}) for _, condition in spec.constraints_before):
            return Configuration.of(variant, values)
    return None


def rendered(
    kernel: KernelSpec, of: Problem, gpu: Gpu, configuration: Configuration
) -> dict[tuple[str, str], str]:
    """Return the source of each launch that the problem needs, by template and entry."""
    launches = kernel.launches(of, gpu, configuration)
    sources = render(kernel, of, gpu, configuration)
    return {
        (launch.template.name, entry): source
        for launch, (source, entry) in zip(launches, sources, strict=True)
    }


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_a_configuration_has_one_source_for_all_sizes(name: str, variant: str) -> None:
    kernel, rng, compared = load_kernel(name), random.Random(f"{name} {variant}"), 0
    for kind in kinds(kernel):
        group = [of for of in kind if variant not in kernel.usable_variants(of, HOPPER)[1]]
        for of in rng.sample(group, min(len(group), SIZES_OF_A_KIND)):
            configuration = drawn(kernel, variant, of, HOPPER, rng)
            if configuration is None:
                continue
            own = rendered(kernel, of, HOPPER, configuration)
            others = (
                other
                for other in rng.sample(group, len(group))
                if other is not of and not invalid_reason(kernel, other, HOPPER, configuration)
            )
            for other in itertools.islice(others, OTHER_SIZES):
                there = rendered(kernel, other, HOPPER, configuration)
                shared = own.keys() & there.keys()
                assert {key: own[key] for key in shared} == {key: there[key] for key in shared}, (
                    f"{configuration} for {of} and {other}"
                )
                compared += 1
    assert compared >= 2


@pytest.mark.parametrize("name", own_kernels())
def test_a_reference_has_one_source_for_all_sizes_and_is_code(name: str) -> None:
    kernel = load_kernel(name)
    launch = kernel.reference.cuda
    assert launch is not None
    none, rng = Configuration.of("reference", {}), random.Random(name)
    for group in kinds(kernel):
        some = rng.sample(group, min(len(group), 1 + OTHER_SIZES))
        found = {render_launch(kernel, launch, of, HOPPER, none) for of in some}
        assert len(found) == 1, some[0]
    [(source, _)] = found  # of the last of its kinds
    assert "error" not in front_end(source, HOPPER.arch)


@pytest.mark.parametrize("name", own_kernels())
def test_architectures_of_a_generation_have_the_same_sources(name: str) -> None:
    """And so tests compile for one of them."""
    kernel, compared = load_kernel(name), 0
    of = kernel.problem(
        dtypes={"": "float8_e4m3fn" if name == "scaled_mm" else "float16"}
    )  # every variant has them
    for cc, gpu in ARCHITECTURES.items():
        first = ARCHITECTURES[max(one for one in GENERATIONS if one <= cc)]
        for variant in kernel.variants.values() if gpu is not first else ():
            default = Configuration.of(variant.name, variant.defaults)
            assert render(kernel, of, gpu, default) == render(kernel, of, first, default)
            compared += 1
    assert compared
