"""Stored winners, timed again: beside the default configuration and what else computes the same, in one race.

Everything that is compared was timed in turn, round by round, and is judged by the ratio within each round. The NumPy
reference is the exception: it runs on the host, alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from tuner.bench.targets import BEST, DEFAULT, Against, Target
from tuner.conditions import Calibration
from tuner.database.records import Benchmark
from tuner.devices.base import Contestant, Device, Occupancy, RaceRound
from tuner.hardware.roofline import Roof, roof_of
from tuner.kernel.baselines import Baseline
from tuner.kernel.load import content_digest
from tuner.model import Configuration, Gpu
from tuner.space.space import SearchSpace
from tuner.stats import Ratio, Verdict, median_interval, paired_ratio, verdict

ROUNDS, SAMPLES = 20, 8
"""With medians of 8 that scatter by 0.2 % the median of 20 ratios is good to 0.16 %, well below most noise floors."""
SAME_MACHINE, SAME_NAME = 0.01, 0.03
"""How much slower a stored winner may be at least before it counts as slower: on the GPU and driver on which it was
found, and on another GPU of its name, whose clocks and memory differ."""
NOISE_FLOORS = 2.0
"""And at least so many noise floors: both the time now and the one then are off by up to one."""
ABSENT = "is not installed"
"""What a baseline says whose library the measuring process does not have."""
OPPOSITE = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}


@dataclass(frozen=True)
class Runner:
    """One contestant by its name in the table."""

    name: str
    configuration: Configuration | None = None
    baseline: Baseline | None = None
    known_ns: float = 0.0
    """What it took earlier; 0 for unknown."""

    @property
    def text(self) -> str:
        """What it runs."""
        return self.baseline.line if self.baseline else str(self.configuration)

    @property
    def on_host(self) -> bool:
        """Whether it does not run on the GPU."""
        return self.baseline is not None and self.baseline.on_host


@dataclass(frozen=True)
class Timed:
    """What a race found out about one contestant."""

    samples_ns: tuple[float, ...]
    medians_ns: tuple[float, ...]
    """Of the rounds, which are what is independent: the samples of a group share their moment."""
    verified: bool
    sm_clock_hz: float

    @classmethod
    def of(cls, found: RaceRound, place: int, *, on_host: bool, ours: bool) -> Timed:
        """Sum up a contestant.

        Args:
            found: the race.
            place: the contestant's number in it.
            on_host: whether it ran on the CPU, alone: all rounds then repeat one group, whose samples are independent.
            ours: whether it is a configuration, whose output the race has verified.
        """
        groups = [round_[place] for round_ in found.samples_ns]
        if on_host:
            groups = groups[:1]
        return cls(
            tuple(sample for group in groups for sample in group),
            tuple(groups[0]) if on_host else tuple(median(group) for group in groups),
            found.verified[place] if found.verified else ours,
            found.sm_clock_hz[place] if found.sm_clock_hz else 0.0,
        )


@dataclass(frozen=True)
class Entry:
    """A contestant with what it took."""

    runner: Runner
    time_ns: float
    """Median of the rounds' medians, and the ends of its 95 % interval."""
    low_ns: float
    high_ns: float
    samples_ns: tuple[float, ...]
    verified: bool
    sm_clock_hz: float = 0.0
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


@dataclass(frozen=True)
class Bench:
    """What was found for one target."""

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
        """With whom the others are compared: the best, or the default where there is none."""
        first = self.entries[0].runner if self.entries else None
        return first.name if first is not None and first.configuration is not None else ""

    @property
    def best(self) -> Entry | None:
        """The stored winner."""
        return next((entry for entry in self.entries if entry.runner.name == BEST), None)


@dataclass(frozen=True)
class Check:
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

    A contestant that fails is left out, and the others race again.

    Raises:
        TunerError: the problem cannot be measured at all.
    """
    kernel, problem = target.kernel, target.problem
    device.incumbent_ns, device.occupancy = None, Occupancy()
    device.prepare(kernel, problem, seed, target.conditions)
    runners, notes = _runners(device, target, against)
    failures: list[Failure] = []
    if target.winner is not None and target.broken:
        failures.append(
            Failure(BEST, str(target.winner.winner.configuration), target.broken, configuration=True)
        )
    found: RaceRound | None = None
    while runners:
        found = device.race(_contestants(runners), rounds, SAMPLES, seed)
        if found.lost is None:
            break
        lost = runners.pop(found.lost)
        if against.asked or lost.baseline is None or ABSENT not in found.error:
            failures.append(Failure(lost.name, lost.text, found.error, lost.baseline is None))
        found = None
    entries, noise_floor = (
        _judged(runners, found, device.noise_floor, seed) if found is not None else ((), 0.0)
    )
    return Bench(
        target,
        device.gpu,
        roof_of(kernel, problem, device.gpu),
        noise_floor,
        device.calibration,
        entries,
        tuple(failures),
        found.tags if found is not None else (),
        (*target.notes, *notes),
    )


def check(device: Device, found: Bench, rounds: int, seed: int) -> Check | None:
    """Return whether a target's stored winner is slower than it was; a suspicion is measured once more before it counts.

    Must follow the target's :func:`bench`, while the device is prepared for it. None where nothing can be compared: no
    winner of this problem, or one that was timed under other conditions.
    """
    target, best = found.target, found.best
    stored = target.winner
    if stored is None or not target.comparable:
        return None
    now, then = found.gpu, stored.run.gpu
    same = bool(now.uuid) and (now.uuid, now.driver) == (then.uuid, then.driver)
    tolerance = max(SAME_MACHINE if same else SAME_NAME, NOISE_FLOORS * found.noise_floor)
    result = Check(
        stored.winner.time_ns, stored.created_at, None, None, tolerance, same_machine=same, slower=True
    )
    if best is None:
        reason = next((failure.error for failure in found.failures if failure.name == BEST), "")
        return replace(result, reason=reason or "it could not be run")
    limit_ns = stored.winner.time_ns * (1.0 + tolerance)
    if best.low_ns > limit_ns:
        again = device.race(_contestants([best.runner]), rounds, SAMPLES, seed + 1)
        if again.lost is not None:
            return replace(result, reason=again.error)
        best = _entry(best.runner, again, 0)
    return replace(result, now_ns=best.time_ns, low_ns=best.low_ns, slower=best.low_ns > limit_ns)


def records_of(found: Bench, bench_id: str, versions: Mapping[str, str]) -> list[Benchmark]:
    """Return what the database keeps of it."""
    target = found.target
    by_best = found.reference == BEST
    rows = []
    for entry in found.entries:
        runner = entry.runner
        ratio = entry.ratio if by_best else None
        rows.append(
            Benchmark(
                bench=bench_id,
                problem=target.problem,
                gpu=found.gpu,
                conditions=target.conditions,
                contestant=runner.name,
                configuration=runner.configuration,
                winner_id=target.winner.id if target.winner and runner.name == BEST else None,
                kernel_digest=content_digest(target.kernel),
                time_ns=entry.time_ns,
                ci_low_ns=entry.low_ns,
                ci_high_ns=entry.high_ns,
                samples_ns=entry.samples_ns,
                ratio=ratio.median if ratio else None,
                ratio_low=ratio.low if ratio else None,
                ratio_high=ratio.high if ratio else None,
                verdict=str(entry.verdict) if ratio and entry.verdict else "",
                noise_floor=found.noise_floor,
                sm_clock_hz=entry.sm_clock_hz,
                tags=(*found.tags, *(() if entry.verified else ("unverified",))),
                versions=versions,
            )
        )
    return rows


def _runners(device: Device, target: Target, against: Against) -> tuple[list[Runner], list[str]]:
    """Line up the best, the default and the baselines, in this order."""
    runners: list[Runner] = []
    notes: list[str] = []
    stored = target.winner
    best = stored.winner if stored is not None and not target.broken else None
    if best is not None:
        runners.append(Runner(BEST, best.configuration, known_ns=best.time_ns if target.comparable else 0.0))
    if against.default or best is None:
        default = SearchSpace.from_kernel(target.kernel, target.problem, device.gpu).default
        if best is not None and default == best.configuration:
            notes.append("the default configuration is the best")
        else:
            known_ns = stored.winner.default_time_ns if stored and target.comparable else None
            runners.append(Runner(DEFAULT, default, known_ns=known_ns or 0.0))
    runners += [Runner(baseline.name, baseline=baseline) for baseline in against.baselines]
    return runners, notes


def _contestants(runners: Sequence[Runner]) -> list[Contestant]:
    return [Contestant(runner.configuration, runner.known_ns, runner.baseline) for runner in runners]


def _judged(
    runners: Sequence[Runner], found: RaceRound, noise_of: Callable[[float], float], seed: int
) -> tuple[tuple[Entry, ...], float]:
    """Compare each contestant with the first configuration; gives them with its noise floor."""
    entries = [_entry(runner, found, i) for i, runner in enumerate(runners)]
    reference = next((entry for entry in entries if entry.runner.configuration is not None), None)
    if reference is None:
        entries.sort(key=lambda entry: entry.time_ns)
        return tuple(entries), noise_of(entries[0].time_ns)
    place, noise_floor = entries.index(reference), noise_of(reference.time_ns)
    medians = [[median(groups[i]) for groups in found.samples_ns] for i in range(len(entries))]
    judged = []
    for i, entry in enumerate(entries):
        if i == place:
            continue
        if entry.runner.on_host:  # timed alone: nothing to pair, so the intervals' ends bound the ratio
            ratio = Ratio(
                entry.time_ns / reference.time_ns,
                entry.low_ns / reference.high_ns,
                entry.high_ns / reference.low_ns,
            )
        else:
            ratio = paired_ratio(medians[i], medians[place], seed)
        against_it = verdict(ratio, noise_floor)
        judged.append(replace(entry, ratio=ratio, verdict=OPPOSITE.get(against_it, against_it)))
    return (reference, *sorted(judged, key=lambda entry: entry.time_ns)), noise_floor


def _entry(runner: Runner, found: RaceRound, place: int) -> Entry:
    timed = Timed.of(found, place, on_host=runner.on_host, ours=runner.configuration is not None)
    low, high = median_interval(timed.medians_ns)
    time_ns = median(timed.medians_ns)
    return Entry(runner, time_ns, low, high, timed.samples_ns, timed.verified, timed.sm_clock_hz)
