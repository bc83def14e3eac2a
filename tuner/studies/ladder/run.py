"""A ladder run: each step's best configuration at each size of a sweep, and all of one size timed in turn."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tuner.core.conditions import Conditions
from tuner.core.errors import Interrupted, TunerError
from tuner.core.model import Configuration, Problem
from tuner.core.observer import Observer
from tuner.core.stats import MIN_SAMPLES
from tuner.core.version import __version__
from tuner.database.database import Database
from tuner.devices.base import Contestant, Device, RaceRequest, RaceResult
from tuner.kernel.baselines import settle_baseline
from tuner.kernel.roofline import Roof, roof_of
from tuner.kernel.spec import StepSpec
from tuner.studies.bench.bench import SAMPLES, Failure, NamedContestant, RaceSamples
from tuner.studies.ladder.ladder import (
    STOPPED,
    Absence,
    InterleavedComparison,
    Level,
    Sweep,
    Timing,
    Tuned,
    problem_of,
    records_of,
)
from tuner.studies.ladder.steps import StepSearch
from tuner.tuning.ceiling import roof_under
from tuner.tuning.state import State

COMPARISON_NS = 4e9
"""What the kernels of a comparison may take together, in nanoseconds: a few seconds at each size. Beyond it there are
fewer rounds, down to the least that an interval needs."""
HOST_NS = 10e9
"""NumPy is left out where it would take longer, by its time at the size before."""


class SweepProgress(Protocol):
    """What is told of a ladder run's steps."""

    def expect(self, steps: int) -> None:
        """Learn how many searches and comparisons there will be."""

    def step(self, sizes: Mapping[str, int], name: str) -> Observer[State]:
        """Begin a step's search; return its observer."""

    def comparison(self, sizes: Mapping[str, int], count: int) -> None:
        """Begin an interleaved comparison of so many contestants."""

    def done(self, steps: int = 1) -> None:
        """End a search or comparison, however it ended."""

    def rest(self) -> None:
        """End a size: its results are about to be printed."""


def levels_of(
    sweep: Sweep, device: Device, database: Database, progress: SweepProgress, stop: Callable[[], bool]
) -> Iterator[Level]:
    """Yield the results at each size, in the sweep's order.

    A step, or a size, that fails is part of the results, and the others are measured.

    Args:
        sweep: which steps, which sizes.
        device: where to measure; ready, and closed by the caller.
        database: where every trial and every comparison goes.
        progress: told of everything.
        stop: called often; once it returns true, nothing new is begun.

    Raises:
        Interrupted: ``stop`` returned true. What was timed of the size under way is yielded before.
    """
    return _LadderRun(sweep, device, database, progress, stop).levels()


@dataclass
class _Previous:
    """Results of the sizes before."""

    times: dict[str, tuple[float, Roof]] = field(default_factory=dict)
    """The last time of each step, and of NumPy, with the work that it was for."""
    best: dict[str, Configuration] = field(default_factory=dict)
    """The last best configuration of each step."""
    missing: set[str] = field(default_factory=set)
    """Baselines whose library is not installed."""

    def expected_ns(self, name: str, roof: Roof) -> float:
        """Return a time extrapolated from the one before, in proportion to the work; 0 if there is none."""
        if name not in self.times:
            return 0.0
        time_ns, then = self.times[name]
        pairs = ((roof.flops, then.flops), (roof.bytes, then.bytes))
        return time_ns * max((now / before for now, before in pairs if before), default=1.0)


@dataclass(frozen=True)
class _Entry(NamedContestant):
    """A contestant of a comparison before it is timed: a tuned step or a baseline."""

    tuned: Tuned | None = None

    def timing(self, race: RaceResult, index: int) -> Timing:
        """Return its times in a comparison, in which it has this index."""
        samples = RaceSamples.of(race, index, on_host=self.on_host, ours=self.tuned is not None)
        own = (self.name, self.text, self.tuned, self.on_host)
        return Timing(samples.samples_ns, samples.medians_ns, samples.verified, samples.sm_clock_hz, *own)


@dataclass
class _LadderRun:
    _sweep: Sweep
    _device: Device
    _database: Database
    _progress: SweepProgress
    _stop: Callable[[], bool]
    _bench: str = field(default_factory=lambda: str(uuid.uuid4()))
    _previous: _Previous = field(default_factory=_Previous)

    def levels(self) -> Iterator[Level]:
        """Yield the results of one size after the other."""
        sweep = self._sweep
        levels = [self._groups(sizes) for sizes in sweep.sizes]
        self._progress.expect(sum(len(steps) + 1 for groups, _ in levels for _, steps in groups))
        for sizes, (groups, absent) in zip(sweep.sizes, levels, strict=True):
            comparisons: list[InterleavedComparison] = []
            try:
                for problem, steps in groups:
                    if (comparison := self._compare(sizes, problem, steps, absent)) is not None:
                        comparisons.append(comparison)
            except Interrupted:
                self._progress.rest()
                if comparisons:
                    timed = {timing.name for comparison in comparisons for timing in comparison.steps}
                    others = [step.name for step in sweep.steps if step.name not in {*timed, *absent}]
                    yield Level(sizes, tuple(comparisons), {**absent, **dict.fromkeys(others, STOPPED)})
                raise
            self._progress.rest()
            yield Level(sizes, tuple(comparisons), absent)

    def _groups(
        self, sizes: Mapping[str, int]
    ) -> tuple[list[tuple[Problem, list[StepSpec]]], dict[str, Absence]]:
        """Return the problems of a size, each with the steps that solve it, and the steps that have none."""
        groups: dict[str, tuple[Problem, list[StepSpec]]] = {}
        absent: dict[str, Absence] = {}
        for step in self._sweep.steps:
            try:
                problem = problem_of(self._sweep.kernel, self._sweep.base, sizes, step)
            except TunerError as error:
                absent[step.name] = Absence(str(error))
                continue
            groups.setdefault(problem.key, (problem, []))[1].append(step)
        return list(groups.values()), absent

    def _compare(
        self,
        sizes: Mapping[str, int],
        problem: Problem,
        steps: Sequence[StepSpec],
        absent: dict[str, Absence],
    ) -> InterleavedComparison | None:
        """Tune each step of a problem, and time the best of each in turn; None if no step has a configuration."""
        sweep, device = self._sweep, self._device
        try:
            conditions, why = device.choose_conditions(sweep.kernel, problem, sweep.mode, sweep.regime)
            roof = roof_of(sweep.kernel, problem, device.gpu)
        except TunerError as error:
            absent.update({step.name: Absence(str(error)) for step in steps})
            self._progress.done(len(steps) + 1)
            return None
        entries = self._tuned(sizes, problem, steps, conditions, roof, absent)
        failures: list[Failure] = []
        try:
            if not entries:
                return None
            entries += self._baselines(problem, roof, failures)
            device.prepare(sweep.kernel, problem, sweep.seed, conditions)
            self._progress.comparison(sizes, len(entries))
            race = self._race(entries, failures, absent)
        except Interrupted:
            raise
        except TunerError as error:
            absent.update({entry.name: Absence(str(error)) for entry in entries if entry.tuned is not None})
            return None
        finally:
            self._progress.done()
        if race is None:
            return None
        timings = [entry.timing(race, index) for index, entry in enumerate(entries)]
        tuned = [timing for timing in timings if timing.tuned is not None]
        others = sorted((one for one in timings if one.tuned is None), key=lambda one: one.time_ns)
        self._previous.times.update({one.name: (one.time_ns, roof) for one in others if one.on_host})
        comparison = InterleavedComparison(
            problem,
            conditions,
            why,
            roof_under(roof, conditions.mode),
            device.calibration,
            (*tuned, *others),
            tuple(failures),
            race.tags,
        )
        self._keep(comparison)
        return comparison

    def _tuned(
        self,
        sizes: Mapping[str, int],
        problem: Problem,
        steps: Sequence[StepSpec],
        conditions: Conditions,
        roof: Roof,
        absent: dict[str, Absence],
    ) -> list[_Entry]:
        """Return the steps that have a best configuration; the others go to ``absent``."""
        entries: list[_Entry] = []
        below: Configuration | None = None
        search = StepSearch(self._sweep, self._device, self._database, self._stop)
        for step in steps:
            self._check_stop()
            observer = self._progress.step(sizes, step.name)
            nearby = (self._previous.best.get(step.name), below)
            try:
                best = search.best(
                    step,
                    problem,
                    conditions,
                    observer,
                    [configuration for configuration in nearby if configuration is not None],
                    self._previous.expected_ns(step.name, roof),
                )
            finally:
                self._progress.done()
            if isinstance(best, Absence):
                absent[step.name] = best
                continue
            entries.append(_Entry(step.name, best.configuration, None, best.time_ns, best))
            self._previous.times[step.name] = (best.time_ns, roof)
            below = self._previous.best[step.name] = best.configuration
        return entries

    def _baselines(self, problem: Problem, roof: Roof, failures: list[Failure]) -> list[_Entry]:
        """Return the baselines that can be timed; a recording has no times of others."""
        entries: list[_Entry] = []
        for baseline in () if self._device.recorded else self._sweep.against.baselines:
            name = baseline.name
            if name in self._previous.missing:
                continue
            reason = ""
            try:
                entry = _Entry(name, baseline=settle_baseline(baseline, self._sweep.kernel, problem))
                if entry.on_host and (long_ns := self._previous.expected_ns(name, roof)) > HOST_NS:
                    reason = f"it would take some {long_ns * 1e-9:.0f} s"
            except TunerError as error:
                reason = error.problem
            if reason:
                failures.append(Failure(name, baseline.text, reason, configuration=False))
            else:
                entries.append(entry)
        return entries

    def _race(
        self, entries: list[_Entry], failures: list[Failure], absent: dict[str, Absence]
    ) -> RaceResult | None:
        """Time all of them in turn; one that fails leaves ``entries``, and the others start again."""
        sweep = self._sweep
        while any(entry.tuned is not None for entry in entries):
            self._check_stop()
            contestants = [entry.contestant for entry in entries]
            race = self._device.race(RaceRequest(contestants, self._rounds(contestants), SAMPLES, sweep.seed))
            if race.failed is None:
                return race
            failed = entries.pop(race.failed)
            if failed.tuned is not None:
                absent[failed.name] = Absence(f"{failed.text}: {race.error}")
                continue
            if race.not_installed:
                self._previous.missing.add(failed.name)
            if sweep.against.named or not race.not_installed:
                failures.append(Failure(failed.name, failed.text, race.error, configuration=False))
        return None

    def _rounds(self, contestants: Sequence[Contestant]) -> int:
        once_ns = sum(contestant.time_ns for contestant in contestants)
        most = int(COMPARISON_NS / once_ns) if once_ns else self._sweep.rounds
        return max(MIN_SAMPLES, min(self._sweep.rounds, most))

    def _keep(self, comparison: InterleavedComparison) -> None:
        """Write a comparison into the database, unless it is one of recorded samples."""
        if self._device.recorded:
            return
        versions = {"kernel-tune": __version__, **self._device.versions}
        rows = records_of(comparison, self._sweep.kernel, self._device.gpu, self._bench, versions)
        self._database.record_benchmark(rows)

    def _check_stop(self) -> None:
        if self._stop():
            raise Interrupted("stopped")
