"""What a portfolio keeps: chosen by what was timed, and by what is predicted where nothing was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.core.model import Configuration, Gpu, Problem, digest
from tuner.kernel.default import default_configurations
from tuner.kernel.render import render
from tuner.kernel.spec import KernelSpec
from tuner.studies.portfolio_candidates import CandidateChoice, ValidConfigurations
from tuner.studies.portfolio_choosing import choose
from tuner.studies.portfolio_racing import Races
from tuner.winners.records import BundledConfiguration
from tuner.winners.timings import Floats, Timings

CONTENDER = 1.02
"""What is slower everywhere is not kept."""


class Keeping:
    """Chooses what is kept.

    Args:
        kernel, gpu: whose and where.
        races: what was timed.
        candidates: know what can run, and predict.
        kinds: a problem of each computation.
    """

    def __init__(
        self,
        kernel: KernelSpec,
        gpu: Gpu,
        races: Races,
        candidates: CandidateChoice,
        kinds: Sequence[Problem],
    ) -> None:
        self._kernel, self._gpu, self._races, self._candidates = kernel, gpu, races, candidates
        self._kinds = kinds
        self._sources: dict[tuple[str, Configuration], frozenset[str]] = {}
        self._base = {
            name
            for kind in kinds
            for problem, configuration in default_configurations(kernel, kind, gpu)
            for name in self._rendered(problem, configuration)
        }
        """The cubins of the defaults that a bundle has anyway."""

    def choose(self, bound: float, most_cubins: int, margin: float | None) -> list[list[Configuration]]:
        """Return what to keep of each computation.

        Args:
            bound: the slowdown that is allowed.
            most_cubins: that all may have.
            margin: octaves that a prediction counts more than a time; None to keep only what was timed wherever it can
                run.
        """
        kinds = self._kinds
        pools = [self._pool(kind) for kind in kinds]
        if margin is None:
            pools = [
                [one for one in pool if not self.missing_of(kind, one)] or pool
                for kind, pool in zip(kinds, pools, strict=True)
            ]
        tables = [self._table(kind, pool, margin or 0.0) for kind, pool in zip(kinds, pools, strict=True)]
        given = [
            {pool.index(one) for one in self._defaults(kind) if one in pool}
            for kind, pool in zip(kinds, pools, strict=True)
        ]

        def cubins(table: int, column: int) -> set[str]:
            return self._base | self._cubins(kinds[table], pools[table][column])

        numbers = choose(tables, cubins, given, bound, most_cubins)
        return [[pool[number] for number in ones] for pool, ones in zip(pools, numbers, strict=True)]

    def served(self, kept: Sequence[Sequence[Configuration]]) -> list[tuple[Configuration, list[Problem]]]:
        """Return what is kept, each with the measured problems that it runs best; the worst served first."""
        served = []
        for kind, ones in zip(self._kinds, kept, strict=True):
            table, problems = self._table(kind, ones, 0.0), self._races.timings(kind).problems
            best = np.argmin(table, axis=1)
            for column, one in enumerate(ones):
                rows = np.flatnonzero(best == column)
                own = sorted(rows, key=lambda row: -float(table[row, column]))
                served.append((one, [problems[row] for row in own]))
        return served

    def of_same_cubins(self, configuration: Configuration, problem: Problem) -> list[Configuration]:
        """Return valid configurations that differ in one parameter, of the launch alone: they cost no further cubin."""
        same, own = [], self._rendered(problem, configuration)
        space = self._candidates.valid(problem)
        for name, parameter in self._kernel.variants[configuration.variant].parameters.items():
            for value in parameter.values:
                other = Configuration.of(configuration.variant, {**configuration.values, name: value})
                if other != configuration and space.runs(other) and self._rendered(problem, other) == own:
                    same.append(other)
        return same

    def missing(self, kept: Sequence[Sequence[Configuration]]) -> list[tuple[Problem, list[Configuration]]]:
        """Return where what is kept can run and was not timed; of each problem first the best that was timed."""
        missing: list[tuple[Problem, list[Configuration]]] = []
        for kind, ones in zip(self._kinds, kept, strict=True):
            timings = self._races.timings(kind)
            where = {one: {problem.key for problem in self.missing_of(kind, one)} for one in ones}
            for problem in timings.problems:
                timed = timings.of(problem)
                if absent := [one for one in ones if problem.key in where[one]]:
                    missing.append((problem, [min(timed, key=timed.__getitem__), *absent]))
        return missing

    def missing_of(self, kind: Problem, configuration: Configuration) -> list[Problem]:
        """Return the measured problems that a configuration can run, and was not timed at."""
        timings = self._races.timings(kind)
        column = timings.slowdowns[:, timings.configurations.index(configuration)]
        return [
            problem
            for problem, slow in zip(timings.problems, column, strict=True)
            if np.isnan(slow) and self._runs(self._candidates.valid(problem), configuration)
        ]

    def _runs(self, space: ValidConfigurations, configuration: Configuration) -> bool:
        return configuration not in self._races.failed and space.runs(configuration)

    def cubins(self, kept: Sequence[Sequence[Configuration]]) -> int:
        """Return how many cubins what is kept and the defaults have."""
        names = {
            name
            for kind, ones in zip(self._kinds, kept, strict=True)
            for one in ones
            for name in self._cubins(kind, one)
        }
        return len(names | self._base)

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
        return [
            one for one, contends in pairs if (contends or one in defaults) and one not in self._races.failed
        ]

    def _table(self, kind: Problem, pool: Sequence[Configuration], margin: float) -> Floats:
        """Return slowdowns, predicted where they were not timed, infinite where a configuration cannot run."""
        timings, everything = self._races.timings(kind), self._races.all_timings()
        predict = self._candidates.predictor.predict
        rows = []
        for problem in timings.problems:
            timed, space = timings.of(problem), self._candidates.valid(problem)
            expected = predict(everything, problem, pool)
            at = {one: float(value) for one, value in zip(pool, expected, strict=True)}
            levels = [timed[one] - at[one] for one in pool if one in timed]
            level = float(np.nanmedian(levels)) if levels else 0.0
            rows.append(
                [
                    timed[one]
                    if one in timed
                    else max(0.0, at[one] + level) + margin
                    if self._runs(space, one)
                    else np.inf
                    for one in pool
                ]
            )
        table: Floats = np.nan_to_num(np.asarray(rows), nan=margin, posinf=np.inf)
        return table

    def best_at(self, timings: Timings, configuration: Configuration) -> Problem:
        """Return the problem at which a configuration is nearest to the best."""
        column = timings.slowdowns[:, timings.configurations.index(configuration)]
        return timings.problems[int(np.nanargmin(column))]

    def _cubins(self, kind: Problem, configuration: Configuration) -> frozenset[str]:
        return self._rendered(self.best_at(self._races.timings(kind), configuration), configuration)

    def _rendered(self, problem: Problem, configuration: Configuration) -> frozenset[str]:
        """Return the names of a configuration's sources, each of which becomes a cubin, and of what probes GPUs."""
        key = (problem.key, configuration)
        if key not in self._sources:
            rendered = render(self._kernel, problem, self._gpu, configuration)
            bundled = BundledConfiguration(self._kernel, problem, self._gpu, configuration)
            probe = {"probe"} if bundled.takes_cluster_order else set()
            self._sources[key] = frozenset(digest(source) for source, _ in rendered) | probe
        return self._sources[key]
