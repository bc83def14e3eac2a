"""What is asked of a run, where it stands, and what it found: the session fills these in, the reports read them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tuner.conditions import Calibration, Mode, Regime
from tuner.database.database import Metrics
from tuner.devices.base import Device
from tuner.hardware.roofline import Roof
from tuner.kernel.plan import tensors_of
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Problem, Run, Trial, Value
from tuner.search.initial import Seeds
from tuner.search.stopping import Enough
from tuner.space.space import SearchSpace
from tuner.tuning.race import Finish

WARM_UP_S = 3.0
"""The first compilations take so long that the GPU cannot be busy before."""
COPY_SHARE = 0.1
"""Share of a problem's bytes that are written, above which a copy is what its bandwidth is compared with."""


@dataclass(frozen=True)
class Request:
    """What a user asks for."""

    kernel: KernelSpec
    problem: Problem
    trials: int = 200
    sampler: str = "kriging"
    seed: int = 0
    variants: tuple[str, ...] = ()
    fixed: Mapping[str, tuple[Value | str, ...]] = field(default_factory=dict)
    time_s: float | None = None
    resume: bool = False
    from_scratch: bool = False
    """Do not look at earlier runs of this problem."""
    mode: Mode | None = None
    """What the caches hold; None leaves it to the problem."""
    regime: Regime = Regime.RESTED
    max_error: float | None = None
    """How far from the true result an output may be, as the norm of the difference over the norm."""
    truth: Problem | None = None
    """The same problem in the dtype whose result is the true one; given with ``max_error``."""
    stop_early: bool = False
    """Try nothing new once no improvement beyond the noise floor is expected."""
    rules: tuple[str, ...] = ()
    """Rules of thumb that have narrowed the kernel."""
    seeds: str = "auto"
    """Where the configurations that are tried first come from: one of ``tuner.search.initial.CHOICES``."""


@dataclass(frozen=True)
class Ceiling:
    """What one of the tuner's own kernels reached on this GPU, as the time that the problem would take at that rate."""

    name: str
    """``copy``, ``read``, ``matrix`` or ``vector``."""
    time_ns: float


@dataclass
class State:
    """Where a run stands; what the progress display reads."""

    run: Run
    roof: Roof
    space: SearchSpace
    trials: list[Trial] = field(default_factory=list)
    incumbent: Trial | None = None
    default: Trial | None = None
    phase: str = "searching"
    resumed_trials: int = 0
    """Trials that were there when an interrupted run went on."""
    known_before: int = 0
    """Trials of earlier runs that the search was told."""
    hints: int = 0
    """Trials at other problems or on other GPUs that the search was told of."""
    search_began: float = 0.0
    search_ended: float = 0.0
    device: Device | None = None
    conditions_why: str = ""
    """Why everything is timed under the run's conditions."""
    ceiling: Ceiling | None = None
    known: tuple[Configuration, float] | None = None
    """The best that the database knew under these conditions when the run began, and its time in nanoseconds then."""
    retimed: int = 0
    """Trials beyond the budget: configurations timed again because the GPU had drifted."""
    enough: Enough | None = None
    """Why nothing new was tried although trials were left."""
    seeds: Seeds = field(default_factory=Seeds)
    """What is tried first, and where it comes from."""

    def __post_init__(self) -> None:
        self.roof = roof_under(self.roof, self.run.conditions.mode)

    @property
    def budget(self) -> int:
        """Trials that there will be, unless time or space end before."""
        return self.run.trials + self.retimed

    def of_ceiling(self, time_ns: float) -> float | None:
        """Return the share of the measured ceiling that a time is; None where no ceiling holds under these conditions."""
        if self.ceiling is None or not self.roof.speed_of_light_ns:
            return None
        return self.ceiling.time_ns / time_ns

    @property
    def elapsed_s(self) -> float:
        """Seconds of the search so far."""
        return (self.search_ended or time.monotonic()) - self.search_began

    @property
    def occupied(self) -> float | None:
        """Share of the search after :data:`WARM_UP_S` for which the GPU was verifying, timing or resting on purpose.

        None for a shorter search and for a recorded one.
        """
        if self.device is None or self.device.recorded or self.elapsed_s <= WARM_UP_S:
            return None
        return self.device.occupancy.share(
            self.search_began + WARM_UP_S, self.search_ended or time.monotonic()
        )

    @property
    def seed_trials(self) -> dict[str, list[Trial]]:
        """The trials of what was tried first, by where it came from."""
        found: dict[str, list[Trial]] = {source: [] for source in self.seeds.sources.values()}
        first = {trial.configuration: trial for trial in reversed(self.trials)}
        for configuration, source in self.seeds.sources.items():
            if configuration in first:
                found[source].append(first[configuration])
        return found

    @property
    def failures(self) -> dict[str, int]:
        """Number of failed trials by status."""
        counts: dict[str, int] = {}
        for trial in self.trials:
            if not trial.status.ranked:
                counts[trial.status] = counts.get(trial.status, 0) + 1
        return counts


@dataclass(frozen=True)
class Result:
    """What a run found."""

    state: State
    finish: Finish | None
    winner_id: int | None
    stats: Mapping[str, Any]


class Observer(Protocol):
    """Who watches a run."""

    def started(self, state: State) -> None:
        """The space is known, nothing was tried yet."""

    def trial(self, state: State, trial: Trial) -> None:
        """One trial ended."""

    def phase(self, state: State, what: str) -> None:
        """Something other than the search begins."""

    def tick(self, state: State) -> None:
        """Some time passed."""

    def close(self) -> None:
        """The run is over, however it ended."""


def roof_under(roof: Roof, mode: Mode) -> Roof:
    """Return a roof with the ceilings that hold in a mode; the others become infinite, as unknown ones are."""
    if mode is not Mode.WARM:
        return roof
    # With warm caches the bytes need not come from memory: its rate limits nothing then, shares of it can be several
    # hundred per cent, and what the caches can deliver is not known. The arithmetic is the same; but where it is not
    # what takes longest, its share says nothing about how good a time is, so that there is none at all.
    flops = roof.peak_flops if roof.bound == "compute" else math.inf
    return replace(roof, peak_flops=flops, peak_bytes_per_s=math.inf)


def metrics(roof: Roof, time_ns: float | None) -> Metrics:
    """Turn a time into throughput and the fraction of the speed of light, None where no ceiling is known."""
    if not time_ns:
        return Metrics()
    return Metrics(
        tflops=roof.flops / time_ns * 1e-3 or None,
        gbytes_per_s=roof.bytes / time_ns or None,
        speed_of_light=roof.speed_of_light_ns / time_ns or None,
    )


def ceiling_of(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, roof: Roof, calibration: Calibration | None
) -> Ceiling | None:
    """Choose the measured ceiling that a problem is to be compared with; None where none was measured."""
    if calibration is None:
        return None
    work: float
    if roof.bound == "compute":
        work, dtype = roof.flops, problem.dtype
        matrix = kernel.work.pipe == "matrix" and dtype in ("float16", "bfloat16")
        name = "matrix" if matrix else "vector"
        rate = calibration.matrix_flops if matrix else calibration.vector_flops * (dtype == "float32")
    else:
        tensors = tensors_of(kernel, problem, gpu)
        written = sum(tensor.size_bytes for tensor in tensors if tensor.role != "input")
        work = roof.bytes
        copies = written > COPY_SHARE * sum(tensor.size_bytes for tensor in tensors)
        name = "copy" if copies else "read"
        rate = calibration.copy_bytes_per_s if copies else calibration.read_bytes_per_s
    return Ceiling(name, work / rate * 1e9) if rate > 0 and work > 0 else None
