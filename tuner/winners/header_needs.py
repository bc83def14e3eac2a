"""What a launch of a configuration needs of its caller, as far as the kernel's file is there to be asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Problem, Run
from tuner.database.records import StoredWinner
from tuner.kernel.plan import make_plan
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launch_limits import ALIGNMENT
from tuner.runtime.launches import Launch, Plan
from tuner.winners.header_conditions import Launchable, launchable


class KernelFiles:
    """The files of the kernels that are exported, as far as they still exist.

    Args:
        load: returns a run's kernel.
    """

    def __init__(self, load: Callable[[Run], KernelSpec]) -> None:
        self._load = load
        self._kernels: dict[tuple[str, str], KernelSpec | None] = {}

    def kernel(self, run: Run) -> KernelSpec | None:
        """Return a run's kernel; None if its file is gone, or cannot be read."""
        key = (run.problem.kernel, run.kernel_file)
        if key not in self._kernels:
            try:
                self._kernels[key] = self._load(run)
            except TunerError:
                self._kernels[key] = None
        return self._kernels[key]

    def kernel_of_all(self, runs: Sequence[Run]) -> KernelSpec | None:
        """Return a kernel that has the problems of all runs; None if none of theirs does."""
        kernels = (kernel for run in runs if (kernel := self.kernel(run)) is not None)
        return next((kernel for kernel in kernels if all(_has(kernel, run.problem) for run in runs)), None)

    def plan(self, run: Run, configuration: Configuration) -> Plan | None:
        """Return a configuration's launches at the size that was tuned; None if its kernel no longer has it."""
        if (kernel := self._kernel_with(run, configuration)) is None:
            return None
        try:
            return make_plan(kernel, run.problem, run.gpu, configuration)
        except TunerError:
            return None

    def launchable(self, stored: StoredWinner) -> Launchable | None:
        """Return when a winner is valid for another size; None where that is not known."""
        run, configuration = stored.run, stored.winner.configuration
        if (kernel := self._kernel_with(run, configuration)) is None:
            return None
        return launchable(kernel, run.problem, run.gpu, configuration, stored.trial.resources)

    def _kernel_with(self, run: Run, configuration: Configuration) -> KernelSpec | None:
        """Return a run's kernel if it has the configuration."""
        kernel = self.kernel(run)
        variant = kernel.variants.get(configuration.variant) if kernel is not None else None
        if kernel is None or variant is None or not _has(kernel, run.problem):
            return None
        return kernel if variant.parameters.keys() == configuration.values.keys() else None


def _has(kernel: KernelSpec, problem: Problem) -> bool:
    """Return whether a problem has the kernel's sizes, dtypes and options."""
    pairs = (
        (kernel.sizes, problem.sizes),
        (kernel.dtypes, problem.dtypes),
        (kernel.options, problem.options),
    )
    return all(own.keys() == given.keys() for own, given in pairs)


def no_files(run: Run) -> KernelSpec:
    """Load no kernel: raises the error for a missing file."""
    raise TunerError(f"no file of {run.problem.kernel}")


def measured_needs(plan: Plan | None) -> Launchable:
    """Return what a configuration needs at the size that was tuned; the most careful answer without a plan."""
    if plan is None:
        return Launchable((), str(ALIGNMENT), "0LL")
    zeroed = sum(item.size_bytes for item in plan.scratch if item.zeroed_once)
    return Launchable((), str(max(launch.alignment for launch in plan.launches)), f"{zeroed}LL")


def needs_lines(plan: Plan | None) -> list[str]:
    """Return comments on what a caller must take care of, at the size that was tuned."""
    if plan is None:
        return [
            f"its kernel's file is gone: as when it was tuned, tensors start at multiples of {ALIGNMENT};"
            " for this size only"
        ]
    lines = []
    if (alignment := max(launch.alignment for launch in plan.launches)) > 1:
        lines.append(f"tensors start at multiples of {alignment} bytes")
    if zeroed := [f"{item.name} ({item.size_bytes} bytes)" for item in plan.scratch if item.zeroed_once]:
        lines.append(f"zero {', '.join(zeroed)} once, before the first launch; every launch leaves it zero")
    for number, launch in enumerate(plan.launches, 1):
        of = f"launch {number}: " if len(plan.launches) > 1 else ""
        lines += [f"{of}{line}" for line in _launch_lines(launch)]
    return lines


def _launch_lines(launch: Launch) -> list[str]:
    lines = []
    blocks = math.prod(launch.grid)
    if launch.cluster:
        sides = " x ".join(map(str, launch.cluster))
        lines.append(f"in clusters of {sides} blocks (CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)")
    if launch.needs_cluster_order:
        lines.append(
            f"its order of clusters numbers {launch.clusters} clusters, each once: 0, 1, 2, ... are right"
        )
    if launch.cooperative or launch.resident:
        lines.append(
            f"its {blocks} blocks wait for each other: launch it cooperatively (CU_LAUNCH_ATTRIBUTE_COOPERATIVE)"
        )
    if launch.programmatic:
        lines.append(
            "may begin before the kernel before it has ended, for which it waits itself"
            " (CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)"
        )
    return lines
