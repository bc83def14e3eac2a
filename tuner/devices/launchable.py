"""What is known of a compiled configuration before it runs: its resources, and whether it can be launched."""

from __future__ import annotations

from dataclasses import asdict, replace

from tuner.hardware.occupancy import occupancy
from tuner.kernel.launches import Plan
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Measurement, Problem, Resources, Status
from tuner.protocol.compilation import Compilation


def check_launchable(
    kernel: KernelSpec,
    problem: Problem,
    gpu: Gpu,
    configuration: Configuration,
    plan: Plan,
    compilation: Compilation,
) -> tuple[Compilation, Measurement | None]:
    """Return the compilation with complete resources; and the refusal of one that cannot be launched."""
    if compilation.status is not Status.OK:
        return compilation, Measurement(compilation.status, error=compilation.error)
    resources = []
    refusal = None
    for launch, compiled in zip(plan.launches, compilation.resources, strict=True):
        shared = compiled.static_shared_bytes + launch.shared_bytes
        fit = occupancy(gpu, launch.threads, compiled.registers, shared, carveout=launch.carveout)
        if fit.active_blocks == 0 and refusal is None:
            refusal = Measurement(
                Status.LAUNCH_ERROR, error=f"not one block fits on an SM: too many {fit.limiter}"
            )
        resources.append(
            replace(compiled, dynamic_shared_bytes=launch.shared_bytes, active_blocks=fit.active_blocks)
        )
    compilation = replace(compilation, resources=tuple(resources))
    if refusal is None:
        worst = asdict(Resources.of(resources))
        names = {**kernel.environment(problem, gpu), **configuration.values, **worst}
        for reason, condition in kernel.variants[configuration.variant].constraints_after:
            if not condition.holds(names):
                return compilation, Measurement(Status.INVALID_CONFIG, error=reason)
    return compilation, refusal
