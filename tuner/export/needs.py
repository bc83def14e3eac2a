"""What a winner's launches need of their caller beyond parameters: aligned tensors, memory that starts as zeros,
clusters, a table of cluster numbers; and for which sizes it is valid."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tuner.errors import TunerError
from tuner.export.conditions import conditions_of
from tuner.kernel.plan import make_plan
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Run
from tuner.runtime.launch_limits import ALIGNMENT


@dataclass(frozen=True)
class Needs:
    """The needs of one configuration for one problem.

    Attributes:
        alignment: bytes of which every tensor's address must be a multiple.
        zeroed_once: name and bytes of scratch memory that is zero before its first use, and left zero by every run.
        exact: whether the kernel's file says so; without it, tensors start at multiples of 256 as when it was timed.
        clusters: blocks of a cluster, of each launch that has them.
        ordered_clusters: clusters of the launch that takes a table of their numbers; 0 if there is none.
        resident: blocks of the launch in which they wait for each other; 0 if there is none.
    """

    alignment: int = ALIGNMENT
    zeroed_once: tuple[tuple[str, int], ...] = ()
    exact: bool = False
    clusters: tuple[int, ...] = ()
    ordered_clusters: int = 0
    resident: int = 0

    @property
    def zeroed_bytes(self) -> int:
        """The bytes of all scratch that starts as zeros."""
        return sum(size for _, size in self.zeroed_once)


class KernelFiles:
    """The files of the kernels that are exported, as far as they still exist.

    Args:
        load: returns a run's kernel.
    """

    def __init__(self, load: Callable[[Run], KernelSpec]) -> None:
        self._load = load
        self._kernels: dict[tuple[str, str], KernelSpec | None] = {}

    def needs(self, run: Run, configuration: Configuration) -> Needs:
        """Return what the kernel's file says; if it no longer has the configuration, the most careful needs."""
        if (kernel := self._kernel_with(run, configuration)) is None:
            return Needs()
        try:
            plan = make_plan(kernel, run.problem, run.gpu, configuration)
        except TunerError:
            return Needs()
        zeroed = tuple((item.name, item.size_bytes) for item in plan.scratch if item.zeroed_once)
        alignment = max(launch.alignment for launch in plan.launches)
        ordered = max(launch.clusters if launch.needs_cluster_order else 0 for launch in plan.launches)
        clusters = tuple(math.prod(launch.cluster) for launch in plan.launches if launch.cluster)
        resident = max(math.prod(launch.grid) if launch.resident else 0 for launch in plan.launches)
        return Needs(
            alignment, zeroed, exact=True, clusters=clusters, ordered_clusters=ordered, resident=resident
        )

    def conditions(self, run: Run, configuration: Configuration) -> list[str] | None:
        """Return when a configuration is valid for another size, as C++; None where that is not known."""
        if (kernel := self._kernel_with(run, configuration)) is None:
            return None
        return conditions_of(kernel, run.problem, run.gpu, configuration)

    def elements(self, run: Run) -> frozenset[str]:
        """Return the options that are element expressions."""
        kernel = self._kernel(run)
        return frozenset(kernel.elements) if kernel is not None else frozenset()

    def _kernel_with(self, run: Run, configuration: Configuration) -> KernelSpec | None:
        """Return a run's kernel if it has the configuration."""
        kernel = self._kernel(run)
        variant = kernel.variants.get(configuration.variant) if kernel is not None else None
        return (
            kernel
            if variant is not None and variant.parameters.keys() == configuration.values.keys()
            else None
        )

    def _kernel(self, run: Run) -> KernelSpec | None:
        key = (run.problem.kernel, run.kernel_file)
        if key not in self._kernels:
            try:
                self._kernels[key] = self._load(run)
            except TunerError:
                self._kernels[key] = None
        return self._kernels[key]


def no_files(run: Run) -> KernelSpec:
    """Load no kernel: raises the error for a missing file."""
    raise TunerError(f"no file of {run.problem.kernel}")
