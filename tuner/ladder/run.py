"""Up a kernel's ladder: the best configuration of each rung at each size of a sweep, all of a size timed in turn."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tuner import __version__
from tuner.bench.bench import ABSENT, SAMPLES, Failure, Timed
from tuner.conditions import Conditions
from tuner.database.database import Database
from tuner.devices.base import Contestant, Device, RaceRound
from tuner.errors import Interrupted, TunerError
from tuner.hardware.roofline import Roof, roof_of
from tuner.kernel.baselines import Baseline, settle_baseline
from tuner.kernel.spec import StepSpec
from tuner.ladder.ladder import STOPPED, Absence, Climb, Contest, Level, Place, Tuned, problem_of, records_of
from tuner.ladder.steps import KeptDevice, best_of_rung
from tuner.model import Configuration, Problem
from tuner.stats import MIN_SAMPLES
from tuner.tuning.state import Observer, roof_under

CONTEST_NS = 4e9
"""What the kernels of a contest may take together; beyond it the rounds become fewer, down to the least that say
anything."""
HOST_NS = 10e9
"""NumPy is left out where it would take longer, going by what it took at the size before."""


class Progress(Protocol):
    """Who watches."""

    def expect(self, steps: int) -> None:
        """So many searches and contests there will be."""

    def rung(self, sizes: Mapping[str, int], name: str) -> Observer:
        """A rung's search begins; gives who watches it."""

    def contest(self, sizes: Mapping[str, int], count: int) -> None:
        """So many contestants are timed in turn."""

    def done(self, steps: int = 1) -> None:
        """The step is over, however it ended."""

    def rest(self) -> None:
        """A size is over: what was found is about to be printed."""


def climb(
    asked: Climb, device: Device, database: Database, progress: Progress, stop: Callable[[], bool]
) -> Iterator[Level]:
    """Return what was found at each size, in the order asked for.

    A rung, or a size, that fails is part of the answer, and the others go on.

    Args:
        asked: which rungs, which sizes.
        device: where to measure; ready, and closed by the caller.
        database: where every trial and every contest goes.
        progress: told of everything.
        stop: asked often; once it is true nothing new is begun.

    Raises:
        Interrupted: ``stop`` said so. What was timed of the size under way is given before.
    """
    return _Climber(asked, device, database, progress, stop).levels()


@dataclass
class _Seen:
    """What was learnt on the way."""

    times: dict[str, tuple[float, Roof]] = field(default_factory=dict)
    """The last time of each rung, and of NumPy, with the work that it was for."""
    best: dict[str, Configuration] = field(default_factory=dict)
    """The last best configuration of each rung."""
    missing: set[str] = field(default_factory=set)
    """Baselines whose library is not installed."""

    def expected_ns(self, name: str, roof: Roof) -> float:
        """Guess a time from the one before it, in proportion to the work; 0 for nothing known."""
        if name not in self.times:
            return 0.0
        time_ns, then = self.times[name]
        pairs = ((roof.flops, then.flops), (roof.bytes, then.bytes))
        return time_ns * max((now / before for now, before in pairs if before), default=1.0)


@dataclass(frozen=True)
class _Runner:
    """Who is lined up for a contest."""

    name: str
    tuned: Tuned | None = None
    baseline: Baseline | None = None

    @property
    def text(self) -> str:
        if self.tuned is not None:
            return str(self.tuned.configuration)
        return self.baseline.line if self.baseline else ""

    @property
    def on_host(self) -> bool:
        return self.baseline is not None and self.baseline.on_host

    @property
    def contestant(self) -> Contestant:
        if self.tuned is None:
            return Contestant(None, 0.0, self.baseline)
        return Contestant(self.tuned.configuration, self.tuned.time_ns)


class _Climber:
    def __init__(
        self,
        asked: Climb,
        device: Device,
        database: Database,
        progress: Progress,
        stop: Callable[[], bool],
    ) -> None:
        self._asked, self._database, self._progress, self._stop = asked, database, progress, stop
        self._kept, self._device = KeptDevice.of(device)
        self._bench = str(uuid.uuid4())
        self._seen = _Seen()

    def levels(self) -> Iterator[Level]:
        """Go up."""
        asked = self._asked
        steps = [self._groups(sizes) for sizes in asked.sizes]
        self._progress.expect(sum(len(rungs) + 1 for groups, _ in steps for _, rungs in groups))
        for sizes, (groups, absent) in zip(asked.sizes, steps, strict=True):
            contests: list[Contest] = []
            try:
                for problem, rungs in groups:
                    if (contest := self._contest(sizes, problem, rungs, absent)) is not None:
                        contests.append(contest)
            except Interrupted:
                self._progress.rest()
                if contests:
                    timed = {place.name for contest in contests for place in contest.rungs}
                    others = [rung.name for rung in asked.rungs if rung.name not in {*timed, *absent}]
                    yield Level(sizes, tuple(contests), {**absent, **dict.fromkeys(others, STOPPED)})
                raise
            self._progress.rest()
            yield Level(sizes, tuple(contests), absent)

    def _groups(
        self, sizes: Mapping[str, int]
    ) -> tuple[list[tuple[Problem, list[StepSpec]]], dict[str, Absence]]:
        """Return the problems of a size, each with the rungs that solve it, and the rungs that have none."""
        groups: dict[str, tuple[Problem, list[StepSpec]]] = {}
        absent: dict[str, Absence] = {}
        for rung in self._asked.rungs:
            try:
                problem = problem_of(self._asked.kernel, self._asked.base, sizes, rung)
            except TunerError as error:
                absent[rung.name] = Absence(str(error))
                continue
            groups.setdefault(problem.key, (problem, []))[1].append(rung)
        return list(groups.values()), absent

    def _contest(
        self,
        sizes: Mapping[str, int],
        problem: Problem,
        rungs: Sequence[StepSpec],
        absent: dict[str, Absence],
    ) -> Contest | None:
        """Find the best of each rung of a problem, and time them in turn; None where nobody is left."""
        asked, device = self._asked, self._device
        try:
            conditions, why = device.choose_conditions(asked.kernel, problem, asked.mode, asked.regime)
            roof = roof_of(asked.kernel, problem, device.gpu)
        except TunerError as error:
            absent.update({rung.name: Absence(str(error)) for rung in rungs})
            self._progress.done(len(rungs) + 1)
            return None
        runners = self._best(sizes, problem, rungs, conditions, roof, absent)
        try:
            if not runners:
                return None
            failures: list[Failure] = []
            runners += self._baselines(problem, roof, failures)
            device.prepare(asked.kernel, problem, asked.seed, conditions, None)
            self._progress.contest(sizes, len(runners))
            found = self._race(runners, failures, absent)
        except Interrupted:
            raise
        except TunerError as error:
            absent.update({r.name: Absence(str(error)) for r in runners if r.tuned is not None})
            return None
        finally:
            self._progress.done()
        if found is None:
            return None
        places = [_place(runner, found, i) for i, runner in enumerate(runners)]
        own = [place for place in places if place.tuned is not None]
        others = sorted((place for place in places if place.tuned is None), key=lambda place: place.time_ns)
        self._seen.times.update({place.name: (place.time_ns, roof) for place in others if place.on_host})
        contest = Contest(
            problem,
            conditions,
            why,
            roof_under(roof, conditions.mode),
            device.calibration,
            (*own, *others),
            tuple(failures),
            found.tags,
            asked.seed,
        )
        self._keep(contest)
        return contest

    def _best(
        self,
        sizes: Mapping[str, int],
        problem: Problem,
        rungs: Sequence[StepSpec],
        conditions: Conditions,
        roof: Roof,
        absent: dict[str, Absence],
    ) -> list[_Runner]:
        """Find the best configuration of each rung."""
        runners: list[_Runner] = []
        below: Configuration | None = None
        for rung in rungs:
            self._go_on()
            observer = self._progress.rung(sizes, rung.name)
            self._kept.expected_ns = self._seen.expected_ns(rung.name, roof)
            try:
                found = best_of_rung(
                    self._asked,
                    rung,
                    problem,
                    conditions,
                    self._device,
                    self._database,
                    observer,
                    self._stop,
                    hints=[hint for hint in (self._seen.best.get(rung.name), below) if hint is not None],
                )
            finally:
                self._progress.done()
            if isinstance(found, Absence):
                absent[rung.name] = found
                continue
            runners.append(_Runner(rung.name, found))
            self._seen.times[rung.name] = (found.time_ns, roof)
            below = self._seen.best[rung.name] = found.configuration
        return runners

    def _baselines(self, problem: Problem, roof: Roof, failures: list[Failure]) -> list[_Runner]:
        """Line up what the rungs are compared with; a recording has no times of others."""
        runners: list[_Runner] = []
        for baseline in () if self._device.recorded else self._asked.against.baselines:
            name = baseline.name
            if name in self._seen.missing:
                continue
            reason = ""
            try:
                runner = _Runner(name, baseline=settle_baseline(baseline, self._asked.kernel, problem))
                if runner.on_host and (long_ns := self._seen.expected_ns(name, roof)) > HOST_NS:
                    reason = f"it would take some {long_ns * 1e-9:.0f} s"
            except TunerError as error:
                reason = error.problem
            if reason:
                failures.append(Failure(name, baseline.text, reason, configuration=False))
            else:
                runners.append(runner)
        return runners

    def _race(
        self, runners: list[_Runner], failures: list[Failure], absent: dict[str, Absence]
    ) -> RaceRound | None:
        """Time all of them in turn; who fails leaves ``runners``, and the others race again."""
        asked = self._asked
        while any(runner.tuned is not None for runner in runners):
            self._go_on()
            contestants = [runner.contestant for runner in runners]
            found = self._device.race(contestants, self._rounds(contestants), SAMPLES, asked.seed)
            if found.lost is None:
                return found
            lost = runners.pop(found.lost)
            if lost.tuned is not None:
                absent[lost.name] = Absence(f"{lost.text}: {found.error}")
                continue
            missing = ABSENT in found.error
            if missing:
                self._seen.missing.add(lost.name)
            if asked.against.asked or not missing:
                failures.append(Failure(lost.name, lost.text, found.error, configuration=False))
        return None

    def _rounds(self, contestants: Sequence[Contestant]) -> int:
        once_ns = sum(contestant.time_ns for contestant in contestants)
        most = int(CONTEST_NS / once_ns) if once_ns else self._asked.rounds
        return max(MIN_SAMPLES, min(self._asked.rounds, most))

    def _keep(self, contest: Contest) -> None:
        """Write a contest down, unless it was one of recorded samples."""
        if self._device.recorded:
            return
        versions = {"kernel-tune": __version__, **self._device.versions}
        rows = records_of(contest, self._asked.kernel, self._device.gpu, self._bench, versions)
        self._database.record_benchmark(rows)

    def _go_on(self) -> None:
        if self._stop():
            raise Interrupted("stopped")


def _place(runner: _Runner, found: RaceRound, place: int) -> Place:
    timed = Timed.of(found, place, on_host=runner.on_host, ours=runner.tuned is not None)
    return Place(
        runner.name,
        runner.text,
        runner.tuned,
        timed.samples_ns,
        timed.medians_ns,
        runner.on_host,
        timed.verified,
        timed.sm_clock_hz,
    )
