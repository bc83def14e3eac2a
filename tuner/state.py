"""What is asked of a run, where it stands, and what it found: the session fills these in, the reports read them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tuner.database import Metrics
from tuner.devices.base import Device
from tuner.kernel import KernelSpec
from tuner.model import Problem, Run, Trial, Value
from tuner.race import Finish
from tuner.roofline import Roof
from tuner.space import SearchSpace

WARM_UP_S = 3.0
"""The first compilations take so long that the GPU cannot be busy before."""


@dataclass(frozen=True)
class Request:
    """What a user asks for."""

    kernel: KernelSpec
    problem: Problem
    trials: int = 200
    sampler: str = "tpe"
    seed: int = 0
    variants: tuple[str, ...] = ()
    fixed: Mapping[str, tuple[Value | str, ...]] = field(default_factory=dict)
    time_s: float | None = None
    resume: bool = False
    from_scratch: bool = False
    """Do not look at earlier runs of this problem."""


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
    search_began: float = 0.0
    search_ended: float = 0.0
    device: Device | None = None

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


def metrics(roof: Roof, time_ns: float | None) -> Metrics:
    """Turn a time into throughput and the fraction of the speed of light."""
    if not time_ns:
        return Metrics()
    return Metrics(
        tflops=roof.flops / time_ns * 1e-3,
        gbytes_per_s=roof.bytes / time_ns,
        speed_of_light=roof.speed_of_light_ns / time_ns,
    )
