"""Few configurations so that each problem has one within a bound of its best: a greedy cover of what was timed.

The loss of a problem is how far its best kept configuration is beyond the bound, a part of how slow it is, and the
square of what is very slow. What a further configuration gains is less, the more there are (the gain is submodular), so
that the greedy choice is near the best (Nemhauser, Wolsey and Fisher, Mathematical Programming 14, 1978).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import cache

import numpy as np

from tuner.core.errors import UsageError
from tuner.core.model import Configuration, Problem, digest
from tuner.kernel.default import default_configurations
from tuner.kernel.render import render
from tuner.studies.portfolio_candidates import CandidateChoice
from tuner.studies.portfolio_races import Races
from tuner.winners.fitting import Floats
from tuner.winners.portfolios import Timings
from tuner.winners.records import BundledConfiguration

INVALID = 4.0
"""Octaves: how slow nothing at all counts."""
WITHIN = 0.3
"""What a slowdown within the bound counts, of one beyond it."""
TAIL_FROM, TAIL = 0.07, 4.0
"""Octaves, from which a slowdown also counts by its square, and the factor: 1.25 counts twice what it would, so that no
size is badly served for the sake of the mean. In simulations it lowers the 95th percentile, and not the median."""
LEAST_GAIN = 2e-5
"""Octaves, in the mean over all problems: what a further configuration must be worth."""
CONTENDER = 1.02
"""What is slower everywhere is not kept."""


def cover(
    tables: Sequence[Floats],
    cubins: Callable[[int, int], Set[str]],
    given: Sequence[Set[int]],
    bound: float,
    most_cubins: int,
) -> list[list[int]]:
    """Return the configurations to keep of each computation.

    Args:
        tables: of each computation the slowdowns in octaves, by problem and configuration; infinite where invalid.
        cubins: the names of a configuration's cubins, by table and configuration.
        given: configurations of each table that are there anyway: they cost nothing.
        bound: the slowdown that is allowed.
        most_cubins: that all configurations together may have.
    """
    losses = [_loss(np.minimum(table, INVALID), float(np.log2(bound))) for table in tables]
    count = max(1, sum(map(len, tables)))
    kept = [sorted(one) for one in given]

    def fits(number: int, column: int) -> bool:
        names = {name for table, ones in enumerate(kept) for one in ones for name in cubins(table, one)}
        return len(names | cubins(number, column)) <= most_cubins

    def addition() -> tuple[int, int] | None:
        """Return the table and configuration whose addition gains most; None if none is worth it, or fits."""
        gains = []
        for number, table in enumerate(losses):
            now = table[:, kept[number]].min(axis=1, initial=INVALID)
            gain = np.maximum(now[:, None] - table, 0).sum(axis=0) / count
            gains += [(float(one), number, column) for column, one in enumerate(gain) if one > LEAST_GAIN]
        ranked = sorted(gains, key=lambda item: (-item[0], item[1:]))
        return next(((number, column) for _, number, column in ranked if fits(number, column)), None)

    while (best := addition()) is not None:
        kept[best[0]].append(best[1])
    return kept


def _loss(slowdowns: Floats, bound: float) -> Floats:
    beyond = (1 - WITHIN) * np.maximum(0.0, slowdowns - bound)
    return WITHIN * slowdowns + beyond + TAIL * np.maximum(0.0, slowdowns - TAIL_FROM) ** 2


class Cover:
    """Chooses what is kept, by what was timed, and by what is expected where nothing was.

    Args:
        races: what was timed.
        candidates: know what can run, and what it should take.
        kinds: a problem of each computation.
    """

    def __init__(self, races: Races, candidates: CandidateChoice, kinds: Sequence[Problem]) -> None:
        self._races, self._candidates, self._kinds = races, candidates, kinds
        self._rendered = cache(self._sources)
        self._bundled = [default_configurations(candidates.kernel, kind, candidates.gpu) for kind in kinds]
        """The defaults of each computation that a bundle has anyway, each with a problem."""
        self._base = {name for ones in self._bundled for one in ones for name in self._rendered(*one)}
        """Their cubins."""

    def choose(self, bound: float, most_cubins: int, margin: float | None) -> list[list[Configuration]]:
        """Return what to keep of each computation.

        Args:
            bound: the slowdown that is allowed.
            most_cubins: that all may have.
            margin: octaves that what is expected counts more than a time; None to keep only what was timed wherever it
                can run.

        Raises:
            UsageError: so few cubins leave a computation without any configuration.
        """
        pools, tables, given = [], [], []
        for kind, bundled in zip(self._kinds, self._bundled, strict=True):
            pool = self._pool(kind, self._defaults(kind))
            if margin is None:
                pool = [one for one in pool if not self._missing_of(kind, one)] or pool
            pools.append(pool)
            tables.append(self._table(kind, pool, margin or 0.0))
            given.append({pool.index(one) for _, one in bundled if one in pool})

        def cubins(table: int, column: int) -> Set[str]:
            return self._base | self._cubins(self._kinds[table], pools[table][column])

        numbers = cover(tables, cubins, given, bound, most_cubins)
        if not all(numbers):
            raise UsageError(
                f"{most_cubins} cubins are too few beside the {len(self._base)} of the kernel's defaults",
                "allow more by --cubins",
            )
        return [[pool[number] for number in ones] for pool, ones in zip(pools, numbers, strict=True)]

    def served(self, kept: Sequence[Sequence[Configuration]]) -> list[tuple[Configuration, list[Problem]]]:
        """Return what is kept, each with the measured problems that it should run best."""
        served: list[tuple[Configuration, list[Problem]]] = []
        for kind, ones in zip(self._kinds, kept, strict=True):
            best, problems = self._table(kind, ones, 0.0).argmin(axis=1), self._races.timings(kind).problems
            for column, one in enumerate(ones):
                served.append((one, [problems[row] for row in np.flatnonzero(best == column)]))
        return served

    def missing(self, kept: Sequence[Sequence[Configuration]]) -> list[tuple[Problem, list[Configuration]]]:
        """Return where what is kept can run and was not timed; of each problem first the best that was timed."""
        missing: list[tuple[Problem, list[Configuration]]] = []
        for kind, ones in zip(self._kinds, kept, strict=True):
            timings = self._races.timings(kind)
            where = {one: {problem.key for problem in self._missing_of(kind, one)} for one in ones}
            for problem in timings.problems:
                timed = timings.of(problem)
                if absent := [one for one in ones if problem.key in where[one]]:
                    missing.append((problem, [min(timed, key=timed.__getitem__), *absent]))
        return missing

    def cubins(self, kept: Sequence[Sequence[Configuration]]) -> int:
        """Return how many cubins what is kept and the defaults have."""
        names = [
            self._cubins(kind, one) for kind, ones in zip(self._kinds, kept, strict=True) for one in ones
        ]
        return len(self._base.union(*names))

    def best_at(self, timings: Timings, configuration: Configuration) -> Problem:
        """Return the problem at which a configuration is nearest to the best."""
        column = timings.slowdowns[:, timings.configurations.index(configuration)]
        return timings.problems[int(np.nanargmin(column))]

    def _missing_of(self, kind: Problem, configuration: Configuration) -> list[Problem]:
        """Return the measured problems that a configuration can run, and was not timed at."""
        timings = self._races.timings(kind)
        column = timings.slowdowns[:, timings.configurations.index(configuration)]
        return [
            problem
            for problem, slow in zip(timings.problems, column, strict=True)
            if np.isnan(slow) and self._runs(problem, configuration)
        ]

    def _runs(self, problem: Problem, configuration: Configuration) -> bool:
        return configuration not in self._races.failed and self._candidates.runs(problem, configuration)

    def _defaults(self, kind: Problem) -> list[Configuration]:
        """Return the kernel's defaults at a computation's problems: what is chosen should not be slower."""
        problems = self._races.timings(kind).problems
        return list(dict.fromkeys(one for p in problems if (one := self._candidates.default(p)) is not None))

    def _pool(self, kind: Problem, defaults: Sequence[Configuration]) -> list[Configuration]:
        """Return what may be kept: what is near the best of some problem, and the defaults."""
        timings = self._races.timings(kind)
        near = np.nanmin(timings.slowdowns, axis=0) <= np.log2(CONTENDER)
        pairs = zip(timings.configurations, near, strict=True)
        return [
            one for one, contends in pairs if (contends or one in defaults) and one not in self._races.failed
        ]

    def _table(self, kind: Problem, pool: Sequence[Configuration], margin: float) -> Floats:
        """Return slowdowns, expected ones where they were not timed, infinite where a configuration cannot run."""
        timings, everything = self._races.timings(kind), self._races.all_timings()
        table = np.full((len(timings.problems), len(pool)), np.inf)
        for row, problem in enumerate(timings.problems):
            timed = timings.of(problem)
            expected = self._candidates.costs.expected(everything, problem, pool)
            off = [timed[one] - at for one, at in zip(pool, expected, strict=True) if one in timed]
            level = float(np.median(off)) if off else 0.0
            for column, (one, at) in enumerate(zip(pool, expected, strict=True)):
                if one in timed:
                    table[row, column] = timed[one]
                elif self._runs(problem, one):
                    table[row, column] = max(0.0, at + level) + margin
        return table

    def _cubins(self, kind: Problem, configuration: Configuration) -> frozenset[str]:
        return self._rendered(self.best_at(self._races.timings(kind), configuration), configuration)

    def _sources(self, problem: Problem, configuration: Configuration) -> frozenset[str]:
        """Return the names of a configuration's sources, each of which becomes a cubin, and of what probes GPUs."""
        kernel, gpu = self._candidates.kernel, self._candidates.gpu
        rendered = render(kernel, problem, gpu, configuration)
        bundled = BundledConfiguration(kernel, problem, gpu, configuration)
        probe = {"probe"} if bundled.takes_cluster_order else set()
        return frozenset(digest(source) for source, _ in rendered) | probe
