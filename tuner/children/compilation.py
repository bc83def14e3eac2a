"""What the head and a compiling child say to each other: a configuration or a source, and what became of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from msgspec import structs

from tuner.children.cubin import refused_launch, require_variables
from tuner.core.errors import KernelError
from tuner.core.messages import Channel, Message, Record
from tuner.core.model import Configuration, Gpu, Problem, Resources, Status
from tuner.kernel.occupancy import occupancy
from tuner.runtime.launches import Plan


class RenderRequest(Message, frozen=True):
    """Render and compile one configuration of a kernel, or the kernel's CUDA reference."""

    kernel_file: Path
    problem: Problem
    gpu: Gpu
    configuration: Configuration
    reference: bool = False
    code: str = ""
    """Digest of the kernel's code as the head read it (:mod:`tuner.kernel.identity`); empty to take it as it is."""
    launches: tuple[int, ...] = ()
    """Numbers of the variant's launches to compile without a plan, whether the problem has them or not, as a bundle
    needs them; empty for those that the problem has."""


class SourceRequest(Message, frozen=True):
    """Compile a source as it is."""

    source: str
    entry: str
    gpu: Gpu
    include: tuple[Path, ...]
    """Folders of its own headers."""
    options: tuple[str, ...] = ()


CompileRequest = RenderRequest | SourceRequest


class Compilation(Record, frozen=True):
    """What became of planning, rendering and compiling one configuration."""

    status: Status
    """``ok``, one of the compile failures, or ``invalid_config``: without a plan, or refused by any driver."""
    error: str = ""
    plan: Plan | None = None
    """How it is launched; None for a reference, for a source, and for what did not compile."""
    sources: tuple[str, ...] = ()
    cubins: tuple[bytes, ...] = ()
    entries: tuple[str, ...] = ()
    resources: tuple[Resources, ...] = ()
    implementation: str = ""
    """Digest of how the configuration computes (:mod:`tuner.kernel.identity`); empty for what did not render."""
    log: str = ""
    compile_s: float = 0.0
    refused: int | None = None
    """Number of the launch that any driver would refuse; None if there is none."""
    changed: bool = False
    """Whether the kernel's files are no longer what the head has read: that says nothing about the configuration."""


COMPILING: Channel[CompileRequest, Compilation] = Channel(CompileRequest, Compilation)


def with_occupancy(compilation: Compilation, plan: Plan, gpu: Gpu) -> Compilation:
    """Return a compilation with its plan and complete resources; ``invalid_config`` if the driver would refuse it.

    Code that lacks a variable which its launch fills does not count as compiled.
    """
    resources, errors = [], []
    try:
        for launch, cubin in zip(plan.launches, compilation.cubins, strict=True):
            require_variables(cubin, launch)
    except KernelError as error:
        return structs.replace(compilation, status=Status.COMPILE_ERROR, error=str(error), log="")
    launches = zip(plan.launches, compilation.resources, compilation.cubins, compilation.entries, strict=True)
    for launch, compiled, cubin, entry in launches:
        shared = compiled.static_shared_bytes + launch.shared_bytes
        fit = occupancy(gpu, launch.threads, compiled.registers, shared, carveout=launch.carveout)
        refused = refused_launch(cubin, entry, launch)
        if fit.active_blocks == 0 and not refused:
            too_much = {
                "registers": f"too many registers, {compiled.registers} in each of {launch.threads} threads",
                "shared memory": f"too much shared memory, {compiled.static_shared_bytes} static and "
                f"{launch.shared_bytes} dynamic bytes of at most {gpu.shared_bytes_optin}",
            }
            refused = f"not one block fits on an SM: {too_much.get(fit.limiter, f'too many {fit.limiter}')}"
        errors.append(refused)
        resources.append(
            replace(compiled, dynamic_shared_bytes=launch.shared_bytes, active_blocks=fit.active_blocks)
        )
    compilation = structs.replace(compilation, resources=tuple(resources), plan=plan)
    number = next((number for number, error in enumerate(errors) if error), None)
    if number is None:
        return compilation
    return structs.replace(compilation, status=Status.INVALID_CONFIG, error=errors[number], refused=number)
