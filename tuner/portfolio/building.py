"""A portfolio from its first search to its members. Every comparison is recorded, so that it can be resumed anywhere.

1. A short search at a few problems that lie far apart gives configurations that nobody has named.
2. At each problem candidates (``candidates.py``) are timed in turn, twice; then those that may be the fastest, longer.
3. Few are chosen (``choosing.py``), by what was timed and what is predicted; they are timed where they were not yet,
   and the choice is made again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from tuner.conditions import Mode, Regime
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.base import Device
from tuner.errors import DatabaseError, DeviceError, Interrupted, TunerError
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.render import render
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Problem, digest
from tuner.portfolio.candidates import Candidates
from tuner.portfolio.choosing import choose
from tuner.portfolio.prediction import between, spread
from tuner.portfolio.racing import COMPARED, SCREENED, Races
from tuner.tuning import session
from tuner.tuning.request import Request
from tuner.tuning.state import Observer
from tuner.winners.contents import default_configurations
from tuner.winners.portfolios import BOUND, MEMBER, Portfolio, kind_of, make_portfolio, portfolio_rows
from tuner.winners.timings import Floats, Timings

SCREEN_ROUNDS, SCREEN_SAMPLES = 2, 4
COMPARE_ROUNDS, COMPARE_SAMPLES = 6, 8
"""A screening tells what is 10 % slower, for a third of the time; six medians of eight are good to some 0.3 %."""
CONTENDER = 1.10
"""What is slower in a screening is not compared."""
MOST_COMPARED = 8
UNCERTAIN = 0.05
"""Octaves that a prediction counts more than a time: what is chosen by it is timed."""
PASSES = 3
SEARCHED, TIMED_BY = 0.3, 0.7
"""Shares of a time limit at which searches, and comparisons of candidates, end."""


@dataclass(frozen=True)
class PortfolioRequest:
    """What a portfolio is made of, and how.

    Attributes:
        kernel: the kernel.
        problems: at which it is measured.
        bound: the slowdown that is allowed.
        most_cubins: that its configurations may have, with the kernel's defaults.
        searched: problems that are searched first.
        trials: of each of these searches.
        time_s: after which nothing new is measured; None for no limit.
        mode: what the caches hold; None leaves it to each problem.
        regime: whether the card rests.
        seed: of searches, inputs and order.
    """

    kernel: KernelSpec
    problems: tuple[Problem, ...]
    bound: float = 1.02
    most_cubins: int = 32
    searched: int = 8
    trials: int = 48
    time_s: float | None = None
    mode: Mode | None = None
    regime: Regime = Regime.RESTED
    seed: int = 0


class Progress(Protocol):
    """Told what happens."""

    def phase(self, what: str, steps: int) -> None:
        """Begin something of so many steps."""

    def step(self, what: str) -> None:
        """Begin one of them."""

    def note(self, what: str) -> None:
        """Hear of what did not work."""

    def observer(self) -> Observer:
        """Return what observes a search."""


@dataclass(frozen=True)
class Built:
    """The outcome.

    Attributes:
        portfolios: one for each computation.
        cubins: of all members and defaults.
        untimed: problems that were not measured, with the reason.
    """

    portfolios: tuple[Portfolio, ...]
    cubins: int
    untimed: tuple[tuple[Problem, str], ...]


def build(
    request: PortfolioRequest,
    device: Device,
    database: Database,
    progress: Progress,
    stop: Callable[[], bool] = lambda: False,
) -> Built:
    """Measure, choose and record a portfolio; what an earlier call has recorded is not measured again.

    Raises:
        Interrupted: ``stop`` said so; everything measured is recorded.
        TunerError: no problem could be measured.
    """
    return _Building(request, device, database, progress, stop).run()


class _Building:
    def __init__(
        self,
        request: PortfolioRequest,
        device: Device,
        database: Database,
        progress: Progress,
        stop: Callable[[], bool],
    ) -> None:
        self._request, self._device, self._database = request, device, database
        self._progress, self._stop = progress, stop
        self._began = time.monotonic()
        self._untimed: dict[str, tuple[Problem, str]] = {}
        self._sources: dict[tuple[str, Configuration], frozenset[str]] = {}

    def run(self) -> Built:
        request = self._request
        problems = [request.problems[number] for number in spread(request.problems)]
        self._search(problems[: request.searched])
        self._races = Races(
            request.kernel, self._device, self._database, request.mode, request.regime, request.seed
        )
        self._candidates = Candidates(request.kernel, self._device.gpu, self._winners(), request.seed)
        self._compare(problems)
        kinds: dict[str, list[Problem]] = {}
        for problem in problems:
            if self._races.timings(problem).of(problem):
                kinds.setdefault(kind_of(problem), []).append(problem)
        if not kinds:
            reasons = [reason for _, reason in self._untimed.values()]
            raise DeviceError("no problem could be measured", (reasons or ["allow more time"])[0])
        return self._built([ones[0] for ones in kinds.values()])

    # -- measuring

    def _search(self, problems: Sequence[Problem]) -> None:
        request, database = self._request, self._database
        computations = KernelIdentity(request.kernel).computations
        left = [one for one in problems if not database.has_finished(one, self._device.name, computations)]
        self._progress.phase("searching", len(left))
        for problem in left:
            if self._over(SEARCHED):
                return
            self._progress.step(str(problem))
            search = Request(
                request.kernel,
                problem,
                request.trials,
                seed=request.seed,
                mode=request.mode,
                regime=request.regime,
            )
            self._attempt(
                problem,
                lambda search=search: session.tune(  # type: ignore[misc]
                    search, self._device, database, self._progress.observer(), self._stop
                ),
            )

    def _winners(self) -> dict[str, list[Configuration]]:
        """Return the configurations that won, on this model of GPU first."""
        winners: dict[str, dict[Configuration, None]] = {}
        rows = self._database.winners(Filters(kernel=self._request.kernel.name)).rows
        for stored in sorted(rows, key=lambda one: one.run.gpu.name != self._device.gpu.name):
            if not stored.run.foreign:
                winners.setdefault(kind_of(stored.run.problem), {})[stored.winner.configuration] = None
        return {kind: list(ones) for kind, ones in winners.items()}

    def _compare(self, problems: Sequence[Problem]) -> None:
        """Time candidates at each problem; those of the next are compiled meanwhile."""
        done = self._races.compared()
        left = [problem for problem in problems if problem.key not in done]
        self._progress.phase("comparing", len(left))
        chosen = self._chosen(left[0]) if left else []
        for number, problem in enumerate(left):
            if self._over(TIMED_BY):
                self._untimed |= {one.key: (one, "no time was left") for one in left[number:]}
                return
            self._progress.step(f"{problem}: {len(chosen)} configurations")
            now, chosen = chosen, self._chosen(left[number + 1]) if number + 1 < len(left) else []
            self._attempt(problem, lambda problem=problem, now=now: self._compare_at(problem, now))  # type: ignore[misc]

    def _chosen(self, problem: Problem) -> list[Configuration]:
        configurations = self._candidates.at(problem, self._races.timings(problem))
        self._device.compile_ahead(self._request.kernel, problem, configurations)
        return configurations

    def _compare_at(self, problem: Problem, configurations: Sequence[Configuration]) -> None:
        times = self._races.run(problem, configurations, SCREEN_ROUNDS, SCREEN_SAMPLES, SCREENED)
        if not times:
            raise DeviceError("every configuration failed")
        limit = CONTENDER * min(times.values())
        fastest = sorted((one for one in times if times[one] <= limit), key=lambda one: times[one])
        if not self._stop():
            self._races.run(problem, fastest[:MOST_COMPARED], COMPARE_ROUNDS, COMPARE_SAMPLES, COMPARED)

    def _attempt(self, problem: Problem, work: Callable[[], object]) -> None:
        """Do something for a problem; if that fails, say so and go on."""
        if self._stop():
            raise Interrupted("stopped; everything measured is kept", "the same command goes on")
        try:
            work()
        except (Interrupted, DatabaseError):
            raise
        except TunerError as error:
            self._untimed[problem.key] = (problem, error.problem)
            self._progress.note(f"{problem}: {error.problem}")

    def _over(self, share: float) -> bool:
        limit = self._request.time_s
        return limit is not None and time.monotonic() - self._began > share * limit

    # -- choosing

    def _built(self, kinds: Sequence[Problem]) -> Built:
        """Choose members, and time them wherever they can run.

        Args:
            kinds: a problem of each computation.
        """
        base = self._base(kinds)
        kept: list[list[Configuration]] = []
        for number in range(PASSES):
            kept = self._choice(kinds, base)
            if not self._fill(kinds, kept) or number == PASSES - 1 or self._over(1.0):
                break
        portfolios = []
        for kind, ones in zip(kinds, kept, strict=True):
            timings = self._races.timings(kind)
            members = [(one, self._best_at(timings, one)) for one in ones]
            portfolios.append(
                make_portfolio(self._request.kernel, self._device.gpu, self._request.bound, members, timings)
            )
        self._record(portfolios)
        names = {
            name
            for kind, ones in zip(kinds, kept, strict=True)
            for one in ones
            for name in self._cubins(kind, one)
        }
        return Built(tuple(portfolios), len(names | base), tuple(self._untimed.values()))

    def _base(self, kinds: Sequence[Problem]) -> set[str]:
        """Return the cubins of the defaults that a bundle has anyway."""
        kernel, gpu = self._request.kernel, self._device.gpu
        return {
            name
            for kind in kinds
            for problem, configuration in default_configurations(kernel, kind, gpu)
            for name in self._rendered(problem, configuration)
        }

    def _choice(self, kinds: Sequence[Problem], base: set[str]) -> list[list[Configuration]]:
        pools = [self._pool(kind) for kind in kinds]
        tables = [self._table(kind, pool) for kind, pool in zip(kinds, pools, strict=True)]
        given = [
            {pool.index(one) for one in self._defaults(kind) if one in pool}
            for kind, pool in zip(kinds, pools, strict=True)
        ]

        def cubins(table: int, column: int) -> set[str]:
            return base | self._cubins(kinds[table], pools[table][column])

        numbers = choose(tables, cubins, given, self._request.bound, self._request.most_cubins)
        return [[pool[number] for number in ones] for pool, ones in zip(pools, numbers, strict=True)]

    def _defaults(self, kind: Problem) -> list[Configuration]:
        """Return the kernel's defaults at a computation's problems: what is chosen should not be slower."""
        problems = self._races.timings(kind).problems
        return list(dict.fromkeys(one for p in problems if (one := self._candidates.default(p)) is not None))

    def _pool(self, kind: Problem) -> list[Configuration]:
        """Return what may be kept: what is near the best of some problem, and the defaults."""
        timings = self._races.timings(kind)
        near = np.nanmin(timings.slowdowns, axis=0) <= np.log2(CONTENDER)
        defaults = set(self._defaults(kind))
        pairs = zip(timings.configurations, near, strict=True)
        return [one for one, contends in pairs if contends or one in defaults]

    def _table(self, kind: Problem, pool: Sequence[Configuration]) -> Floats:
        """Return slowdowns, predicted where they were not timed, infinite where a configuration cannot run.

        Below the measured problems are as many between them, predicted: what is kept has to run those, too.
        """
        timings = self._races.timings(kind)
        rows = []
        for problem in timings.problems:
            timed, space = timings.of(problem), self._candidates.valid(problem)
            expected = self._candidates.predictor(problem).predict(timings, problem, pool)
            at = {one: float(value) for one, value in zip(pool, expected, strict=True)}
            levels = [timed[one] - at[one] for one in pool if one in timed]
            level = float(np.nanmedian(levels)) if levels else 0.0
            rows.append(
                [
                    timed[one]
                    if one in timed
                    else max(0.0, at[one] + level) + UNCERTAIN
                    if space.runs(one) and (problem.key, one) not in self._races.failed
                    else np.inf
                    for one in pool
                ]
            )
        for problem in between(timings.problems, self._request.seed):
            expected = self._candidates.predictor(problem).predict(timings, problem, pool)
            space = self._candidates.valid(problem)
            can = [value if space.runs(one) else np.inf for one, value in zip(pool, expected, strict=True)]
            least = min((value for value in can if np.isfinite(value)), default=0.0)
            rows.append([value - least for value in can])
        found: Floats = np.nan_to_num(np.asarray(rows), nan=UNCERTAIN, posinf=np.inf)
        return found

    def _fill(self, kinds: Sequence[Problem], kept: Sequence[Sequence[Configuration]]) -> bool:
        """Time the kept wherever they can run and were not timed; return whether there was anything."""
        missing: list[tuple[Problem, list[Configuration]]] = []
        for kind, ones in zip(kinds, kept, strict=True):
            timings = self._races.timings(kind)
            for problem in timings.problems:
                timed, space = timings.of(problem), self._candidates.valid(problem)
                absent = [
                    one
                    for one in ones
                    if one not in timed and space.runs(one) and (problem.key, one) not in self._races.failed
                ]
                if absent:
                    missing.append((problem, [min(timed, key=lambda one, timed=timed: timed[one]), *absent]))  # type: ignore[misc]
        self._progress.phase("timing what is kept", len(missing))
        for problem, ones in missing:
            if self._over(1.0):
                break
            self._progress.step(f"{problem}: {len(ones) - 1} configurations")
            self._attempt(
                problem,
                lambda problem=problem, ones=ones: self._races.run(  # type: ignore[misc]
                    problem, ones, COMPARE_ROUNDS, COMPARE_SAMPLES, COMPARED
                ),
            )
        return bool(missing)

    def _best_at(self, timings: Timings, configuration: Configuration) -> Problem:
        column = timings.slowdowns[:, timings.configurations.index(configuration)]
        return timings.problems[int(np.nanargmin(column))]

    def _cubins(self, kind: Problem, configuration: Configuration) -> frozenset[str]:
        return self._rendered(self._best_at(self._races.timings(kind), configuration), configuration)

    def _rendered(self, problem: Problem, configuration: Configuration) -> frozenset[str]:
        """Return the names of a configuration's sources, each of which becomes a cubin."""
        key = (problem.key, configuration)
        if key not in self._sources:
            rendered = render(self._request.kernel, problem, self._device.gpu, configuration)
            self._sources[key] = frozenset(digest(source) for source, _ in rendered)
        return self._sources[key]

    def _record(self, portfolios: Sequence[Portfolio]) -> None:
        """Write the members down, unless they are what the database has."""
        rows = [
            row for row in portfolio_rows(self._database, self._request.kernel) if row.contestant == MEMBER
        ]
        rows = [row for row in rows if row.gpu.name == self._device.gpu.name]
        bench, tag = str(uuid.uuid4()), f"{BOUND}{self._request.bound}"
        for portfolio in portfolios:
            kind = kind_of(portfolio.problems[0])
            own = [row for row in rows if kind_of(row.problem) == kind]
            last = [row.configuration for row in own if row.bench == own[-1].bench and tag in row.tags]
            if last != [one for one, _ in portfolio.members]:
                self._database.record_benchmark(
                    [
                        replace(
                            self._races.row(problem, one),
                            bench=bench, contestant=MEMBER, tags=(tag,), id=None, created_at="",
                        )
                        for one, problem in portfolio.members
                    ]
                )  # fmt: skip
