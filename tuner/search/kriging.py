"""The tuner's own search: a Gaussian process over the valid set, made for a few dozen results.

Every proposal is the unseen valid configuration with the greatest expected improvement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.search.base import Place, Search
from tuner.search.features import Codes, Features, Floats
from tuner.search.gaussian import GaussianProcess, Prior
from tuner.space import SearchSpace


@dataclass(frozen=True)
class Settings:
    """What the search is like; one for all kernels.

    The defaults were chosen on recorded spaces; see docs/search.md.
    """

    startup: int = 3
    """Configurations before the first that the model chooses, with one more for each further variant."""
    spread: int = 10
    """Each of them is that one of so many random ones which is farthest from the others."""
    knee: float = 0.25
    """Results worse than this quantile are compressed."""
    margin: float = 0.05
    """An improvement below this, in log2 of the time, is not worth a trial."""
    steps: int = 15
    """BFGS steps for each proposal."""
    fitted: int = 120
    """Results that hyperparameters are fitted to."""
    learnt: int = 250
    """Results that predictions rest on."""
    pairs: int = 200_000
    """Candidates times results that are compared for a proposal."""
    least: int = 700
    most: int = 20_000
    """Bounds of the candidates for a proposal."""
    prior: Prior = Prior()


class Kriging(Search):
    """Proposes what promises the greatest improvement.

    Args:
        space: what may be asked for.
        seed: of every random choice.
        settings: for experiments.
    """

    def __init__(self, space: SearchSpace, seed: int, settings: Settings = Settings()) -> None:  # noqa: B008 - frozen
        super().__init__(space, seed)
        self.settings = settings
        self.features = Features(space)
        self.model = GaussianProcess(self.features.distances, settings.prior)
        self._places: list[Place] = []
        self._objectives: list[float] = []
        self._codes: list[Codes] = []
        self._pending: dict[Place, Codes] = {}
        self._fitted_at = -1
        self._asks = 0

    # -- what it is told

    def _asked(self, place: Place) -> None:
        self._pending[place] = self._code(place)

    def _told(self, place: Place, objective: float | None) -> None:
        if (code := self._pending.pop(place, None)) is not None:
            self._learn(place, code, objective)

    def _added(self, place: Place, objective: float | None) -> None:
        self._learn(place, self._code(place), objective)

    def _learn(self, place: Place, code: Codes, objective: float | None) -> None:
        self._places.append(place)
        self._codes.append(code)
        self._objectives.append(np.nan if objective is None else objective)

    def _code(self, place: Place) -> Codes:
        return self.features.encode(place[0], np.array([place[1]]))[0]

    # -- what it proposes

    def _propose(self) -> Place:
        objectives = np.array(self._objectives)
        startup = self.settings.startup + len(self.space.variants) - 1
        if len(objectives) + len(self._pending) < startup or np.isfinite(objectives).sum() < 2:
            return self._spread()
        kept = self._kept(objectives)
        codes = np.stack(self._codes)[kept]
        targets, unit = standardise(objectives[kept], self.settings.knee)
        self._fit(codes, targets)
        best = float(targets.min()) - self.settings.margin / unit
        self.model.condition(codes, targets)
        if self._pending:
            waiting = np.stack(list(self._pending.values()))
            believed, _ = self.model.predict(waiting)
            codes, targets = np.vstack([codes, waiting]), np.append(targets, believed)
            self.model.condition(codes, targets)
        number, row = self._candidates(objectives, len(targets))
        encoded = [self.features.encode(n, row[number == n]) for n in range(len(self.space.variants))]
        mean, deviation = self.model.predict(np.concatenate(encoded))
        order = np.argsort(number, kind="stable")
        chosen = order[int(np.argmax(expected_improvement(mean, deviation, best)))]
        return int(number[chosen]), int(row[chosen])

    def _fit(self, codes: Codes, targets: Floats) -> None:
        count = len(self._objectives)
        if count - self._fitted_at < max(1, count // 20) and self._fitted_at >= 0:
            return
        self._fitted_at = count
        if len(targets) > self.settings.fitted:
            rows = np.argsort(targets, kind="stable")
            best = self.settings.fitted // 2
            rest = self.rng.choice(rows[best:], self.settings.fitted - best, replace=False)
            rows = np.append(rows[:best], rest)
            codes, targets = codes[rows], targets[rows]
        self.model.fit(codes, targets, self.settings.steps)

    def _kept(self, objectives: Floats) -> NDArray[np.int64]:
        """Give the results that the model learns: all, or of very many the best half and others at random."""
        limit = self.settings.learnt
        if len(objectives) <= limit:
            return np.arange(len(objectives))
        order = np.argsort(objectives, kind="stable")
        rest = self.rng.choice(order[limit // 2 :], limit - limit // 2, replace=False)
        return np.sort(np.append(order[: limit // 2], rest))

    def _spread(self) -> Place:
        """Give a random configuration that is unlike those before, of a variant that was tried least."""
        tried = np.bincount([p[0] for p in [*self._places, *self._pending]], minlength=len(self.unseen))
        tried = np.where(np.array(self.unseen) > 0, tried, np.iinfo(np.int64).max)
        number = int(self.rng.choice(np.flatnonzero(tried == tried.min())))
        rows = self._some(number, self.settings.spread)
        known = [*self._codes, *self._pending.values()]
        if not known or not len(self.features):
            return number, int(rows[0])
        codes, others = self.features.encode(number, rows), np.stack(known)
        apart = np.zeros((len(rows), len(others)))
        for j, distances in enumerate(self.features.distances):
            apart += distances[np.ix_(codes[:, j], others[:, j])]
        return number, int(rows[int(np.argmax(apart.min(axis=1)))])

    def _some(self, number: int, count: int) -> NDArray[np.int64]:
        """Give some unseen rows of a variant, in random order."""
        if self.unseen[number] <= 4 * count:
            free = np.flatnonzero(~self.seen[number])
            return self.rng.permutation(free)[:count]
        # Few of very many: drawn with those that were seen, which are left out afterwards.
        drawn = np.unique(self.rng.integers(len(self.seen[number]), size=2 * count))
        drawn = drawn[~self.seen[number][drawn]]
        if len(drawn) < count // 2:
            drawn = np.flatnonzero(~self.seen[number])
        return self.rng.permutation(drawn)[:count]

    def _candidates(self, objectives: Floats, known: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give unseen configurations to choose from, as variant and row: all, or neighbours and random ones."""
        limit = int(np.clip(self.settings.pairs // known, self.settings.least, self.settings.most))
        total = sum(self.unseen)
        numbers, rows = [], []
        if total <= limit:
            parts = [np.flatnonzero(~seen) for seen in self.seen]
        else:
            parts = [
                self._some(number, min(count, -(-limit // (2 * len(self.unseen))) + limit * count // (2 * total)))
                if count
                else np.empty(0, dtype=np.int64)
                for number, count in enumerate(self.unseen)
            ]
            for place in np.argsort(objectives, kind="stable")[:3]:
                number, row = self._places[place]
                variant = self.space.variants[number]
                near = variant.distances(variant.matrix[row].astype(np.int64)) <= 2
                near &= ~self.seen[number]
                found = np.flatnonzero(near)
                if len(found) > limit // 6:
                    found = self.rng.permutation(found)[: limit // 6]
                parts[number] = np.union1d(parts[number], found)
        for number, part in enumerate(parts):
            numbers.append(np.full(len(part), number))
            rows.append(part)
        return np.concatenate(numbers), np.concatenate(rows)


def standardise(objectives: Floats, knee: float) -> tuple[Floats, float]:
    """Give results as targets of mean 0 and deviation 1: the slow ones compressed, a failure like the slowest.

    What is much slower than the best tells little about how the best differ, and would stretch the model.
    """
    ok = objectives[np.isfinite(objectives)]
    bend = float(np.quantile(ok, knee))
    scale = max(bend - float(ok.min()), 0.1)
    values = np.where(np.isfinite(objectives), objectives, ok.max())
    over = np.maximum(values - bend, 0.0) / scale
    values = np.minimum(values, bend) + scale * np.log1p(over)
    unit = float(values.std()) or 1.0
    return (values - values.mean()) / unit, unit


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Give by how much each is expected to be below the best."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return np.asarray(deviation * (z * _below(z) + density))


def _below(z: Floats) -> Floats:
    """Give the normal distribution function, to seven decimals (Abramowitz and Stegun, 26.2.17)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    powers = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * powers
    return np.asarray(np.where(z > 0, 1 - tail, tail))
