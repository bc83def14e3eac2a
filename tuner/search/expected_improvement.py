"""The tuner's own search: a Gaussian process over the valid set, made for a few dozen results.

Every proposal is the unseen valid configuration with the greatest expected improvement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from tuner.model import Configuration, Resources
from tuner.search import resources
from tuner.search.base import Nominee, Place, Search
from tuner.search.features import Codes, Features, Floats
from tuner.search.gaussian_process import GaussianProcess, Outlook, Prior
from tuner.space.space import SearchSpace


@dataclass(frozen=True)
class Settings:
    """What the search is like; one for all kernels.

    The defaults were chosen on recorded spaces; see docs/search.md.
    """

    startup: int = 2
    """Configurations before the first that the model chooses, with one more for each further variant."""
    spread: int = 10
    """Each of them is that one of so many random ones which is farthest from the others."""
    knee: float = 0.25
    """Results worse than this quantile are compressed."""
    margin: float = 0.05
    """An improvement below this, in log2 of the time, is not worth a trial."""
    steps: int = 6
    """BFGS steps for each proposal."""
    refit: float = 0.15
    """Share by which the results have grown when they are fitted again."""
    fitted: int = 120
    """Results that hyperparameters are fitted to."""
    learnt: int = 250
    """Results that predictions rest on."""
    hinted: int = 60
    """Results that are kept of each other task."""
    pairs: int = 40_000
    """Candidates times results that are compared for a proposal."""
    least: int = 700
    most: int = 20_000
    """Bounds of the candidates for a proposal."""
    informed: bool = True
    """Whether what the compiler said is considered when a nominee is chosen."""
    prior: Prior = field(default_factory=Prior)


TRUSTS = (1.0, 0.95, 0.8, 0.5, 0.0)
"""How much another task may be believed, of what its distance allows; the results of this run decide."""
MAX_HINTS = 3
"""The nearest other tasks that are learnt from."""
NEARBY = 2
"""Parameters in which a configuration near a good one may differ."""
FAILURE = 1.0
"""A failure counts as twice as slow as the slowest result."""
ENOUGH = 2
"""Times that the model needs: one of them is no difference."""
LEAST_SAID = 10
"""Results whose registers are known, before registers are believed to say something."""
LEAST_HINTS = 5
"""Another task with fewer results tells nothing."""


@dataclass
class Hint:
    """What was measured of another task, best first."""

    places: list[Place]
    codes: Codes
    objectives: Floats
    nearness: float
    """The most that it can be correlated with this task."""
    trust: float = -1.0
    """The correlation that is assumed."""

    def __post_init__(self) -> None:
        self.trust = self.nearness if self.trust < 0 else self.trust
        known = zip(self.codes, self.objectives, strict=True)
        self._by_code = {code.tobytes(): float(objective) for code, objective in reversed(list(known))}

    def shift(self, codes: Codes, objectives: Floats) -> float:
        """Return by how much this task is slower: where both were measured, or else by their medians' best halves."""
        pairs = []
        for code, objective in zip(codes, objectives, strict=True):
            there = self._by_code.get(code.tobytes())
            if there is not None and np.isfinite(objective):
                pairs.append(there - float(objective))
        if pairs:
            return float(np.median(pairs))
        finite = objectives[np.isfinite(objectives)]
        return float(np.median(self.objectives) - np.median(finite)) if len(finite) else 0.0


@dataclass(frozen=True)
class Known:
    """Results for the model: codes and targets, each with the number of its task; 0 is this run."""

    codes: Codes
    targets: Floats
    tasks: NDArray[np.int64]
    trusts: Floats
    """Correlation of each task with this run."""
    unit: float
    """Log2 of the time for one unit of the targets."""

    @property
    def own(self) -> NDArray[np.bool_]:
        """Which are results of this run."""
        return np.asarray(self.tasks == 0)

    @property
    def trust(self) -> Floats | None:
        """Correlation of each result's task with this run."""
        return None if len(self.trusts) == 1 else self.trusts[self.tasks]

    @property
    def alike(self) -> Floats | None:
        """Correlation of the tasks of each two results."""
        if (trust := self.trust) is None:
            return None
        return np.where(self.tasks[:, None] == self.tasks, 1.0, trust[:, None] * trust)

    def subset(self, rows: NDArray[np.int64]) -> Known:
        """Return some of the results."""
        return replace(self, codes=self.codes[rows], targets=self.targets[rows], tasks=self.tasks[rows])


class Kriging(Search):
    """Proposes what promises the greatest improvement.

    Args:
        space: what may be asked for.
        seed: of every random choice.
        settings: for experiments.
    """

    selective = True

    def __init__(self, space: SearchSpace, seed: int, settings: Settings = Settings()) -> None:
        super().__init__(space, seed)
        # Of this process, for good: its matrices are small, and while compilers keep the cores busy the inverse of one
        # took 71 ms on several threads, and 1 ms on one.
        threadpoolctl.threadpool_limits(1, "blas")
        self.settings = settings
        self.features = Features(space)
        self.model = GaussianProcess(self.features.distances, settings.prior)
        self.informed = GaussianProcess([*self.features.distances, *resources.distances()], settings.prior)
        self._resources: dict[Place, Resources | None] = {}
        """What the compiler said of what was chosen."""
        self._learnt_places: list[Place] = []
        self._informed_at = -1
        self._better_informed = False
        """Whether the results are more probable with what the compiler said, as of the last fit."""
        self._places: list[Place] = []
        self._objectives: list[float] = []
        self._codes: list[Codes] = []
        self._pending: dict[Place, Codes] = {}
        self._nominees: dict[Place, Codes] = {}
        self._place_of: dict[Configuration, Place] = {}
        """Of everything nominated: to look it up in a set of a hundred thousand takes longer."""
        self._fitted_at = -1
        self._basis: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        """Of very many results those that the model learns, when the choice was made last."""
        self._based_on = 0
        """Results that there were then; what came later is learnt, too."""
        self._hints: list[Hint] = []
        self._near: dict[Place, NDArray[np.int64]] = {}
        """Rows near the best configurations: in a set of millions they take a while to find."""
        self.promise: float = np.inf
        self._outside: float = np.inf
        """What the last nomination promised."""

    # -- what it is told

    def _asked(self, place: Place) -> None:
        self._pending[place] = self._code(place)

    def _told(self, place: Place, objective: float | None) -> None:
        code = self._pending.pop(place, None)
        if code is None:
            code = self._nominees.pop(place, None)
        if code is not None:
            self._learn(place, code, objective)

    def _added(self, place: Place, objective: float | None) -> None:
        self._learn(place, self._code(place), objective)

    def _learn(self, place: Place, code: Codes, objective: float | None) -> None:
        self._places.append(place)
        self._codes.append(code)
        self._objectives.append(np.nan if objective is None else objective)

    def learn(self, results: Iterable[tuple[Configuration, float | None]], distance: float) -> None:
        """Take hints; they are another task of the model, and believed as far as they prove right."""
        task: dict[Place, float] = {}
        for configuration, objective in results:
            place = self.space.locate(configuration)
            if place is not None and objective is not None and np.isfinite(objective):
                task[place] = min(objective, task.get(place, np.inf))
        if len(task) < LEAST_HINTS:
            return
        places, objectives = list(task), np.array(list(task.values()))
        order = np.argsort(objectives, kind="stable")
        if len(order) > self.settings.hinted:
            best = self.settings.hinted // 2
            rest = self.rng.choice(order[best:], self.settings.hinted - best, replace=False)
            order = np.append(order[:best], rest)
        places = [places[i] for i in order]
        codes = np.stack([self._code(place) for place in places])
        nearness = float(np.clip(1 - 0.05 * distance, 0.5, 0.99))
        self._hints.append(Hint(places, codes, objectives[order], nearness))
        self._hints = sorted(self._hints, key=lambda hint: -hint.nearness)[:MAX_HINTS]

    def _code(self, place: Place) -> Codes:
        return np.asarray(self.features.encode(place[0], np.array([place[1]]))[0])

    # -- what it proposes

    def nominate(self, count: int) -> list[Configuration]:
        """Return what promises most beside what waits already, each with those before it."""
        nominated: list[Configuration] = []
        while len(nominated) < count and any(self.unseen):
            for place in self._promising(count - len(nominated)):
                self._see(place)
                self._nominees[place] = self._code(place)
                nominated.append(self.space.variants[place[0]].configuration(place[1]))
                self._place_of[nominated[-1]] = place
        self._outside = self.promise if any(self.unseen) else 0.0
        return nominated

    def choose(self, nominees: Sequence[Nominee]) -> Sequence[int]:
        """Rank nominees by what they promise now."""
        places = [self._place_of[nominee.configuration] for nominee in nominees]
        order, promise = list(range(len(places))), np.inf
        objectives = np.array(self._objectives)
        if np.isfinite(objectives).sum() >= ENOUGH or self._hints:
            known, best = self._settle(objectives, self._pending)
            codes = np.stack([self._nominees[place] for place in places])
            outlook = self._informed_outlook(codes, known, nominees) or self.model.outlook([codes])
            order = np.argsort(-self._improvement(outlook, best, known.unit), kind="stable").tolist()
            promise = self.promise
        # What is not compiled may promise more; of that, the last nomination was the best.
        self.promise = max(promise, self._outside)
        self._pending[places[order[0]]] = self._nominees.pop(places[order[0]])
        self._resources[places[order[0]]] = nominees[order[0]].resources
        return order

    def _informed_outlook(self, codes: Codes, known: Known, nominees: Sequence[Nominee]) -> Outlook | None:
        """Return what a model expects that also knows what the compiler said; None where the results speak against it."""
        said = [self._resources.get(place) for place in self._learnt_places]
        if not self.settings.informed or self._hints or sum(one is not None for one in said) < LEAST_SAID:
            return None
        everything = np.hstack([known.codes, resources.encode(said)])
        if self._informed_at != self._fitted_at:
            self._informed_at = self._fitted_at
            self.informed.adopt(self.model)
            alone = self.model.evidence(known.codes, known.targets)
            self._better_informed = self.informed.evidence(everything, known.targets) > alone
        if not self._better_informed:
            return None
        self.informed.condition(everything, known.targets)
        if self._pending:
            waiting = resources.encode([self._resources.get(place) for place in self._pending])
            self.informed.believe(np.hstack([np.stack(list(self._pending.values())), waiting]))
        told = resources.encode([nominee.resources for nominee in nominees])
        return self.informed.outlook([np.hstack([codes, told])])

    def withdraw(self, configuration: Configuration) -> None:
        """Forget a nomination."""
        place = self._place_of.pop(configuration)
        del self._nominees[place]
        self._unsee(place)

    def _propose(self) -> Place:
        return self._promising(1)[0]

    def _promising(self, count: int) -> list[Place]:
        """Return at least one and at most so many places, each the best if those before it come out as expected."""
        objectives = np.array(self._objectives)
        found = int(np.isfinite(objectives).sum())
        startup = self.settings.startup + len(self.space.variants) - 1
        waiting = {**self._nominees, **self._pending}
        if not self._hints and (len(objectives) + len(waiting) < startup or found < ENOUGH):
            self.promise = np.inf
            return [self._spread()]
        known, best = self._settle(objectives, waiting)
        numbers, rows = self._candidates(objectives, len(known.targets) + len(waiting))
        encoded = [self.features.encode(n, rows[numbers == n]) for n in range(len(self.space.variants))]
        outlook = self.model.outlook(encoded)
        chosen: list[int] = []
        for _ in range(min(count, len(rows))):
            if chosen:
                outlook.believe(chosen[-1])
            improvement = self._improvement(outlook, best, known.unit)
            improvement[chosen] = -np.inf
            chosen.append(int(np.argmax(improvement)))
        return [(int(numbers[place]), int(rows[place])) for place in chosen]

    def _improvement(self, outlook: Outlook, best: float, unit: float) -> Floats:
        """Return by how much each is expected to be better than the best and the margin, and note the most of it."""
        deviation = outlook.deviation
        improvement = expected_improvement(outlook.mean, deviation, best - self.settings.margin / unit)
        # Targets are in proportion to log2 of the time as far as the knee, and what is better than the best is there.
        self.promise = float(expected_improvement(outlook.mean, deviation, best).max()) * unit
        return improvement

    def _settle(self, objectives: Floats, waiting: Mapping[Place, Codes]) -> tuple[Known, float]:
        """Make the model one of all results, with what waits as it expects it; gives also the best target."""
        known = self._gather(objectives)
        self._fit(known)
        own = known.targets[known.own] if np.isfinite(objectives).any() else known.targets
        best = float(own.min())
        self.model.condition(known.codes, known.targets, known.trust, known.alike)
        if waiting:
            self.model.believe(np.stack(list(waiting.values())))
        return known, best

    def _gather(self, objectives: Floats) -> Known:
        """Return what the model learns from: what is hinted at, and results of this run, the newest last."""
        kept = self._kept(objectives)
        self._learnt_places = [self._places[i] for i in kept]
        own = objectives[kept]
        codes = np.array([self._codes[i] for i in kept], dtype=np.int64).reshape(-1, len(self.features))
        tasks, trusts, columns, everything = [], [1.0], [], []
        for number, hint in enumerate(self._hints, 1):
            everything.append(hint.codes)
            tasks.append(np.full(len(hint.codes), number))
            trusts.append(hint.trust)
            columns.append(hint.objectives - hint.shift(codes, own))
        targets, unit = standardise(np.concatenate([*columns, own]), self.settings.knee)
        of_own = np.zeros(len(own), dtype=np.int64)
        return Known(
            np.concatenate([*everything, codes]),
            targets,
            np.concatenate([*tasks, of_own]),
            np.array(trusts),
            unit,
        )

    def _fit(self, known: Known) -> None:
        count = len(self._objectives)
        if self._fitted_at >= 0 and count - self._fitted_at < max(1, int(count * self.settings.refit)):
            return
        self._fitted_at = count
        if len(known.targets) > self.settings.fitted:
            order = np.argsort(known.targets + 10.0 * ~known.own, kind="stable")
            best = self.settings.fitted // 2
            rest = self.rng.choice(order[best:], self.settings.fitted - best, replace=False)
            known = known.subset(np.append(order[:best], rest))
        # With many results a fit costs more, and the one before it is nearer.
        steps = self.settings.steps if len(known.targets) <= 60 else self.settings.steps // 3
        self.model.fit(known.codes, known.targets, steps, known.alike)
        for number, hint in enumerate(self._hints, 1):
            if count >= 3:  # fewer results cannot tell
                scores = []
                for trust in TRUSTS:
                    tried = known.trusts.copy()
                    tried[number] = trust * hint.nearness
                    alike = replace(known, trusts=tried).alike
                    assert alike is not None
                    scores.append(self.model.evidence(known.codes, known.targets, alike))
                known.trusts[number] = hint.trust = TRUSTS[int(np.argmax(scores))] * hint.nearness

    def _kept(self, objectives: Floats) -> NDArray[np.int64]:
        """Return the results that the model learns: all, or of very many the best half and others at random.

        The choice is made anew from time to time only, so that a model can be extended by what is new.
        """
        limit, count = self.settings.learnt, len(objectives)
        if count <= limit:
            return np.arange(count)
        if not len(self._basis) or len(self._basis) + count - self._based_on > 1.1 * limit:
            order = np.argsort(objectives, kind="stable")
            rest = self.rng.choice(order[limit // 2 :], limit - limit // 2, replace=False)
            self._basis, self._based_on = np.sort(np.append(order[: limit // 2], rest)), count
        return np.append(self._basis, np.arange(self._based_on, count))

    def _spread(self) -> Place:
        """Return a random configuration that is unlike those before, of a variant that was tried least."""
        tried = np.bincount(
            [p[0] for p in [*self._places, *self._pending, *self._nominees]], minlength=len(self.unseen)
        )
        tried = np.where(np.array(self.unseen) > 0, tried, np.iinfo(np.int64).max)
        number = int(self.rng.choice(np.flatnonzero(tried == tried.min())))
        rows = self._some(number, self.settings.spread)
        known = [*self._codes, *self._pending.values(), *self._nominees.values()]
        if not known or not len(self.features):
            return number, int(rows[0])
        codes, others = self.features.encode(number, rows), np.stack(known)
        apart = np.zeros((len(rows), len(others)))
        for j, distances in enumerate(self.features.distances):
            apart += distances[np.ix_(codes[:, j], others[:, j])]
        return number, int(rows[int(np.argmax(apart.min(axis=1)))])

    def _some(self, number: int, count: int) -> NDArray[np.int64]:
        """Return some unseen rows of a variant, in random order."""
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
        """Return unseen configurations to choose from, as variant and row: all, or neighbours and random ones."""
        limit = int(np.clip(self.settings.pairs // known, self.settings.least, self.settings.most))
        total = sum(self.unseen)
        numbers, rows = [], []
        if total <= limit:
            parts = [np.flatnonzero(~seen) for seen in self.seen]
        else:
            parts = [
                self._some(
                    number, min(count, -(-limit // (2 * len(self.unseen))) + limit * count // (2 * total))
                )
                if count
                else np.empty(0, dtype=np.int64)
                for number, count in enumerate(self.unseen)
            ]
            good = [self._places[i] for i in np.argsort(objectives, kind="stable")[:3]]
            good += [hint.places[0] for hint in self._hints]
            self._near = {
                place: self._near[place] if place in self._near else self._nearby(place) for place in good
            }
            for (number, _), near in self._near.items():
                found = near[~self.seen[number][near]]
                if len(found) > limit // 6:
                    found = self.rng.permutation(found)[: limit // 6]
                parts[number] = np.union1d(parts[number], found)
        for number, part in enumerate(parts):
            numbers.append(np.full(len(part), number))
            rows.append(part)
        return np.concatenate(numbers), np.concatenate(rows)

    def _nearby(self, place: Place) -> NDArray[np.int64]:
        """Return the rows that differ from a configuration in at most two parameters."""
        variant = self.space.variants[place[0]]
        return np.flatnonzero(variant.distances(variant.matrix[place[1]].astype(np.int64)) <= NEARBY)


def standardise(objectives: Floats, knee: float) -> tuple[Floats, float]:
    """Return results as targets of mean 0 and deviation 1: the slow ones compressed, a failure like the slowest.

    What is much slower than the best tells little about how the best differ, and would stretch the model.
    """
    ok = objectives[np.isfinite(objectives)]
    bend = float(np.quantile(ok, knee))
    scale = max(bend - float(ok.min()), 0.1)
    values = np.where(np.isfinite(objectives), objectives, ok.max() + FAILURE)
    over = np.maximum(values - bend, 0.0) / scale
    values = np.minimum(values, bend) + scale * np.log1p(over)
    unit = float(values.std()) or 1.0
    return (values - values.mean()) / unit, unit


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Return by how much each is expected to be below the best."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return np.asarray(deviation * (z * _below(z) + density))


def _below(z: Floats) -> Floats:
    """Return the normal distribution function, to seven decimals (Abramowitz and Stegun, 26.2.17)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    powers = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * powers
    return np.asarray(np.where(z > 0, 1 - tail, tail))
