"""Whether a compiled configuration can be launched: its blocks must fit on an SM."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from tuner.children.compilation import Compilation
from tuner.core.model import Gpu, Status
from tuner.kernel.occupancy import occupancy
from tuner.runtime.launches import Plan


def with_occupancy(compilation: Compilation, plan: Plan, gpu: Gpu) -> Compilation:
    """Return a compilation with its plan and complete resources; refused if no block of a launch fits on an SM."""
    resources = []
    status, error = compilation.status, compilation.error
    for launch, compiled in zip(plan.launches, compilation.resources, strict=True):
        shared = compiled.static_shared_bytes + launch.shared_bytes
        fit = occupancy(gpu, launch.threads, compiled.registers, shared, carveout=launch.carveout)
        if fit.active_blocks == 0 and status is Status.OK:
            status = Status.LAUNCH_ERROR
            error = f"not one block fits on an SM: too many {fit.limiter}"
        resources.append(
            replace(compiled, dynamic_shared_bytes=launch.shared_bytes, active_blocks=fit.active_blocks)
        )
    return structs.replace(compilation, status=status, error=error, resources=tuple(resources), plan=plan)
