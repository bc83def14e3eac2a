"""What a user asks of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.core.conditions import Mode, Regime
from tuner.core.model import Problem, RunOptions
from tuner.kernel.spec import KernelSpec


@dataclass(frozen=True)
class Request:
    """What to tune, how long, and how."""

    kernel: KernelSpec
    problem: Problem
    trials: int = 200
    sampler: str = "gp-ei"
    """As :func:`tuner.search.samplers.find_sampler` takes it."""
    seed: int = 0
    options: RunOptions = field(default_factory=RunOptions)
    time_s: float | None = None
    expected_ns: float | None = None
    """What candidates take, roughly, where ``time_s`` is short for them: then few are begun ahead."""
    resume: bool = False
    mode: Mode | None = None
    """What the caches hold; None leaves it to the problem."""
    regime: Regime = Regime.RESTED
    study_storage: str | None = None
    """URL of an Optuna storage that gets a copy of the run while it goes on."""
