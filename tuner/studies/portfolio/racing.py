"""Interleaved comparisons of a portfolio, each recorded as soon as it is there."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from statistics import median

from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.model import Configuration, Problem
from tuner.core.version import __version__
from tuner.database.database import Database
from tuner.database.records import Benchmark
from tuner.devices.base import Contestant, Device, RaceRequest, RaceResult
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.spec import KernelSpec
from tuner.winners.portfolios import TIMED, kind_of, portfolio_rows
from tuner.winners.timings import Timings, timings_of

SCREENED = "screened"
COMPARED = "compared"
"""Tags of a problem's first comparison, of many, and of its second, of the fastest: then it is done."""
CHANGED = "changed"
"""Begins the tag of a problem's comparison of changed configurations, by the number of the turn."""


class Races:
    """Times configurations in turn, and keeps what was timed.

    Args:
        kernel: whose configurations.
        device: where.
        database: has what was timed before, and gets the rest.
        mode: what the caches hold; None leaves it to each problem.
        regime: whether the card rests.
        seed: of inputs and order.
    """

    def __init__(
        self,
        kernel: KernelSpec,
        device: Device,
        database: Database,
        mode: Mode | None,
        regime: Regime,
        seed: int,
    ) -> None:
        self._kernel, self._device, self._database = kernel, device, database
        self._mode, self._regime, self._seed = mode, regime, seed
        self._identity = KernelIdentity(kernel)
        self._rows = [
            row
            for row in portfolio_rows(database, kernel)
            if row.contestant == TIMED and row.gpu.name == device.gpu.name and self._fits(row)
        ]
        self._timings: dict[str, Timings] = {}
        self.failed: set[Configuration] = set()
        """What failed anywhere is trusted nowhere."""
        self.measured = False
        """Whether this process has added anything."""

    def _fits(self, row: Benchmark) -> bool:
        """Return whether a row was timed as this run times; where that is left to the problem, any mode is."""
        return row.conditions.regime is self._regime and self._mode in (None, row.conditions.mode)

    def conditions(self, problem: Problem) -> Conditions:
        """Return how a problem is timed: as it was before, if it was."""
        for row in reversed(self._rows):
            if row.problem == problem:
                return row.conditions
        return self._device.choose_conditions(self._kernel, problem, self._mode, self._regime)[0]

    def timings(self, problem: Problem) -> Timings:
        """Return what was timed of a problem's computation."""
        kind = kind_of(problem)
        if kind not in self._timings:
            self._timings[kind] = timings_of(row for row in self._rows if kind_of(row.problem) == kind)
        return self._timings[kind]

    def all_timings(self) -> Timings:
        """Return what was timed of all computations."""
        if "" not in self._timings:
            self._timings[""] = timings_of(self._rows)
        return self._timings[""]

    def done(self, tag: str) -> set[str]:
        """Return the keys of the problems that have had a comparison."""
        return {row.problem.key for row in self._rows if tag in row.tags}

    def row(self, problem: Problem, configuration: Configuration) -> Benchmark:
        """Return the last row of a configuration that was timed at a problem."""
        return next(
            row
            for row in reversed(self._rows)
            if row.problem == problem and row.configuration == configuration
        )

    def run(
        self, problem: Problem, configurations: Sequence[Configuration], rounds: int, samples: int, tag: str
    ) -> Mapping[Configuration, float]:
        """Time configurations in turn at a problem; return their times in nanoseconds, without those that failed.

        Raises:
            TunerError: the problem cannot be measured at all.
        """
        device, conditions = self._device, self.conditions(problem)
        device.prepare(self._kernel, problem, self._seed, conditions)
        key = problem.key
        times = {row.configuration: row.time_ns for row in self._rows if row.problem.key == key}
        left = [one for one in configurations if one not in self.failed]
        while left:
            contestants = [Contestant(one, times.get(one, 0.0)) for one in left]
            race = device.race(RaceRequest(contestants, rounds, samples, self._seed))
            if race.failed is None:
                return self._record(problem, conditions, left, race, tag)
            self.failed.add(left.pop(race.failed))
        return {}

    def _record(
        self,
        problem: Problem,
        conditions: Conditions,
        configurations: Sequence[Configuration],
        race: RaceResult,
        tag: str,
    ) -> dict[Configuration, float]:
        groups = [[median(round_[i]) for round_ in race.samples_ns] for i in range(len(configurations))]
        fastest = min(groups, key=median)
        bench, device = str(uuid.uuid4()), self._device
        rows = []
        for i, (configuration, medians) in enumerate(zip(configurations, groups, strict=True)):
            # By the rounds' ratios to the fastest, which drift does not move.
            ratio = median(a / b for a, b in zip(medians, fastest, strict=True))
            rows.append(
                Benchmark(
                    bench=bench,
                    problem=problem,
                    gpu=device.gpu,
                    conditions=conditions,
                    contestant=TIMED,
                    configuration=configuration,
                    kernel_digest=self._identity.text,
                    computation=self._identity.computation,
                    time_ns=ratio * median(fastest),
                    ci_low_ns=min(medians),
                    ci_high_ns=max(medians),
                    samples_ns=tuple(sample for round_ in race.samples_ns for sample in round_[i]),
                    noise_floor=device.noise_floor(median(medians)),
                    sm_clock_hz=race.sm_clock_hz[i] if race.sm_clock_hz else 0.0,
                    tags=(*race.tags, tag),
                    versions={"kernel-tune": __version__, **device.versions},
                )
            )
        self._database.record_benchmark(rows)
        self._rows += rows
        self.measured = True
        self._timings.pop(kind_of(problem), None)
        self._timings.pop("", None)
        return {configurations[i]: row.time_ns for i, row in enumerate(rows)}
