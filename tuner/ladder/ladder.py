"""A kernel's ladder: what each rung of its optimisation takes, size by size, beside what else computes the same.

A rung is a part of the search space: a variant, perhaps with some of its parameters narrowed, perhaps in another dtype.
:mod:`tuner.ladder.run` finds the best configuration of each and times them in turn; here is what it finds, and what
that means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from tuner.bench import targets
from tuner.bench.bench import OPPOSITE, Failure
from tuner.conditions import Calibration, Conditions, Mode, Regime
from tuner.database.records import Benchmark, Metrics
from tuner.devices.base import DEFAULT_NOISE_FLOOR
from tuner.errors import UsageError, suggestion
from tuner.hardware.roofline import Roof
from tuner.kernel.load import content_digest
from tuner.kernel.spec import KernelSpec, StepSpec
from tuner.model import Configuration, Gpu, Problem, Value
from tuner.stats import Ratio, Verdict, median_interval, paired_ratio, verdict
from tuner.tuning.state import metrics

RUNG = "rung:"
"""Stands before a rung's name among the benchmarks of the database, where others have names, too."""
LADDER = "ladder"
"""Tag of such benchmarks."""
TRIALS = 24
"""Configurations of a rung at a size: a rung is a small part of a space, and a sweep has dozens of such searches."""
TIME_S = 5.0
"""Of such a search."""
UNDECIDED = (Verdict.SAME, Verdict.AMBIGUOUS)


@dataclass(frozen=True)
class Climb:
    """What is asked for."""

    kernel: KernelSpec
    base: Problem
    """What holds at all sizes; a rung's own dtypes and options come before it."""
    sizes: tuple[Mapping[str, int], ...]
    rungs: tuple[StepSpec, ...]
    against: targets.Against
    trials: int = TRIALS
    time_s: float = TIME_S
    rounds: int = 20
    seed: int = 0
    mode: Mode | None = None
    """What the caches hold; None leaves it to each problem."""
    regime: Regime = Regime.RESTED
    from_scratch: bool = False
    """Search every rung, whatever the database knows."""


@dataclass(frozen=True)
class Tuned:
    """The best configuration of a rung for a problem, and where it comes from."""

    configuration: Configuration
    time_ns: float
    """In the search; the contest says it better."""
    trial_id: int | None
    run: str
    trials: int
    """Of that run."""
    known: bool = False
    """Whether that run was there already."""


@dataclass(frozen=True)
class Place:
    """What one contestant took: the best configuration of a rung, or a baseline."""

    name: str
    """The rung's or the baseline's."""
    text: str
    """The configuration or the call."""
    tuned: Tuned | None
    """None for a baseline."""
    samples_ns: tuple[float, ...]
    medians_ns: tuple[float, ...]
    """Of each round, so that those of one contest pair up; on the host, where there are no rounds, the samples."""
    on_host: bool = False
    verified: bool = True
    sm_clock_hz: float = 0.0

    @cached_property
    def time_ns(self) -> float:
        """Median of the rounds' medians."""
        return median(self.medians_ns)

    @cached_property
    def interval_ns(self) -> tuple[float, float]:
        """The ends of its 95 % interval. Samples of a group share their moment; the rounds are what is independent."""
        return median_interval(self.medians_ns)


@dataclass(frozen=True)
class Compared:
    """A comparison of two contestants."""

    ratio: Ratio
    """How many times as fast the one is: above 1 it is the faster."""
    verdict: Verdict
    """Of the one against the other."""


@dataclass(frozen=True)
class Contest:
    """What was timed in turn, round by round, on the data of one problem."""

    problem: Problem
    conditions: Conditions
    why: str
    """Why these conditions."""
    roof: Roof
    """With the ceilings that hold under them."""
    calibration: Calibration | None
    places: tuple[Place, ...]
    """The rungs in the order of the story, then the baselines by time."""
    failures: tuple[Failure, ...] = ()
    """Baselines that could not be timed."""
    tags: tuple[str, ...] = ()
    seed: int = 0

    @property
    def rungs(self) -> list[Place]:
        """The rungs that were timed."""
        return [place for place in self.places if place.tuned is not None]

    @property
    def baselines(self) -> list[Place]:
        """What they are compared with."""
        return [place for place in self.places if place.tuned is None]

    @property
    def fastest(self) -> Place | None:
        """The fastest rung."""
        return min(self.rungs, key=lambda place: place.time_ns, default=None)

    @property
    def rival(self) -> Place | None:
        """The fastest baseline on the GPU whose output is right; on the host, where there is no other."""
        right = [place for place in self.baselines if place.verified]
        return min(right, key=lambda place: (place.on_host, place.time_ns), default=None)

    def metrics(self, place: Place) -> Metrics:
        """Throughput, and the share of the speed of light."""
        return metrics(self.roof, place.time_ns)

    def noise_floor(self, place: Place) -> float:
        """How far from 1 the ratio of two equal kernels of this time may be."""
        if self.calibration is None:
            return DEFAULT_NOISE_FLOOR
        return self.calibration.noise_floor(self.conditions, place.time_ns)

    def against(self, place: Place, other: Place) -> Compared:
        """Compare two contestants, by the ratio within each round."""
        if (
            place.on_host or other.on_host
        ):  # timed alone: nothing pairs up, so the intervals' ends bound the ratio
            ratio = unpaired(other, place)
        else:
            ratio = paired_ratio(other.medians_ns, place.medians_ns, self.seed)
        found = verdict(ratio, self.noise_floor(place))
        return Compared(ratio, OPPOSITE.get(found, found))

    @cached_property
    def tied(self) -> list[Place]:
        """Rungs that cannot be told from the fastest, itself left out."""
        first = self.fastest
        if first is None:
            return []
        others = [place for place in self.rungs if place is not first]
        return [place for place in others if self.against(first, place).verdict in UNDECIDED]

    def by_launch(self, place: Place) -> bool:
        """Whether a time on the GPU is the launch's more than the kernel's."""
        if self.calibration is None or place.on_host:
            return False
        tied = self.tied
        alike = bool(tied) and (place is self.fastest or any(place is other for other in tied))
        return self.calibration.launch_decides(self.conditions, place.time_ns, tied=alike)

    @property
    def launch_decides(self) -> bool:
        """Whether the fastest takes little more than any launch, so that which rung it is means nothing."""
        return self.fastest is not None and self.by_launch(self.fastest)


@dataclass(frozen=True)
class Absence:
    """Why a rung has no time."""

    reason: str
    failed: bool = True
    """Whether something went wrong; else the rung does not exist for this problem on this GPU."""


STOPPED = Absence("not timed: stopped", failed=False)
"""A rung whose turn had not come."""


@dataclass(frozen=True)
class SpeedUp:
    """How many times as fast as the first rung something is."""

    ratio: Ratio
    paired: bool
    """Whether both were timed in one contest; a rung in another dtype has another problem, so a contest of its own."""


@dataclass(frozen=True)
class Level:
    """Everything at one size."""

    sizes: Mapping[str, int]
    contests: tuple[Contest, ...]
    """One for each problem: rungs that change the dtype or an option have their own."""
    absent: Mapping[str, Absence] = field(default_factory=dict)
    """The other rungs, by name."""

    def find(self, rung: str) -> tuple[Contest, Place] | None:
        """Return what a rung took, and in which contest."""
        for contest in self.contests:
            for place in contest.rungs:
                if place.name == rung:
                    return contest, place
        return None

    def first(self, rungs: Sequence[StepSpec]) -> str:
        """Name the first of some rungs that has a time here, with which all are compared; empty where none has."""
        return next((rung.name for rung in rungs if self.find(rung.name) is not None), "")

    def speed_up(self, contest: Contest, place: Place, first: str) -> SpeedUp | None:
        """Compare a contestant with a rung; None where that has no time here."""
        base = self.find(first)
        if base is None:
            return None
        if contest is base[0]:
            return SpeedUp(contest.against(place, base[1]).ratio, paired=True)
        return SpeedUp(unpaired(base[1], place), paired=False)


@dataclass
class Ladder:
    """What a sweep has found so far."""

    kernel: KernelSpec
    gpu: Gpu
    device: str
    rungs: tuple[StepSpec, ...]
    swept: tuple[str, ...]
    """The sizes that change from level to level."""
    levels: list[Level] = field(default_factory=list)
    complete: bool = False

    @property
    def replayed(self) -> bool:
        """Whether the times come from a recording."""
        return self.device.startswith("replay:")


def unpaired(place: Place, other: Place) -> Ratio:
    """Return the ratio of two times that were not taken in turn, bounded by the ends of their intervals."""
    (low, high), (other_low, other_high) = place.interval_ns, other.interval_ns
    return Ratio(place.time_ns / other.time_ns, low / other_high, high / other_low)


def problem_of(kernel: KernelSpec, base: Problem, sizes: Mapping[str, int], rung: StepSpec) -> Problem:
    """Settle what a rung computes at one size: the user's problem, with the dtypes and options of the rung itself.

    Raises:
        UsageError: the kernel has no such dtype or option.
    """
    free = {
        role: base.dtypes[role] for role, choices in kernel.dtypes.items() if not isinstance(choices, str)
    }
    options: dict[str, Value] = {**base.options, **rung.options}
    return kernel.problem({**base.sizes, **sizes}, {**free, **rung.dtypes}, options)


def records_of(
    contest: Contest, kernel: KernelSpec, gpu: Gpu, bench: str, versions: Mapping[str, str]
) -> list[Benchmark]:
    """Return what the database keeps of a contest: each contestant beside the fastest rung.

    Args:
        contest: what was found.
        kernel: whose ladder it is.
        gpu: where it was timed.
        bench: what all contests of one sweep have in common.
        versions: of the tools.
    """
    first = contest.fastest
    rows = []
    for place in contest.places:
        other = contest.against(first, place) if first is not None and place is not first else None
        low, high = place.interval_ns
        rows.append(
            Benchmark(
                bench=bench,
                problem=contest.problem,
                gpu=gpu,
                conditions=contest.conditions,
                contestant=f"{RUNG}{place.name}" if place.tuned is not None else place.name,
                configuration=place.tuned.configuration if place.tuned is not None else None,
                winner_id=None,
                kernel_digest=content_digest(kernel),
                time_ns=place.time_ns,
                ci_low_ns=low,
                ci_high_ns=high,
                samples_ns=place.samples_ns,
                ratio=other.ratio.median if other else None,
                ratio_low=other.ratio.low if other else None,
                ratio_high=other.ratio.high if other else None,
                verdict=str(other.verdict) if other else "",
                noise_floor=contest.noise_floor(first or place),
                sm_clock_hz=place.sm_clock_hz,
                tags=(*contest.tags, LADDER, *(() if place.verified else ("unverified",))),
                versions=versions,
            )
        )
    return rows


def choose_rungs(kernel: KernelSpec, names: Sequence[str]) -> tuple[StepSpec, ...]:
    """Return the rungs of these names, in the order of the story; all without any.

    Raises:
        UsageError: there is no such rung.
    """
    known = [rung.name for rung in kernel.steps]
    for name in names:
        if name not in known:
            quoted = [repr(one) for one in known]  # there are commas in some
            raise UsageError(f"{kernel.name} has no rung {name!r}", suggestion(repr(name), quoted))
    return tuple(rung for rung in kernel.steps if not names or rung.name in names)
