"""The interpreter of manifests makes the plans that the tuner makes, and refuses what the tuner refuses.

For every kernel, variant and compute capability: configurations are written as a manifest says them, read back, and
interpreted at other sizes, and on other GPUs of that compute capability, than they were written for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.runtime.drawn_plans import KERNELS, draw, manifest_of
from tuner.core.model import Gpu, Problem
from tuner.kernel.plan import invalid_reason, make_plan, scalars_of, tensors_of
from tuner.runtime.entries import Manifest
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.runtime.manifest import read_manifest
from tuner.runtime.plans import ConcretePlan, InvalidForProblemError, interpret
from tuner.winners.records import BundledConfiguration

PETABYTE = 2**50


def interpreted(manifest: Manifest, number: int, problem: Problem, gpu: Gpu) -> ConcretePlan | None:
    limits = {name: getattr(gpu, name) for name in DEVICE_LIMITS}
    try:
        return interpret(manifest, number, problem.sizes, limits)
    except InvalidForProblemError as error:
        assert len(str(error).splitlines()) == 1
        return None


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


@pytest.mark.parametrize("name", KERNELS)
def test_plans_are_those_of_the_tuner(name: str) -> None:
    drawn = draw(name)
    manifest = read_manifest(manifest_of(drawn))
    counts: Counter[tuple[str, bool]] = Counter()
    for number, one in enumerate(drawn):
        for problem, gpu in one.problems:
            concrete = interpreted(manifest, number, problem, gpu)
            compare(one.bundled, problem, gpu, concrete)
            counts[one.bundled.configuration.variant, concrete is not None] += 1
        for size in one.baked:
            other = replace(problem, sizes={**problem.sizes, size: problem.sizes[size] + 1})
            assert interpreted(manifest, number, other, gpu) is None
    variants = drawn[0].bundled.kernel.variants.keys()
    assert {variant for variant, valid in counts if valid} == variants
    assert {variant for variant, valid in counts if not valid} == variants
    assert counts.total() >= 60
