"""The interpreter of manifests makes the plans that the tuner makes, and refuses what the tuner refuses.

For every kernel, variant and compute capability: configurations are written as a manifest says them, read back, and
interpreted at other sizes, and on other GPUs of that compute capability, than they were written for.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.manifests import MANIFEST, SHA
from tuner.errors import SpaceError
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.plan import make_plan, scalars_of, tensors_of
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import VariantSpec
from tuner.model import Configuration, Gpu, Problem
from tuner.runtime.interpret import ConcretePlan, InvalidForProblemError, interpret
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.runtime.manifest import read_manifest
from tuner.runtime.manifest_records import Manifest
from tuner.space.space import SearchSpace
from tuner.space.validity import invalid_reason
from tuner.winners.baked_sizes import baked_sizes
from tuner.winners.records import (
    BundledConfiguration,
    CompiledLaunch,
    computation_record,
    configuration_record,
)

EXAMPLES = sorted(str(path) for path in (Path(__file__).parents[1] / "docs" / "examples").glob("*/*.toml"))
KERNELS = [*builtin_kernels(), *EXAMPLES]
DRAWN = 3
"""Valid configurations of each variant and GPU, besides defaults."""
PETABYTE = 2**50
TRIES = 40
"""Problems that are drawn until a variant can run one."""
CAPABILITIES = (80, 90, 90)
"""Twice the one that most variants are for."""
SIZES = 9
"""Other sizes at which each configuration is interpreted."""
ELEMENTS = ("x + 1", "x * y + 1", "x * y + z")


def manifest_of(bundled: BundledConfiguration) -> Manifest:
    probe = {str(bundled.gpu.cc): MANIFEST["probe"]["90"]}
    compiled = {number: CompiledLaunch(SHA, SHA, f"entry_{number}") for number in bundled.launches}
    data = {
        **MANIFEST,
        "kernel": bundled.kernel.name,
        "sizes": list(bundled.kernel.sizes),
        "probe": probe,
        "computations": [computation_record(bundled.kernel, bundled.problem)],
        "configurations": [configuration_record(bundled, 0, compiled, None)],
        "winners": [],
        "defaults": [],
    }
    return read_manifest(json.dumps(data).encode())


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
        name: rng.choice(ELEMENTS) if name in kernel.elements else rng.choice(values)
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
        valid = [space.variants[0].configuration(rng.randrange(len(space))) for _ in range(DRAWN)]
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


def compare(bundled: BundledConfiguration, problem: Problem, gpu: Gpu, concrete: ConcretePlan | None) -> None:
    """Require what the interpreter says to be what the tuner says."""
    kernel, configuration = bundled.kernel, bundled.configuration
    reason = invalid_reason(kernel, problem, gpu, configuration)
    case = f"{problem} | {configuration} | {gpu}"
    if concrete is None:  # integers of a manifest have 64 bits
        largest = max(tensor.size_bytes for tensor in tensors_of(kernel, problem, gpu))
        assert reason or largest > PETABYTE, case
        return
    assert not reason, f"{case}: {reason}"
    assert concrete.plan == make_plan(kernel, problem, gpu, configuration), case
    tensors = tensors_of(kernel, problem, gpu)
    assert concrete.tensors == tuple(replace(tensor, init="normal") for tensor in tensors), case
    for name, positions in concrete.scalar_positions.items():
        for launch, position in positions:
            argument = concrete.plan.launches[launch].arguments[position]
            assert argument == ("scalar", *scalars_of(kernel, problem, gpu)[name]), case
    assert len(concrete.entries) == len(concrete.plan.launches)
    assert concrete.workspace.offsets.keys() == {buffer.name for buffer in concrete.plan.scratch}


def interpreted(manifest: Manifest, problem: Problem, gpu: Gpu) -> ConcretePlan | None:
    limits = {name: getattr(gpu, name) for name in DEVICE_LIMITS}
    try:
        return interpret(manifest, 0, problem.sizes, limits)
    except InvalidForProblemError as error:
        assert len(str(error).splitlines()) == 1
        return None


@pytest.mark.parametrize("name", KERNELS)
def test_plans_are_those_of_the_tuner(name: str) -> None:
    kernel, rng = load_kernel(name), random.Random(name.rpartition("/")[2])
    counts: Counter[tuple[str, bool]] = Counter()
    for gpu in (ARCHITECTURES[cc] for cc in CAPABILITIES):
        for variant in kernel.variants.values():
            written, configurations = draw_configurations(kernel, gpu, variant, rng)
            for configuration in configurations:
                bundled = BundledConfiguration(kernel, written, gpu, configuration)
                manifest = manifest_of(bundled)
                fixed = baked_sizes(kernel, bundled.launches.values())
                for size in fixed:
                    assert (
                        interpreted(manifest, replace(written, sizes={**written.sizes, size: 77}), gpu)
                        is None
                    )
                for number in range(1 + SIZES):
                    sizes = draw_sizes(kernel, rng) if number else dict(written.sizes)
                    sizes |= {size: written.sizes[size] for size in fixed}
                    problem, other = replace(written, sizes=sizes), other_gpu(gpu, rng)
                    concrete = interpreted(manifest, problem, other)
                    compare(bundled, problem, other, concrete)
                    counts[variant.name, concrete is not None] += 1
    assert {variant for variant, valid in counts if valid} == kernel.variants.keys()
    assert {variant for variant, valid in counts if not valid} == kernel.variants.keys()
    assert counts.total() >= 150
