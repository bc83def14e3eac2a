"""The default sampler, ``gp-ei``: a Gaussian process over the valid set, made for a few dozen results.

Every proposal is the unseen valid configuration with the greatest expected improvement (Jones, Schonlau and Welch,
"Efficient Global Optimization of Expensive Black-Box Functions", 1998), reduced where it is far from good initial
configurations (:mod:`tuner.search.candidates`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from tuner.core.model import Configuration
from tuner.kernel.space import SearchSpace
from tuner.search.base import Location, SpaceSampler, objective_of
from tuner.search.candidates import GOOD, Candidates, expected_improvement, log_expected_improvement
from tuner.search.features import Codes, Features, Floats
from tuner.search.gaussian_process import GaussianProcess, Prior
from tuner.search.teachers import Observed, Teacher, Teachers, compressed


@dataclass(frozen=True)
class GPEISettings:
    """Constants of the sampler, the same for all kernels.

    The defaults were chosen on recorded spaces; see docs/searching.md.
    """

    startup: int = 2
    """Configurations before the first that the model chooses, with one more for each further variant."""
    spread: int = 10
    """Each of them is the one of so many random configurations that is farthest from the others."""
    knee: float = 0.25
    """Results worse than this quantile are compressed."""
    failure: float = 1.0
    """A failure counts as so much slower than the slowest result, in log2: twice."""
    margin: float = 0.05
    """An improvement below this, in log2 of the time, is not worth a trial."""
    stalled: int = 25
    """After so many results that are no better than the best, what differs from that in one value is tried first."""
    steps: int = 6
    """BFGS steps of each fit."""
    refit: float = 0.15
    """Share by which the results have grown when hyperparameters are fitted again."""
    fitted: int = 120
    """Results that hyperparameters are fitted to."""
    learnt: int = 250
    """Results that predictions rest on."""
    transferred: int = 120
    """Results that are kept of each other task."""
    pairs: int = 40_000
    """Candidates times results that are compared for a proposal."""
    min_candidates: int = 700
    max_candidates: int = 20_000
    """Bounds of the candidates for a proposal."""
    prior: Prior = field(default_factory=Prior)


BESIDE = 1e6
"""More than any logarithm of an expected improvement."""
MIN_TIMES = 2
"""Times that the model needs: one of them is no difference."""
MIN_TRANSFERRED = 5
"""Results of another task; fewer are left out."""


@cache
def _use_one_thread() -> None:
    # For the rest of the process: the matrices are small, and while compilers keep the cores busy the inverse of one
    # took 71 ms on several threads, and 1 ms on one. Finding the library takes 5 ms.
    threadpoolctl.threadpool_limits(1, "blas")


class GPEISampler(SpaceSampler):
    """Proposes the configuration with the greatest expected improvement under a Gaussian process.

    It nominates, transfers from other tasks, and knows what it still expects to gain
    (:mod:`tuner.search.base`).

    Args:
        space: what may be proposed.
        seed: of every random choice.
        settings: for experiments.
    """

    def __init__(self, space: SearchSpace, seed: int = 0, settings: GPEISettings = GPEISettings()) -> None:
        super().__init__(space, seed)
        _use_one_thread()
        self.settings = settings
        self.features = Features(space)
        self.model = GaussianProcess(self.features.distances, settings.prior)
        self.expected_improvement = np.inf
        self._candidates = Candidates(self, self.features)
        self._times: dict[Location, float] = {}
        """Objectives of what did not fail."""
        self._locations: list[Location] = []
        self._objectives: list[float] = []
        self._codes: list[Codes] = []
        self._pending: dict[Location, Codes] = {}
        self._nominees: dict[Location, Codes] = {}
        self._nominated: dict[Configuration, Location] = {}
        """Everything nominated: to look it up in a set of a hundred thousand takes longer."""
        self._basis: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        """Of very many results those that the model learns, when they were last drawn."""
        self._based_on = 0
        """Results that there were then; what came later is learnt, too."""
        self._fitted_at = -1
        self._fruitless = 0
        """Results in a row that were no better than the best."""
        self._teachers = Teachers()
        self._outside = np.inf
        """The expected improvement of the last nomination."""

    # -- what it learns

    def _proposed(self, location: Location) -> None:
        self._pending[location] = self._code(location)

    def _told(self, location: Location, objective: float | None) -> None:
        code = self._pending.pop(location, None)
        if code is None:
            code = self._nominees.pop(location, None)
        if code is not None:
            gain = objective is not None and objective < min(self._times.values(), default=np.inf)
            self._fruitless = 0 if gain else self._fruitless + 1
            self._observe(location, code, objective)

    def _added(self, location: Location, objective: float | None) -> None:
        self._observe(location, self._code(location), objective)

    def _observe(self, location: Location, code: Codes, objective: float | None) -> None:
        self._locations.append(location)
        self._codes.append(code)
        self._objectives.append(np.nan if objective is None else objective)
        if objective is not None:
            self._times[location] = objective

    def learn(self, results: Sequence[tuple[Configuration, float | None]], distance: float) -> int:
        """Learn the results of another task; this run's results decide how far it is followed."""
        best: dict[Location, float] = {}
        for configuration, time_ns in results:
            location, objective = self.space.locate(configuration), objective_of(time_ns)
            if location is not None:
                objective = np.inf if objective is None else objective
                best[location] = min(objective, best.get(location, np.inf))
        locations, objectives = list(best), np.array(list(best.values()))
        objectives[np.isinf(objectives)] = np.nan
        if np.isfinite(objectives).sum() < MIN_TRANSFERRED:
            return 0
        order = self.best_and_random(np.argsort(objectives, kind="stable"), self.settings.transferred)
        locations = [locations[i] for i in order]
        codes = np.stack([self._code(location) for location in locations])
        values = compressed(objectives[order], self.settings.knee, self.settings.failure)
        model = GaussianProcess(self.features.distances, self.settings.prior)
        self._teachers.add(Teacher(self.features, model, locations, codes, values, distance))
        return len(order)

    def _code(self, location: Location) -> Codes:
        return np.asarray(self.features.encode(location[0], np.array([location[1]]))[0])

    # -- what it proposes

    def nominate(self, count: int) -> list[Configuration]:
        """Return the configurations of the greatest expected improvement beside those under way, best first."""
        nominated: list[Configuration] = []
        while len(nominated) < count and any(self.unseen):
            for location in self._best_candidates(count - len(nominated)):
                self._see(location)
                self._nominees[location] = self._code(location)
                nominated.append(self.configuration(location))
                self._nominated[nominated[-1]] = location
        self._outside = self.expected_improvement if any(self.unseen) else 0.0
        return nominated

    def choose(self, nominees: Sequence[Configuration]) -> Sequence[int]:
        """Rank nominees by their expected improvement as of the latest results."""
        locations = [self._nominated[nominee] for nominee in nominees]
        order, improvement = list(range(len(locations))), np.inf
        if len(self._times) >= MIN_TIMES or self._teachers:
            codes = np.stack([self._nominees[location] for location in locations])
            numbers, rows = np.array(locations).T
            _, gains, promised = self._ranked(numbers, rows, [codes], self._pending, 1)
            order, improvement = np.argsort(-gains, kind="stable").tolist(), promised[0]
        # A candidate that is not compiled may be better; the best of those was the last nomination.
        self.expected_improvement = max(improvement, self._outside)
        chosen = locations[order[0]]
        self._pending[chosen] = self._nominees.pop(chosen)
        return order

    def withdraw(self, configuration: Configuration) -> None:
        """Forget a nomination."""
        location = self._nominated.pop(configuration)
        del self._nominees[location]
        self._unsee(location)

    def _propose(self) -> Location:
        return self._best_candidates(1)[0]

    def _best_candidates(self, count: int) -> list[Location]:
        """Return at least one and at most ``count`` locations, best first; each counts as a result for the next."""
        startup = self.settings.startup + len(self.space.variants) - 1
        waiting = {**self._nominees, **self._pending}
        few = len(self._objectives) + len(waiting) < startup or len(self._times) < MIN_TIMES
        if few and not self._teachers:
            self.expected_improvement = np.inf
            return [self._spread()]
        numbers, rows = self._to_compare(len(self._objectives) + len(waiting))
        encoded = [self.features.encode(n, rows[numbers == n]) for n in range(len(self.space.variants))]
        chosen, _, promised = self._ranked(numbers, rows, encoded, waiting, count)
        self.expected_improvement = promised[-1]
        return [(int(numbers[i]), int(rows[i])) for i in chosen]

    def _ranked(
        self,
        numbers: NDArray[np.int64],
        rows: NDArray[np.int64],
        blocks: Sequence[Codes],
        waiting: Mapping[Location, Codes],
        count: int,
    ) -> tuple[list[int], Floats, list[float]]:
        """Return the best candidates as indices, best first; each counts as its expected result for the next.

        Args:
            numbers: their variants.
            rows: in these.
            blocks: their codes, in groups as :meth:`GaussianProcess.posterior` takes them.
            waiting: what is under way, and counts as its expected result.
            count: how many are returned, at most.

        Returns:
            Then what each candidate was worth when the last of these was chosen; and for each of them by how much the
            best candidate was expected to be faster than the best result, in log2 of the time.
        """
        expected = self._teachers.expected(numbers, rows)
        if len(self._times) < MIN_TIMES:
            order = np.argsort(expected, kind="stable")[:count].tolist()
            return order, -expected, [np.inf]
        observed, best = self._condition(waiting)
        posterior, penalty = self.model.posterior(blocks), self._penalty(numbers, rows)
        mean = posterior.mean + expected / observed.unit
        chosen: list[int] = []
        promised: list[float] = []
        for _ in range(min(count, len(rows))):
            if chosen:
                posterior.fantasize(chosen[-1])
            deviation = posterior.deviation
            worthwhile = best - self.settings.margin / observed.unit
            gains = log_expected_improvement(mean, deviation, worthwhile) - penalty
            # Targets are in proportion to log2 of the time up to the knee, and so for what is better than the best.
            promised.append(float(expected_improvement(mean, deviation, best).max()) * observed.unit)
            gains[chosen] = -np.inf
            chosen.append(int(np.argmax(gains)))
        return chosen, gains, promised

    def _penalty(self, numbers: NDArray[np.int64], rows: NDArray[np.int64]) -> Floats:
        """Return what is taken off the log expected improvement of some configurations, by variant and row."""
        best = min(self._times.values(), default=np.inf)
        good = [one for one in self.initial if self._times.get(one, np.inf) <= best + GOOD]
        taken = np.zeros(len(rows))
        for number in np.unique(numbers):
            of_variant = numbers == number
            taken[of_variant] = self._candidates.penalty(int(number), rows[of_variant], good)
        if self._fruitless >= self.settings.stalled:
            found = min(self._times, key=lambda location: self._times[location])
            of_variant = numbers == found[0]
            beside = self._candidates.apart(found)[rows[of_variant]] == 1
            taken[of_variant] -= np.where(beside, BESIDE, 0.0)
        return taken

    def _spread(self) -> Location:
        """Return a random configuration unlike those before, of the variant with the fewest trials."""
        under_way = [*self._locations, *self._pending, *self._nominees]
        tried = np.bincount([number for number, _ in under_way], minlength=len(self.unseen))
        tried = np.where(np.array(self.unseen) > 0, tried, np.iinfo(np.int64).max)
        number = int(self.rng.choice(np.flatnonzero(tried == tried.min())))
        others = [*self._codes, *self._pending.values(), *self._nominees.values()]
        return number, self._candidates.farthest(number, others, self.settings.spread)

    def _to_compare(self, results: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return unseen configurations to choose from, as variant and row; fewer, the more results each costs."""
        settings = self.settings
        if sum(self.unseen) > settings.max_candidates:  # else what others expect of each is computed once
            results += self._teachers.size
        limit = np.clip(settings.pairs // max(results, 1), settings.min_candidates, settings.max_candidates)
        good = [self._locations[i] for i in np.argsort(self._objectives, kind="stable")[:3]]
        parts = self._candidates.near_and_random([*good, *self._teachers.best], int(limit))
        numbers = [np.full(len(part), number) for number, part in enumerate(parts)]
        return np.concatenate(numbers), np.concatenate(parts)

    # -- the model

    def _condition(self, waiting: Mapping[Location, Codes]) -> tuple[Observed, float]:
        """Condition the model on all results and the expected ones of ``waiting``; return these and the best target."""
        objectives = np.array(self._objectives)
        learnt = self._drawn(objectives)
        codes = np.array([self._codes[i] for i in learnt], dtype=np.int64).reshape(-1, len(self.features))
        places = np.array([self._locations[i] for i in learnt]).T
        values = compressed(objectives[learnt], self.settings.knee, self.settings.failure)
        count = len(objectives)
        if self._fitted_at < 0 or count - self._fitted_at >= max(1, int(count * self.settings.refit)):
            self._fitted_at = count
            some = np.arange(len(values))
            if len(some) > self.settings.fitted:
                some = self.best_and_random(np.argsort(values, kind="stable"), self.settings.fitted)
            of_some = codes[some], values[some], *places[:, some]
            self._teachers.judge(self.model, *of_some)
            targets = self._teachers.observe(*of_some[1:]).targets
            self.model.fit(codes[some], targets, self.settings.steps)
        observed = self._teachers.observe(values, *places)
        self.model.condition(codes, observed.targets)
        if waiting:
            self.model.fantasize(np.stack(list(waiting.values())))
        return observed, (float(values.min()) - observed.middle) / observed.unit

    def _drawn(self, objectives: Floats) -> NDArray[np.int64]:
        """Return the results that the model learns, as indices: all, or of very many the best half and others.

        They are drawn anew only from time to time, so that a model can be extended by new results.
        """
        limit, count = self.settings.learnt, len(objectives)
        if count <= limit:
            return np.arange(count)
        if not len(self._basis) or len(self._basis) + count - self._based_on > 1.1 * limit:
            order = np.argsort(objectives, kind="stable")
            self._basis, self._based_on = np.sort(self.best_and_random(order, limit)), count
        return np.append(self._basis, np.arange(self._based_on, count))
