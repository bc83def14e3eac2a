"""Sources of kernels: drawn at random, rendered in pieces, compiled."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from tests import compiled_once
from tuner.children.nvrtc import Cubin, compile_source
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import VariantSpec

GENERATIONS = (75, 80, 90, 120)
"""Architectures to compile for: the others have the sources of the one before, and as many registers."""


_GLOBAL_LOAD = re.compile(r"ld\.global(?:\.nc)?(?:\.L1::no_allocate)?(?:\.v(\d))?\.[bfus](\d+)")


def broken(
    kernel: KernelSpec, variant: VariantSpec, parameters: Mapping[str, Any], problem: Problem, gpu: Gpu
) -> list[str]:
    """Return the constraints that a configuration does not meet."""
    names = {**kernel.environment(problem, gpu), **parameters}
    return [reason for reason, condition in variant.constraints_before if not condition.evaluate(names)]


def draw(
    kernel: KernelSpec, variant: VariantSpec, problem: Problem, gpu: Gpu, rng: random.Random
) -> dict[str, Any]:
    """Return a random configuration that meets the constraints."""
    for _ in range(100_000):
        parameters = {name: rng.choice(p.values) for name, p in variant.parameters.items()}
        if not broken(kernel, variant, parameters, problem, gpu):
            return parameters
    raise AssertionError(f"{variant.name} has next to no valid configurations")


def compiled(kernel: KernelSpec, configuration: Configuration, problem: Problem, gpu: Gpu) -> list[Cubin]:
    """Compile all launches, and check the limits of each."""
    results = []
    plan = make_plan(kernel, problem, gpu, configuration)
    sources = render(kernel, problem, gpu, configuration)
    for (source, entry), launch in zip(sources, plan.launches, strict=True):
        assert "#include" not in source
        result = compile_source(source, entry, gpu.arch)
        assert "warning" not in result.log, result.log
        resources, warps = result.resources, -(-launch.threads // 32)
        assert resources.registers <= 255
        assert -(-resources.registers // 8) * 8 * 32 * warps <= gpu.registers_per_sm
        assert resources.static_shared_bytes <= 48 << 10
        assert resources.static_shared_bytes + launch.shared_bytes <= gpu.shared_bytes_optin
        results.append(result)
    return results


def ptx(source: str, entry: str, cc: int) -> str:
    """Return what a source compiles to before it becomes machine code."""
    return compiled_once.ptx(source, entry, ARCHITECTURES[cc].arch)


def widest_load(text: str) -> int:
    """Return the bytes of the widest load from global memory in a PTX text."""
    return max(int(count or 1) * int(bits) // 8 for count, bits in _GLOBAL_LOAD.findall(text))
