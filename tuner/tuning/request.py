"""What a user asks of a run, and how much effort it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.core.errors import UsageError, suggestion
from tuner.core.model import Configuration, Problem, RunOptions
from tuner.kernel.spec import KernelSpec
from tuner.tuning.elimination import HEATS, SECONDS


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
    first: Sequence[Configuration] = ()
    """What is tried right after the default."""
    began: float | None = None
    """Monotonic seconds from which its time counts, a calibration left out; by default the search's beginning."""


def within(options: RunOptions, time_s: float | None) -> RunOptions:
    """Return options by which a search ends after a time, too, unless that is None."""
    limits_s = [limit_s for limit_s in (time_s, options.time_s) if limit_s is not None]
    return replace(options, time_s=min(limits_s, default=None))


@dataclass(frozen=True)
class Effort:
    """How much is done to find a winner, and to be sure of it."""

    trials: int
    stop_early: bool
    """Whether the search ends once no improvement beyond the noise floor is expected."""
    heats: tuple[int, ...]
    """Rounds of each heat of the race at the end (:mod:`tuner.tuning.elimination`)."""
    race_s: float
    """After so many seconds no further heat begins."""


EFFORTS = {
    "quick": Effort(60, True, HEATS[:1], SECONDS),
    "normal": Effort(200, False, HEATS, SECONDS),
    "thorough": Effort(1000, False, (*HEATS, 2 * HEATS[-1]), 4 * SECONDS),
}


def effort_options(
    effort: str, sampler: str = RunOptions.sampler, trials: int | None = None, stop_early: bool | None = None
) -> dict[str, Any]:
    """Return the fields of :class:`RunOptions` that an effort sets; what is given wins.

    Args:
        effort: one of :data:`EFFORTS`.
        sampler: only the default one is stopped early, unless that is given: others may not say what they expect.
        trials: None for as many as the effort takes.
        stop_early: None for what the effort does.

    Raises:
        UsageError: there is no such effort.
    """
    if effort not in EFFORTS:
        raise UsageError(f"there is no effort {effort!r}", suggestion(effort, EFFORTS))
    chosen = EFFORTS[effort]
    if stop_early is None:
        stop_early = chosen.stop_early and sampler == RunOptions.sampler
    return {"effort": effort, "trials": trials or chosen.trials, "sampler": sampler, "stop_early": stop_early}
