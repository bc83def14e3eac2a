"""Stored winners timed again beside the default configuration and baselines, in one interleaved comparison.

All contestants are timed in turn, round by round, and compared by the ratio within each round. The NumPy reference is
the exception: it runs on the host, alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any, Self

from tuner.core.conditions import Calibration
from tuner.core.model import Configuration, Gpu
from tuner.core.stats import Ratio, Verdict, median_interval, paired_ratio, ratio_record, reference_verdict
from tuner.database.records import Benchmark
from tuner.devices.base import Contestant, Device, RaceRequest, RaceResult
from tuner.kernel.baselines import Baseline
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.roofline import Roof, roof_of
from tuner.kernel.space import SearchSpace
from tuner.studies.bench.targets import BEST, DEFAULT, Against, Target

ROUNDS, SAMPLES = 20, 8
"""With medians of 8 that scatter by 0.2 % the median of 20 ratios is good to 0.16 %, well below most noise floors."""
SAME_MACHINE, SAME_NAME = 0.01, 0.03
"""A stored winner counts as slower from this share on: on the GPU and driver on which it was tuned, and on another GPU
of its name, whose clocks and memory differ."""
NOISE_FLOORS = 2.0
"""And from so many noise floors on: the time now and the one then are both off by up to one."""


@dataclass(frozen=True)
class NamedContestant:
    """One contestant by its name in the table."""

    name: str
    configuration: Configuration | None = None
    baseline: Baseline | None = None
    known_ns: float = 0.0
    """Its earlier time; 0 if there is none."""

    @property
    def text(self) -> str:
        """What it runs."""
        return self.baseline.line if self.baseline else str(self.configuration)

    @property
    def on_host(self) -> bool:
        """Whether it does not run on the GPU."""
        return self.baseline is not None and self.baseline.on_host

    @property
    def contestant(self) -> Contestant:
        """What the device times."""
        return Contestant(self.configuration, self.known_ns, self.baseline)


@dataclass(frozen=True)
class RaceSamples:
    """The samples of one contestant in an interleaved comparison."""

    samples_ns: tuple[float, ...]
    medians_ns: tuple[float, ...]
    """Of the rounds, which are what is independent: the samples of a group share their moment."""
    verified: bool
    sm_clock_hz: float

    @cached_property
    def time_ns(self) -> float:
        """Median of the rounds' medians."""
        return median(self.medians_ns)

    @cached_property
    def interval_ns(self) -> tuple[float, float]:
        """The ends of its 95 % interval."""
        return median_interval(self.medians_ns)

    @classmethod
    def of(cls, race: RaceResult, index: int, *, on_host: bool, ours: bool, **own: Any) -> Self:
        """Return the samples of a contestant.

        Args:
            race: the comparison.
            index: the contestant's index in it.
            on_host: whether it ran on the CPU, alone: all rounds then repeat one group, whose samples are independent.
            ours: whether it is a configuration, whose output the comparison has verified.
            own: the fields of a subclass.
        """
        groups = [round_[index] for round_ in race.samples_ns]
        if on_host:
            groups = groups[:1]
        return cls(
            tuple(sample for group in groups for sample in group),
            tuple(groups[0]) if on_host else tuple(median(group) for group in groups),
            race.verified[index] if race.verified else ours,
            race.sm_clock_hz[index] if race.sm_clock_hz else 0.0,
            **own,
        )


@dataclass(frozen=True)
class Entry(RaceSamples):
    """A contestant with its time."""

    contestant: NamedContestant
    ratio: Ratio | None = None
    """Its time over the reference's; None for the reference itself, or without one."""
    verdict: Verdict | None = None
    """Of the reference against it."""


@dataclass(frozen=True)
class Failure:
    """A contestant that could not be timed."""

    name: str
    text: str
    error: str
    configuration: bool
    """Whether it is a configuration of the kernel, which should not fail, rather than a baseline."""

    def to_json(self) -> dict[str, str]:
        """Return it for programs."""
        return {"contestant": self.name, "what": self.text, "error": self.error}


@dataclass(frozen=True)
class Bench:
    """The results of one target."""

    target: Target
    gpu: Gpu
    roof: Roof
    noise_floor: float
    """Of the reference; 0 where nothing could be timed."""
    calibration: Calibration | None
    entries: tuple[Entry, ...]
    """The reference first, the others by time."""
    failures: tuple[Failure, ...]
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """The contestant that the others are compared with: the best, else the default; empty if neither ran."""
        first = self.entries[0].contestant if self.entries else None
        return first.name if first is not None and first.configuration is not None else ""

    @property
    def best(self) -> Entry | None:
        """The stored winner."""
        return next((entry for entry in self.entries if entry.contestant.name == BEST), None)


@dataclass(frozen=True)
class SpeedCheck:
    """Whether a stored winner is still as fast as it was."""

    before_ns: float
    before: str
    """When that was."""
    now_ns: float | None
    """None where it cannot be run any more."""
    low_ns: float | None
    tolerance: float
    same_machine: bool
    """Whether GPU and driver are those of then."""
    slower: bool
    reason: str = ""
    """Why it could not be run."""


def bench(device: Device, target: Target, against: Against, rounds: int, seed: int) -> Bench:
    """Time a target's contestants in turn, and compare them.

    A contestant that fails is left out, and the others start again.

    Raises:
        TunerError: the problem cannot be measured at all.
    """
    kernel, problem = target.kernel, target.problem
    device.prepare(kernel, problem, seed, target.conditions)
    contestants, notes = _named_contestants(device, target, against)
    failures: list[Failure] = []
    if target.winner is not None and target.broken:
        failures.append(
            Failure(BEST, str(target.winner.winner.configuration), target.broken, configuration=True)
        )
    race: RaceResult | None = None
    while contestants:
        race = device.race(RaceRequest([named.contestant for named in contestants], rounds, SAMPLES, seed))
        if race.failed is None:
            break
        failed = contestants.pop(race.failed)
        if against.named or failed.baseline is None or not race.not_installed:
            failures.append(Failure(failed.name, failed.text, race.error, failed.baseline is None))
        race = None
    entries, noise_floor = _compared(contestants, race, device.noise_floor) if race is not None else ((), 0.0)
    return Bench(
        target,
        device.gpu,
        roof_of(kernel, problem, device.gpu),
        noise_floor,
        device.calibration,
        entries,
        tuple(failures),
        race.tags if race is not None else (),
        (*target.notes, *notes),
    )


def check(device: Device, timed: Bench, rounds: int, seed: int) -> SpeedCheck | None:
    """Return whether a target's stored winner is slower than it was; one that seems so is measured once more.

    Must follow the target's :func:`bench`, while the device is prepared for it. None if nothing can be compared: no
    winner of this problem, or one that was timed under other conditions.
    """
    target, best = timed.target, timed.best
    stored = target.winner
    if stored is None or not target.comparable:
        return None
    now, then = timed.gpu, stored.run.gpu
    same = bool(now.uuid) and (now.uuid, now.driver) == (then.uuid, then.driver)
    tolerance = max(SAME_MACHINE if same else SAME_NAME, NOISE_FLOORS * timed.noise_floor)
    result = SpeedCheck(
        stored.winner.time_ns, stored.created_at, None, None, tolerance, same_machine=same, slower=True
    )
    if best is None:
        reason = next((failure.error for failure in timed.failures if failure.name == BEST), "")
        return replace(result, reason=reason or "it could not be run")
    limit_ns = stored.winner.time_ns * (1.0 + tolerance)
    if best.interval_ns[0] > limit_ns:
        again = device.race(RaceRequest([best.contestant.contestant], rounds, SAMPLES, seed + 1))
        if again.failed is not None:
            return replace(result, reason=again.error)
        best = _entry(best.contestant, again, 0)
    low_ns = best.interval_ns[0]
    return replace(result, now_ns=best.time_ns, low_ns=low_ns, slower=low_ns > limit_ns)


def unpaired(one: RaceSamples, other: RaceSamples) -> Ratio:
    """Return the ratio of two times that were not taken in turn, bounded by the ends of their intervals."""
    (low, high), (other_low, other_high) = one.interval_ns, other.interval_ns
    return Ratio(one.time_ns / other.time_ns, low / other_high, high / other_low)


def ratio_columns(ratio: Ratio | None, verdict: Verdict | None) -> dict[str, Any]:
    """Return what a row of the database has of a comparison: nothing, if there is none."""
    return {**ratio_record(ratio), "verdict": str(verdict) if ratio and verdict else ""}


def records_of(result: Bench, bench_id: str, versions: Mapping[str, str]) -> list[Benchmark]:
    """Return the rows that the database keeps of it."""
    target = result.target
    by_best = result.reference == BEST
    identity = KernelIdentity(target.kernel)
    rows = []
    for entry in result.entries:
        contestant = entry.contestant
        rows.append(
            Benchmark(
                bench=bench_id,
                problem=target.problem,
                gpu=result.gpu,
                conditions=target.conditions,
                contestant=contestant.name,
                configuration=contestant.configuration,
                winner_id=target.winner.id if target.winner and contestant.name == BEST else None,
                kernel_digest=identity.text,
                computation=identity.computation,
                time_ns=entry.time_ns,
                ci_low_ns=entry.interval_ns[0],
                ci_high_ns=entry.interval_ns[1],
                samples_ns=entry.samples_ns,
                **ratio_columns(entry.ratio if by_best else None, entry.verdict),
                noise_floor=result.noise_floor,
                sm_clock_hz=entry.sm_clock_hz,
                tags=(*result.tags, *(() if entry.verified else ("unverified",))),
                versions=versions,
            )
        )
    return rows


def _named_contestants(
    device: Device, target: Target, against: Against
) -> tuple[list[NamedContestant], list[str]]:
    """Return the best, the default and the baselines, in this order."""
    contestants: list[NamedContestant] = []
    notes: list[str] = []
    stored = target.winner
    best = stored.winner if stored is not None and not target.broken else None
    if best is not None:
        contestants.append(
            NamedContestant(BEST, best.configuration, known_ns=best.time_ns if target.comparable else 0.0)
        )
    if against.default or best is None:
        default = SearchSpace.from_kernel(target.kernel, target.problem, device.gpu).default
        if best is not None and default == best.configuration:
            notes.append("the default configuration is the best")
        else:
            default_ns = stored.winner.default_time_ns if stored and target.comparable else None
            contestants.append(NamedContestant(DEFAULT, default, known_ns=default_ns or 0.0))
    contestants += [NamedContestant(baseline.name, baseline=baseline) for baseline in against.baselines]
    return contestants, notes


def _compared(
    contestants: Sequence[NamedContestant], race: RaceResult, noise_of: Callable[[float], float]
) -> tuple[tuple[Entry, ...], float]:
    """Return the contestants compared with the first configuration, and its noise floor."""
    entries = [_entry(contestant, race, i) for i, contestant in enumerate(contestants)]
    reference = next((entry for entry in entries if entry.contestant.configuration is not None), None)
    if reference is None:
        entries.sort(key=lambda entry: entry.time_ns)
        return tuple(entries), noise_of(entries[0].time_ns)
    noise_floor = noise_of(reference.time_ns)
    compared = []
    for entry in entries:
        if entry is reference:
            continue
        on_host = entry.contestant.on_host
        ratio = (
            unpaired(entry, reference) if on_host else paired_ratio(entry.medians_ns, reference.medians_ns)
        )
        compared.append(replace(entry, ratio=ratio, verdict=reference_verdict(ratio, noise_floor)))
    return (reference, *sorted(compared, key=lambda entry: entry.time_ns)), noise_floor


def _entry(contestant: NamedContestant, race: RaceResult, index: int) -> Entry:
    ours = contestant.configuration is not None
    return Entry.of(race, index, on_host=contestant.on_host, ours=ours, contestant=contestant)
