"""Time against error: the dtypes to try under a bound on the error, the Pareto front, and the dtype that wins.

The error of a configuration is ``||out - truth||_2 / ||truth||_2``: its output against the result that float64
arithmetic gives on inputs of the widest dtype that the kernel knows. So the error holds everything that a narrower
dtype costs: rounding the inputs, the arithmetic, and rounding the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.core.conditions import Calibration, Conditions
from tuner.core.errors import UsageError, suggestion
from tuner.core.model import Configuration, Problem, Run, Status, Trial
from tuner.database.records import StoredWinner
from tuner.devices.base import DEFAULT_NOISE_FLOOR
from tuner.kernel.reference import UNIT_ROUNDOFF
from tuner.kernel.spec import KernelSpec
from tuner.tuning.state import Finish

ERROR_RESOLUTION = 0.01
"""Errors that differ by less, relatively, count as equal: a front of hundreds of configurations that differ in the
seventh digit says nothing. Other inputs move an error, too: by some 1 / sqrt(2 * outputs), 0.7 % of 10,000."""
WITH_A_TIME = (Status.OK, Status.SLOW, Status.INACCURATE)
"""An inaccurate trial was verified and timed; it does not race, but can be on the front."""

NoiseOf = Callable[[float], float]
"""From a time in nanoseconds to the noise floor of ratios of such times."""


def dtypes_to_try(kernel: KernelSpec, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the dtypes of the first role that a bound on the error lets the tuner choose from.

    Args:
        kernel: what computes.
        wanted: dtypes by name; all that the kernel has when empty.

    Raises:
        UsageError: one of them is unknown to the kernel, or not a floating-point dtype.
    """
    role, choices = next(iter(kernel.dtypes.items()))
    names = (choices,) if isinstance(choices, str) else choices
    floats = tuple(name for name in names if name in UNIT_ROUNDOFF)
    if not floats:
        raise UsageError(
            f"{kernel.name} has no floating-point dtype of {role}: its results have no error to choose by",
            "leave out --max-error",
        )
    for dtype in wanted:
        if dtype not in floats:
            raise UsageError(
                f"{kernel.name} has no floating-point dtype {dtype!r}", suggestion(dtype, floats)
            )
    return tuple(dict.fromkeys(wanted)) or floats


def truth_of(kernel: KernelSpec, problem: Problem) -> Problem:
    """Return the same problem in the widest floating-point dtypes that the kernel knows, role by role.

    Its inputs, made from the same seed, are the unrounded ones.
    """
    widest = {
        role: min(floats, key=UNIT_ROUNDOFF.__getitem__)
        for role, choices in kernel.dtypes.items()
        if not isinstance(choices, str) and (floats := [dtype for dtype in choices if dtype in UNIT_ROUNDOFF])
    }
    return kernel.problem(problem.sizes, {**kernel.chosen_dtypes(problem), **widest}, problem.options)


@dataclass(frozen=True)
class Best:
    """How the race of one dtype ended."""

    trial_id: int | None
    time_ns: float
    confirmed_ns: float | None
    """In a fresh process; None where it was not confirmed."""
    error: float | None
    """On the inputs of the confirmation, where it was counted."""
    exportable: bool
    raced_ns: Mapping[Configuration, float] = field(default_factory=dict)
    """Medians of all contestants of the race."""
    refused: frozenset[int | None] = frozenset()
    """Ids of the trials that failed in the race or could not be confirmed."""

    @classmethod
    def of(cls, finish: Finish) -> Best:
        """Return what matters here of a run's finish."""
        verification = finish.confirmed.verification if finish.confirmed else None
        return cls(
            finish.winner.id,
            finish.time_ns,
            finish.confirmed_ns,
            verification.true_error if verification else None,
            finish.exportable,
            dict(finish.medians_ns),
            frozenset(trial.id for trial, _ in finish.unstable),
        )

    @classmethod
    def stored(cls, row: StoredWinner) -> Best:
        """Return it from the database, for a run that ended earlier."""
        winner = row.winner
        return cls(winner.trial_id, winner.time_ns, winner.confirmed_ns, None, winner.exportable)


@dataclass(frozen=True)
class Point:
    """A verified trial as a time and an error."""

    problem: Problem
    trial: Trial
    time_ns: float
    """From the race if it took part, else from the search."""
    error: float
    confirmed_ns: float | None = None
    """In a fresh process: of the confirmed winner of its dtype alone."""

    @property
    def reproduced_within(self) -> float:
        """How far, relatively, the time in the fresh process was from the race's."""
        return 0.0 if self.confirmed_ns is None else abs(self.confirmed_ns / self.time_ns - 1.0)


def points_of(problem: Problem, trials: Iterable[Trial], best: Best | None) -> list[Point]:
    """Return the verified trials of one dtype that have a time and an error, in the order of the trials.

    The search timed each once, at a moment of its own; times of the race replace those. A trial that could have raced
    but looks faster than the winner gets the winner's time, because the race did not find it faster.
    """
    points = [_point(problem, trial, best) for trial in trials]
    return [point for point in points if point is not None]


def _point(problem: Problem, trial: Trial, best: Best | None) -> Point | None:
    verification = trial.verification
    if trial.status not in WITH_A_TIME or trial.suspect or not trial.time_ns:
        return None
    if verification is None or not verification.passed or verification.true_error is None:
        return None
    if best is not None and trial.id in best.refused:
        return None
    time_ns, error, confirmed_ns = trial.time_ns, verification.true_error, None
    if best is not None and trial.id == best.trial_id:
        time_ns, error = best.time_ns, max(error, best.error or 0.0)
        confirmed_ns = best.confirmed_ns if best.exportable else None
    elif best is not None and trial.status is not Status.INACCURATE:
        time_ns = max(best.raced_ns.get(trial.configuration, time_ns), best.time_ns)
    return Point(problem, trial, time_ns, error, confirmed_ns) if math.isfinite(error) else None


def pareto_front(points: Iterable[Point], noise_of: NoiseOf) -> list[Point]:
    """Return the points that no other beats, fastest first.

    A point is off the front when one of the front is at least as accurate and not slower beyond the noise; no two of
    the front are tied in time. Errors within :data:`ERROR_RESOLUTION` of a smallest one count as equal to it. (Points
    are not compared with *all* others: "within the noise" is not transitive, and a chain of ties could leave the front
    without a point near the fastest.)
    """
    front: list[Point] = []
    anchor = -math.inf  # smallest error of those that the last of the front represents: ties must not creep
    for point in sorted(points, key=lambda p: (p.error, p.time_ns)):
        if front and point.time_ns * (1.0 + noise_of(point.time_ns)) >= front[-1].time_ns:
            continue
        if front and point.error <= anchor * (1.0 + ERROR_RESOLUTION):
            front[-1] = point
        else:
            front.append(point)
            anchor = point.error
    return front[::-1]


@dataclass(frozen=True)
class Choice:
    """Which dtype wins."""

    winner: Point
    tied: tuple[Point, ...] = ()
    """Winners of other dtypes that are not slower beyond the noise, but less accurate."""
    noise: float = 0.0
    """Relative difference in time up to which they counted as tied; 0 where none was."""


def choose(points: Iterable[Point], max_error: float, noise_of: NoiseOf) -> Choice | None:
    """Return the fastest confirmed winner within the bound; of those tied with it, the most accurate.

    Dtypes are raced separately, so that their ratio is not paired: each one's time in a fresh process is compared, and
    how far that was from its race's time is noise as well, where it exceeds the noise floor.

    Returns:
        None when no confirmed winner is within the bound.
    """
    allowed = [point for point in points if point.confirmed_ns is not None and point.error <= max_error]
    if not allowed:
        return None
    fastest = min(allowed, key=_confirmed)

    def noise(point: Point) -> float:
        return max(noise_of(fastest.time_ns), fastest.reproduced_within, point.reproduced_within)

    tied = [
        point
        for point in allowed
        if point is fastest or _confirmed(point) <= _confirmed(fastest) * (1.0 + noise(point))
    ]
    tied.sort(key=lambda point: (point.error, _confirmed(point)))
    return Choice(tied[0], tuple(tied[1:]), max(noise(p) for p in tied) if len(tied) > 1 else 0.0)


def _confirmed(point: Point) -> float:
    return math.inf if point.confirmed_ns is None else point.confirmed_ns


@dataclass
class Comparison:
    """The dtypes of one problem under a bound on the error, each with its result."""

    truth: Problem
    max_error: float
    points: list[Point] = field(default_factory=list)
    skipped: list[tuple[Problem, str]] = field(default_factory=list)
    """Dtypes without an answer, and why."""
    conditions: Conditions | None = None
    calibrations: list[Calibration | None] = field(default_factory=list)

    def add(self, run: Run, trials: Iterable[Trial], best: Best | None) -> None:
        """Add the results of a run of one dtype.

        Raises:
            UsageError: it was timed under other conditions than those before it.
        """
        if self.conditions not in (None, run.conditions):
            raise UsageError(
                f"{run.problem} was timed {run.conditions}, the dtypes before it {self.conditions}: "
                "such times cannot be compared",
                "tune all of them anew, without --resume",
            )
        self.conditions = run.conditions
        self.calibrations.append(run.calibration)
        self.points += points_of(run.problem, trials, best)

    def noise_of(self, time_ns: float) -> float:
        """Return the noise floor of ratios of times such as this: the largest, where the runs found several."""
        conditions = self.conditions or Conditions()
        floors = [c.noise_floor(conditions, time_ns) for c in self.calibrations if c is not None]
        return max(floors, default=DEFAULT_NOISE_FLOOR)

    @property
    def front(self) -> list[Point]:
        """The Pareto front over all dtypes, fastest first."""
        return pareto_front(self.points, self.noise_of)

    @property
    def choice(self) -> Choice | None:
        """The winner among the dtypes, if there is one."""
        return choose(self.points, self.max_error, self.noise_of)

    @property
    def others(self) -> list[Point]:
        """Confirmed winners of their dtype that are not on the front, fastest first."""
        on_front = {id(point) for point in self.front}
        confirmed = (point for point in self.points if point.confirmed_ns is not None)
        return sorted((one for one in confirmed if id(one) not in on_front), key=lambda one: one.time_ns)
