"""Interleaved comparisons of a portfolio, each recorded as soon as it is there."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.model import Configuration, Problem
from tuner.database.database import Database
from tuner.database.records import Benchmark
from tuner.devices.base import Contestant, Device, RaceRequest, Timed
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.spec import KernelSpec
from tuner.studies.interleaved import rows_of
from tuner.winners.portfolios import TIMED, Timings, portfolio_rows, timings_of

SCREENED = "screened"
COMPARED = "compared"
"""Tags of a problem's first comparison, of many, and of its second, of the fastest: then it is done."""
CHANGED = "changed"
"""Begins the tag of a problem's comparison of changed configurations, by the number of the turn."""


@dataclass(frozen=True)
class PortfolioRequest:
    """What a portfolio is made of, and how.

    Attributes:
        kernel: the kernel.
        problems: at which it is measured.
        bound: the slowdown that is allowed.
        cubins: that its configurations may have, with the kernel's defaults.
        searched: problems that are searched first.
        trials: of each of these searches.
        time_s: after which nothing new is measured; None for no limit.
        mode: what the caches hold; None leaves it to each problem.
        regime: whether the card rests.
        seed: of searches, inputs and order.
        spent_s: of the time, by calls that were interrupted.
    """

    kernel: KernelSpec
    problems: tuple[Problem, ...]
    bound: float = 1.02
    cubins: int = 32
    searched: int = 8
    trials: int = 48
    time_s: float | None = None
    mode: Mode | None = None
    regime: Regime = Regime.RESTED
    seed: int = 0
    spent_s: float = 0.0


class Races:
    """Times configurations in turn, and keeps what was timed.

    Args:
        request: whose configurations, under which conditions.
        device: where.
        database: has what was timed before, and gets the rest.
    """

    def __init__(self, request: PortfolioRequest, device: Device, database: Database) -> None:
        self._request, self._device, self._database = request, device, database
        self._identity = KernelIdentity(request.kernel)
        self._rows = [
            row
            for row in portfolio_rows(database, request.kernel)
            if row.contestant == TIMED and row.gpu.name == device.gpu.name and self._fits(row)
        ]
        self._timings: dict[str, Timings] = {}
        self.failed: set[Configuration] = set()
        """What failed anywhere is trusted nowhere."""
        self.measured = False
        """Whether this process has added anything."""

    def _fits(self, row: Benchmark) -> bool:
        """Return whether a row was timed as this run times; where that is left to the problem, any mode is."""
        request = self._request
        return row.conditions.regime is request.regime and request.mode in (None, row.conditions.mode)

    def conditions(self, problem: Problem) -> Conditions:
        """Return how a problem is timed: as it was before, if it was."""
        for row in reversed(self._rows):
            if row.problem == problem:
                return row.conditions
        request = self._request
        return self._device.choose_conditions(request.kernel, problem, request.mode, request.regime)[0]

    def timings(self, problem: Problem) -> Timings:
        """Return what was timed of a problem's computation."""
        kind = problem.kind
        if kind not in self._timings:
            self._timings[kind] = timings_of(row for row in self._rows if row.problem.kind == kind)
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
        wanted = (problem, configuration)
        return next(row for row in reversed(self._rows) if (row.problem, row.configuration) == wanted)

    def run(
        self, problem: Problem, configurations: Sequence[Configuration], rounds: int, samples: int, tag: str
    ) -> Mapping[Configuration, float]:
        """Time configurations in turn at a problem; return their times in nanoseconds, without those that failed.

        Raises:
            TunerError: the problem cannot be measured at all.
        """
        device, request = self._device, self._request
        device.prepare(request.kernel, problem, request.seed, self.conditions(problem))
        key = problem.key
        times = {row.configuration: row.time_ns for row in self._rows if row.problem.key == key}
        left = [one for one in configurations if one not in self.failed]
        contestants = [Contestant(one, times.get(one, 0.0)) for one in left]
        race = device.race(
            RaceRequest(contestants, rounds, samples, request.seed),
            lambda index, _: self.failed.add(left[index]),
        )
        timed = list(race.timed.values())
        return self._record(problem, timed, (*race.tags, tag)) if timed else {}

    def _record(
        self, problem: Problem, timed: Sequence[Timed], tags: Sequence[str]
    ) -> dict[Configuration, float]:
        fastest = min(timed, key=lambda one: one.time_ns)
        row = rows_of(self._identity, self._device, str(uuid.uuid4()))
        rows = []
        for one in timed:
            # By the rounds' ratios to the fastest, which drift does not move.
            ratio = median(a / b for a, b in zip(one.medians_ns, fastest.medians_ns, strict=True))
            low_ns, high_ns = min(one.medians_ns), max(one.medians_ns)
            times = {"time_ns": ratio * fastest.time_ns, "ci_low_ns": low_ns, "ci_high_ns": high_ns}
            floor = self._device.noise_floor(one.time_ns)
            rows.append(row(TIMED, one, tags=tags, noise_floor=floor, **times))
        self._database.record_benchmark(rows)
        self._rows += rows
        self.measured = True
        self._timings.pop(problem.kind, None)
        self._timings.pop("", None)
        return {one.configuration: one.time_ns for one in rows if one.configuration is not None}
