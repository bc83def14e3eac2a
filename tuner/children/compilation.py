"""What the head and a compiling child say to each other: a configuration or a source, and what became of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from msgspec import structs

from tuner.children.cubin import refused_launch, require_variables
from tuner.children.measuring import Candidate, PythonCall
from tuner.core.errors import KernelError
from tuner.core.messages import Channel, Message, Record
from tuner.core.model import Configuration, Gpu, Problem, Resources, Status
from tuner.kernel.occupancy import occupancy
from tuner.runtime.launches import Launch, Plan


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
    candidate: str = ""
    """What computes the kernel in place of its variants (:mod:`tuner.kernel.candidates`); empty for these."""
    listing: bool = False
    """Whether PTX and barriers are returned, too, and no plan: for reading the code; the cache has neither."""


class SourceRequest(Message, frozen=True):
    """Compile a source as it is."""

    source: str
    entry: str
    gpu: Gpu
    include: tuple[Path, ...]
    """Folders of its own headers."""
    options: tuple[str, ...] = ()


class ReadRequest(Message, frozen=True):
    """Read a kernel and its templates, before the first configuration is asked for; see :class:`RenderRequest`."""

    kernel_file: Path
    code: str = ""
    candidate: str = ""


CompileRequest = RenderRequest | SourceRequest | ReadRequest


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
    ptx: tuple[str, ...] = ()
    """What ptxas made the cubins of; empty texts without a listing."""
    barriers: tuple[int, ...] = ()
    """Named barriers of a block; 0 without a listing."""
    implementation: str = ""
    """Digest of how the configuration computes (:mod:`tuner.kernel.identity`); empty for what did not render."""
    log: str = ""
    compile_s: float = 0.0
    refused: int | None = None
    """Number of the code of which any driver would refuse a launch; None if there is none."""
    changed: bool = False
    """Whether the kernel's files are no longer what the head has read: that says nothing about the configuration."""
    call: PythonCall | None = None
    """What is called in place of launches."""

    @property
    def candidate(self) -> Candidate:
        """What a measuring process gets of it, where it has a plan."""
        assert self.plan is not None
        return Candidate(self.plan, self.cubins, self.entries, self.call)


COMPILING: Channel[CompileRequest, Compilation] = Channel(CompileRequest, Compilation)


def with_occupancy(compilation: Compilation, plan: Plan, gpu: Gpu) -> Compilation:
    """Return a compilation with its plan and complete resources; ``invalid_config`` if the driver would refuse it.

    Code that lacks a variable which its launch fills does not count as compiled.
    """
    try:
        for (launch, *_), cubin in zip(plan.by_code, compilation.cubins, strict=True):
            require_variables(cubin, launch)
    except KernelError as error:
        return structs.replace(compilation, status=Status.COMPILE_ERROR, error=str(error), log="")
    resources, errors = [], []
    codes = zip(plan.by_code, compilation.resources, compilation.cubins, compilation.entries, strict=True)
    for launches, compiled, cubin, entry in codes:
        fits = [_fit(gpu, compiled, launch) for launch in launches]
        refused = (
            refused_launch(cubin, entry, one) or why for one, (_, why) in zip(launches, fits, strict=True)
        )
        errors.append(next(filter(None, refused), ""))
        shared = max(launch.shared_bytes for launch in launches)
        blocks = min(active for active, _ in fits)
        resources.append(replace(compiled, dynamic_shared_bytes=shared, active_blocks=blocks))
    compilation = structs.replace(compilation, resources=tuple(resources), plan=plan)
    number = next((number for number, error in enumerate(errors) if error), None)
    if number is None:
        return compilation
    return structs.replace(compilation, status=Status.INVALID_CONFIG, error=errors[number], refused=number)


def _fit(gpu: Gpu, compiled: Resources, launch: Launch) -> tuple[int, str]:
    """Return how many blocks of a launch fit on an SM, and if not one does, why."""
    static = compiled.static_shared_bytes
    fit = occupancy(
        gpu, launch.threads, compiled.registers, static + launch.shared_bytes, carveout=launch.carveout
    )
    if fit.active_blocks:
        return fit.active_blocks, ""
    too_much = {
        "registers": f"too many registers, {compiled.registers} in each of {launch.threads} threads",
        "shared memory": f"too much shared memory, {static} static and {launch.shared_bytes} dynamic bytes of at most "
        f"{gpu.shared_bytes_optin}",
    }
    return 0, f"not one block fits on an SM: {too_much.get(fit.limiter, f'too many {fit.limiter}')}"
