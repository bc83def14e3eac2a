"""Configurations of all kernels, drawn at random, as a manifest; with problems and GPUs for each."""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.builtin_kernels import own_kernels
from tests.runtime.manifests import MANIFEST, SHA
from tuner.core.errors import SpaceError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import VariantSpec
from tuner.winners.manifest import json_of
from tuner.winners.records import (
    BundledConfiguration,
    CompiledLaunch,
    baked_names,
    computation_of,
    configuration_of,
)

ROOT = Path(__file__).parents[2]
EXAMPLES = [str(ROOT / "docs" / "examples" / name / f"{name}.toml") for name in ("heat", "sort")]
"""Of repeated launches."""
PARTS = str(ROOT / "tests" / "planted" / "parts.toml")
KERNELS = [*own_kernels(), "bmm", EXAMPLES[0], PARTS]
DRAWN = 2
"""Valid configurations of each variant and GPU, besides defaults; one where a kernel has many variants."""
TRIES = 40
"""Problems that are drawn until a variant can run one."""
CAPABILITIES = (80, 90, 90)
"""Twice the one that most variants are for, unless a kernel has many variants."""
SIZES = 6
"""Other sizes at which each configuration is interpreted."""


@dataclass(frozen=True)
class DrawnConfiguration:
    """A configuration, and problems on GPUs of its compute capability, of which it can run some."""

    bundled: BundledConfiguration
    baked: list[str]
    """The sizes that its sources hold; all problems have its own."""
    problems: list[tuple[Problem, Gpu]]


@functools.cache
def draw(name: str) -> list[DrawnConfiguration]:
    """Draw configurations of each variant of a kernel, the same in each call."""
    kernel, rng = load_kernel(name), random.Random(Path(name).name)
    drawn = []
    for gpu in (ARCHITECTURES[cc] for cc in CAPABILITIES[: 3 if len(kernel.variants) < 4 else 2]):
        for variant in kernel.variants.values():
            written, configurations = draw_configurations(kernel, gpu, variant, rng)
            for configuration in configurations:
                bundled = BundledConfiguration(kernel, written, gpu, configuration)
                baked = baked_names(kernel, bundled.launches.values())
                fixed = {size: written.sizes[size] for size in baked}
                others = [replace(written, sizes=draw_sizes(kernel, rng) | fixed) for _ in range(SIZES)]
                problems = [(problem, other_gpu(gpu, rng)) for problem in (written, *others)]
                drawn.append(DrawnConfiguration(bundled, baked, problems))
    return drawn


def _expressions(of: Sequence[str]) -> list[str]:
    """Return element expressions of the first name, of two, and of all."""
    return [f"{of[0]} + 1", f"{' * '.join(of[:2])} + 1", " + ".join(of)]


@functools.cache
def manifest_of(name: str) -> bytes:
    """Return a manifest with what is drawn of a kernel, in this order, each with a computation of its own."""
    drawn, configurations = draw(name), []
    for number, bundled in enumerate(one.bundled for one in drawn):
        compiled = {
            number: CompiledLaunch(SHA, SHA, f"entry_{number}", launch.constants)
            for number, launch in bundled.launches.items()
        }
        slices = compiled if bundled.of_slices else None
        configurations.append(json_of(configuration_of(bundled, number, compiled, None, slices)))
    kernel = drawn[0].bundled.kernel
    data = {
        **MANIFEST,
        "kernel": kernel.name,
        "sizes": list(kernel.sizes),
        "probe": {str(cc): MANIFEST["probe"]["90"] for cc in CAPABILITIES},
        "computations": [json_of(computation_of(kernel, one.bundled.problem)) for one in drawn],
        "configurations": configurations,
        "winners": [],
        "defaults": [],
    }
    return json.dumps(data).encode()


def draw_sizes(kernel: KernelSpec, rng: random.Random) -> dict[str, int]:
    """Draw sizes: all of them multiples of 64 or 8 in turn, so that vectors fit, or any; some small, some huge."""
    factor = rng.choice([1, 8, 64])
    most = rng.choice([100, 20000, 20000, 10**6])
    sizes = {name: factor * int(math.exp(rng.uniform(0, math.log(most)))) for name in kernel.sizes}
    if rng.random() < 0.4:
        sizes[rng.choice(list(kernel.sizes))] = rng.choice([1, 8, 16, 2 ** rng.randint(0, 33)])
    return sizes


def draw_problem(kernel: KernelSpec, rng: random.Random) -> Problem:
    dtypes = {role: rng.choice(given) for role, given in kernel.dtypes.items() if not isinstance(given, str)}
    options = {
        name: rng.choice(_expressions(kernel.elements[name]))
        if name in kernel.elements
        else rng.choice(values)
        for name, values in kernel.options.items()
    }
    return kernel.problem(draw_sizes(kernel, rng), dtypes, options)


def draw_configurations(
    kernel: KernelSpec, gpu: Gpu, variant: VariantSpec, rng: random.Random
) -> tuple[Problem, list[Configuration]]:
    """Draw a problem, one that the variant can run if there is one among a few; and configurations.

    They are the file's default, one that may be valid for nothing, and of the valid ones the tool's default and others.
    """
    values = {name: rng.choice(parameter.values) for name, parameter in variant.parameters.items()}
    configurations = [
        Configuration.of(variant.name, variant.defaults),
        Configuration.of(variant.name, values),
    ]
    for _ in range(TRIES):
        problem = draw_problem(kernel, rng)
        try:
            space = SearchSpace.from_kernel(kernel, problem, gpu, [variant.name])
        except SpaceError:
            continue
        drawn = range(DRAWN if len(kernel.variants) < 8 else 1)
        valid = [space.variants[0].configuration(rng.randrange(len(space))) for _ in drawn]
        return problem, [*configurations, space.default, *valid]
    return problem, configurations


def other_gpu(gpu: Gpu, rng: random.Random) -> Gpu:
    """Return a GPU of the same compute capability, perhaps with other limits."""
    if rng.random() < 0.5:
        return gpu
    shared = rng.choice([gpu.shared_bytes_optin, 49152, gpu.shared_bytes_optin - 1024])
    return replace(
        gpu,
        sm_count=rng.randint(1, 200),
        shared_bytes_optin=shared,
        l2_bytes=rng.choice([gpu.l2_bytes, 1 << 20]),
        max_threads_per_block=rng.choice([1024, 1024, 256]),
        registers_per_sm=rng.choice([65536, 32768]),
    )
