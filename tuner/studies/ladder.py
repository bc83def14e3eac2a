"""The results of a ladder: the time of each optimisation step of a kernel, size by size, beside the baselines.

A step is a part of the search space: a variant, perhaps with some of its parameters narrowed, perhaps in another dtype.
:mod:`tuner.studies.ladder_run` tunes each step and times them in turn; this module holds the times and compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tuner.core.errors import UsageError, suggestion
from tuner.core.model import Configuration, Gpu, Problem, RunOptions, Value
from tuner.core.stats import UNDECIDED, Ratio
from tuner.database.records import Benchmark
from tuner.devices.base import Device, Timed
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.spec import KernelSpec, StepSpec
from tuner.studies.bench import Against
from tuner.studies.interleaved import Comparison, rows_of, unpaired

STEP_PREFIX = "rung:"
"""Before a step's name among the benchmarks of the database, so that no baseline has the same name."""
LADDER = "ladder"
"""Tag of these benchmarks."""
SEARCH = RunOptions(trials=24, time_s=5.0)
"""Of a step at a size: a step is a small part of a space, and a sweep has dozens of such searches."""


@dataclass(frozen=True)
class Sweep:
    """What a ladder run measures."""

    kernel: KernelSpec
    base: Problem
    """The problem but for its swept sizes; a step's own dtypes and options replace those of it."""
    sizes: tuple[Mapping[str, int], ...]
    steps: tuple[StepSpec, ...]
    against: Against
    rounds: int = 20
    search: RunOptions = SEARCH
    """Of each step; its conditions and its seed hold for the race as well."""


@dataclass(frozen=True)
class Tuned:
    """The best configuration of a step for a problem, and where it comes from."""

    configuration: Configuration
    time_ns: float
    """In the search, where it ran alone."""
    trial_id: int | None
    run: str
    trials: int
    """Of that run."""
    reused: bool = False
    """Whether that run was in the database before this ladder run."""


@dataclass(frozen=True, kw_only=True)
class StepComparison(Comparison):
    """The best configurations of the steps of one problem, in the ladder's order, then the baselines by time."""

    why: str
    """Why these conditions."""
    tuned: Mapping[str, Tuned]
    """The steps that have a configuration, by name."""

    @property
    def steps(self) -> list[Timed]:
        """The steps that were timed."""
        return [timing for timing in self.timings if timing.configuration is not None]

    @property
    def baselines(self) -> list[Timed]:
        """The baselines that were timed."""
        return [timing for timing in self.timings if timing.configuration is None]

    @property
    def fastest(self) -> Timed | None:
        """The fastest step."""
        return min(self.steps, key=lambda timing: timing.time_ns, default=None)

    @property
    def best_baseline(self) -> Timed | None:
        """The fastest baseline whose output is right."""
        right = [timing for timing in self.baselines if timing.verified]
        return min(right, key=lambda timing: timing.time_ns, default=None)

    @cached_property
    def tied(self) -> list[Timed]:
        """The other steps that are statistically tied with the fastest."""
        first = self.fastest
        if first is None:
            return []
        others = [timing for timing in self.steps if timing is not first]
        return [timing for timing in others if self.against(first, timing).verdict in UNDECIDED]

    def by_launch(self, timing: Timed) -> bool:
        """Return whether a time is more the launch's than the kernel's."""
        if self.calibration is None:
            return False
        tied = self.tied
        alike = bool(tied) and (timing is self.fastest or any(timing is other for other in tied))
        return self.calibration.launch_decides(self.conditions, timing.time_ns, tied=alike)

    @property
    def launch_decides(self) -> bool:
        """Whether the fastest step takes little more than any launch, so that the order of the steps means nothing."""
        return self.fastest is not None and self.by_launch(self.fastest)


@dataclass(frozen=True)
class Absence:
    """Why a step has no time."""

    reason: str
    failed: bool = True
    """Whether something went wrong; else the step does not exist for this problem on this GPU."""


STOPPED = Absence("not timed: stopped", failed=False)
"""Of a step that was not reached."""


@dataclass(frozen=True)
class Level:
    """Everything at one size."""

    sizes: Mapping[str, int]
    comparisons: list[StepComparison] = field(default_factory=list)
    """One for each problem: steps that change the dtype or an option have their own."""
    absent: dict[str, Absence] = field(default_factory=dict)
    """The other steps, by name."""

    def find(self, step: str) -> tuple[StepComparison, Timed] | None:
        """Return the comparison in which a step was timed, and its timing; None if it was not."""
        for comparison in self.comparisons:
            for timing in comparison.steps:
                if timing.name == step:
                    return comparison, timing
        return None

    def first(self, steps: Sequence[StepSpec]) -> str:
        """Return the name of the first of some steps that has a time here; empty if none has."""
        return next((step.name for step in steps if self.find(step.name) is not None), "")

    def speed_up(self, comparison: StepComparison, timing: Timed, first: str) -> tuple[Ratio, bool] | None:
        """Return how many times as fast as a step a contestant is; None if that has no time here.

        And whether both were timed in one comparison: a step in another dtype has a comparison of its own.
        """
        base = self.find(first)
        if base is None:
            return None
        if comparison is base[0]:
            return comparison.against(timing, base[1]).ratio, True
        return unpaired(base[1], timing), False


@dataclass
class Ladder:
    """The results of a sweep so far."""

    kernel: KernelSpec
    gpu: Gpu
    device: str
    steps: tuple[StepSpec, ...]
    swept: tuple[str, ...]
    """The sizes that change from level to level."""
    levels: list[Level] = field(default_factory=list)
    complete: bool = False

    @property
    def replayed(self) -> bool:
        """Whether the times come from a recording."""
        return self.device.startswith("replay:")


def problem_of(kernel: KernelSpec, base: Problem, sizes: Mapping[str, int], step: StepSpec) -> Problem:
    """Return the problem of a step at one size: the user's, with the dtypes and options of the step itself.

    Raises:
        UsageError: the kernel has no such dtype or option.
    """
    options: dict[str, Value] = {**base.options, **step.options}
    return kernel.problem({**base.sizes, **sizes}, {**kernel.chosen_dtypes(base), **step.dtypes}, options)


def size_text(value: int) -> str:
    """Write a size: a large power of two as such."""
    exponent = value.bit_length() - 1
    return f"2^{exponent}" if value == 1 << exponent and exponent >= 14 else str(value)


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Name a level by its sizes: ``m=n=k=4096``, or ``m=16 n=8192``."""
    if len(sizes) > 1 and len(set(sizes.values())) == 1:
        return f"{'='.join(sizes)}={size_text(next(iter(sizes.values())))}"
    return " ".join(f"{name}={size_text(value)}" for name, value in sizes.items())


def records_of(comparison: StepComparison, device: Device, bench: str) -> list[Benchmark]:
    """Return the rows that the database keeps of a comparison: each contestant beside the fastest step.

    Args:
        comparison: what was timed.
        device: where; prepared for it.
        bench: the id that all comparisons of one sweep share.
    """
    first = comparison.fastest
    row = rows_of(KernelIdentity(comparison.kernel), device, bench)
    return [
        row(
            timing.name if timing.configuration is None else f"{STEP_PREFIX}{timing.name}",
            timing,
            comparison.against(first, timing) if first and timing is not first else None,
            (*comparison.tags, LADDER),
            noise_floor=comparison.noise_floor(first or timing),
        )
        for timing in comparison.timings
    ]


def choose_steps(kernel: KernelSpec, names: Sequence[str]) -> tuple[StepSpec, ...]:
    """Return the steps of these names, in the ladder's order; all steps if there are no names.

    Raises:
        UsageError: there is no such step.
    """
    choices = [step.name for step in kernel.steps]
    for name in names:
        if name not in choices:
            quoted = [repr(one) for one in choices]  # there are commas in some
            raise UsageError(f"{kernel.name} has no step {name!r}", suggestion(repr(name), quoted))
    return tuple(step for step in kernel.steps if not names or step.name in names)
