"""What a user asks of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.core.model import Problem, RunOptions
from tuner.kernel.spec import KernelSpec


@dataclass(frozen=True)
class Request:
    """What to tune, and how."""

    kernel: KernelSpec
    problem: Problem
    options: RunOptions = field(default_factory=RunOptions)
    resume: bool = False
    """Go on with the newest interrupted run of the problem, as that began."""
    expected_ns: float | None = None
    """What candidates take, roughly, where the time is short for them: then few are begun ahead."""
