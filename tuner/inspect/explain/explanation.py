"""Why a configuration is as fast as it is, by its numbers: work, code, occupancy, waves, bytes under way, its time.

And by a run on the CPU, how its warps lie in memory: sectors of global memory, banks of shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

from tuner.core.errors import TunerError
from tuner.core.files import temporary_folder
from tuner.core.model import Gpu, Resources
from tuner.database.records import Metrics
from tuner.inspect.check.emulation import problems_on_host
from tuner.inspect.check.host_children import HostChildren, Run, elements_of, unavailable
from tuner.inspect.check.host_worker import HostRequest
from tuner.inspect.emulator.accesses import Pattern
from tuner.inspect.explain.code import CodeFacts, LaunchCode
from tuner.kernel import roofline
from tuner.kernel.occupancy import Occupancy, Waves, occupancy
from tuner.kernel.plan import make_plan
from tuner.report.configurations import ChosenConfiguration
from tuner.report.tables import counted
from tuner.runtime.launches import Launch

REGISTER_BYTES = 4


@dataclass(frozen=True)
class UnderWay:
    """Bytes of global memory that one SM has asked for and not yet got."""

    bytes: float
    at_most: bool
    """Whether the code does not say how much, so that this is all that the shared memory of the blocks can hold."""
    threads: float
    """Resident on an SM, on average where the grid is too small to fill it."""
    of_a_thread: int


@dataclass(frozen=True)
class LaunchExplanation:
    """What is known of one launch without running it."""

    code: LaunchCode
    launch: Launch
    resources: Resources
    occupancy: Occupancy
    waves: Waves
    under_way: UnderWay | None
    """None where the code could not be read."""
    grows: bool = False
    """Whether a GPU of more SMs gets more blocks: then SMs without a block are left free on purpose."""
    times: int = 1
    """How often it repeats; the launch is the largest of these."""

    @property
    def facts(self) -> CodeFacts | None:
        """What its code says, if it could be read."""
        return self.code.facts

    @property
    def persistent(self) -> bool:
        """Whether its blocks stay: all are resident at once, and each goes on to further tiles."""
        return self.waves.at_once and self.code.strides_over_grid


@dataclass(frozen=True, kw_only=True)
class Explanation(ChosenConfiguration):
    """A configuration with what is known of it; its time is the stored one."""

    roof: roofline.Roof
    """Under the data sheet's ceilings."""
    pipe: str
    """The units that do the arithmetic: ``matrix`` or ``vector``."""
    launches: tuple[LaunchExplanation, ...]
    metrics: Metrics = field(default_factory=Metrics)
    ceiling: roofline.Ceiling | None = None
    """What one of the tuner's own kernels would take for the same work on this GPU."""
    patterns: tuple[tuple[Pattern, ...], ...] = ()
    """What the warps of each launch ask of memory."""
    addresses: str = "not examined: the kernel is run on the CPU only where its file is named"
    """At what size that was looked at, or why it was not."""
    launch_note: str = ""
    """That the time is the launch's more than the kernel's, if it is."""

    @property
    def binding(self) -> str:
        """The roof that binds: ``bandwidth``, ``matrix`` or ``vector``."""
        return "bandwidth" if self.roof.bound == "memory" else self.pipe

    @property
    def wanted_bytes(self) -> tuple[float, float]:
        """Bytes that an SM must have under way by Little's law, for the shortest and the longest latency; 0 if the
        bandwidth is not known."""
        rate = self.roof.peak_bytes_per_s
        if math.isinf(rate):
            return 0.0, 0.0
        shortest, longest = (
            roofline.bytes_in_flight(rate, ns, self.gpu.sm_count) for ns in roofline.LATENCY_NS
        )
        return shortest, longest

    @property
    def customary_bytes(self) -> int:
        """The same by a rule of thumb, CUB's."""
        return roofline.customary_bytes_in_flight(self.gpu)


def explain(chosen: ChosenConfiguration, code: Sequence[LaunchCode]) -> Explanation:
    """Put together what plan, code and limits say.

    Args:
        chosen: the configuration.
        code: of each launch, by :func:`tuner.inspect.explain.code.read_code`.

    Raises:
        UnlaunchableError: a grid, block or amount of shared memory is beyond the device.
    """
    kernel, problem, gpu = chosen.kernel, chosen.problem, chosen.gpu
    plan = make_plan(kernel, problem, gpu, chosen.configuration)
    largest = [max(launches, key=_blocks) for launches in plan.by_code]
    blocks = on_more = list(map(_blocks, largest))
    with suppress(TunerError):
        larger = make_plan(kernel, problem, replace(gpu, sm_count=2 * gpu.sm_count), chosen.configuration)
        on_more = [max(map(_blocks, launches)) for launches in larger.by_code]
    grows = [more > here for here, more in zip(blocks, on_more, strict=True)]
    times = map(len, plan.by_code)
    return Explanation(
        **vars(chosen),
        roof=roofline.roof_of(kernel, problem, gpu),
        pipe=roofline.pipe_of(gpu, problem.dtype, kernel.work.pipe),
        launches=tuple(_launch(gpu, *one) for one in zip(largest, code, grows, times, strict=True)),
    )


def _blocks(launch: Launch) -> int:
    return math.prod(launch.grid)


def _launch(gpu: Gpu, launch: Launch, code: LaunchCode, grows: bool, times: int) -> LaunchExplanation:
    resources = replace(code.resources, dynamic_shared_bytes=launch.shared_bytes)
    shared = resources.static_shared_bytes + resources.dynamic_shared_bytes
    fit = occupancy(
        gpu, launch.threads, resources.registers, shared, carveout=launch.carveout, barriers=code.barriers
    )
    waves = Waves(_blocks(launch), fit.active_blocks, gpu.sm_count)
    resources = replace(resources, active_blocks=fit.active_blocks)
    under_way = _under_way(launch, resources.registers, shared, waves, code.facts) if code.facts else None
    return LaunchExplanation(code, launch, resources, fit, waves, under_way, grows, times)


def _under_way(launch: Launch, registers: int, shared: int, waves: Waves, facts: CodeFacts) -> UnderWay:
    """Multiply what a thread has under way by the threads that are resident."""
    blocks = min(float(waves.per_sm), waves.blocks / waves.sm_count)
    threads = blocks * launch.threads
    in_flight = facts.in_flight
    held = REGISTER_BYTES * registers if registers else math.inf
    of_a_thread = max(int(min(in_flight.load_bytes, held)), in_flight.copy_bytes * in_flight.groups)
    total = threads * of_a_thread
    if in_flight.bulk and blocks * shared >= total:
        return UnderWay(blocks * shared, True, threads, of_a_thread)
    return UnderWay(total, False, threads, of_a_thread)


MOST = 1 << 20
"""Accesses of a launch that are looked at."""


def patterns_of(chosen: ChosenConfiguration) -> tuple[tuple[tuple[Pattern, ...], ...], str]:
    """Run a configuration on the CPU, at the largest of the small sizes that it is for.

    Returns:
        What the warps of each launch ask of memory, and the size, or why it was not run.
    """
    kernel, problem, configuration = chosen.kernel, chosen.problem, chosen.configuration
    gpu, around, whole = problems_on_host(kernel, problem, chosen.gpu, configuration)
    if why := "no small problem is valid for it" if not whole + around else unavailable():
        return (), f"not examined: {why}"
    largest = max(whole + around, key=elements_of)
    with temporary_folder() as folder, closing(HostChildren(1)) as children:
        request = HostRequest(kernel.file, gpu, (largest,), folder, configuration=configuration, most=MOST)
        outcome = children.ask(Run(("variants", configuration.variant), str(configuration), request))
    if why := outcome.note or "; ".join(fault.problem for fault in outcome.faults):
        return (), f"not examined: {why}"
    requests = sum(one.requests for launch in outcome.patterns for one in launch)
    return (
        outcome.patterns,
        f"examined: {counted(requests, 'request')} of warps, as it runs on the CPU at {largest.sizes_text}",
    )
