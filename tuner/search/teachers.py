"""Other tasks: what their results lead one to expect here, from which the model of this task's results departs.

A model of each task's results says how fast every configuration is there. The results of this task are modelled as
that much, by as many of the tasks as they confirm, and a Gaussian process over the rest. So what is known elsewhere
costs a proposal no more than to be looked up, and a task that turns out to be unlike this one counts for nothing.

Golovin, Solnik, Moitra, Kochanski, Karro and Sculley, "Google Vizier: A Service for Black-Box Optimization", KDD 2017,
stack models so (section 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.search.base import Location
from tuner.search.features import Codes, Features, Floats
from tuner.search.gaussian_process import GaussianProcess

STEPS = 20
"""BFGS steps of the fit of another task's model, which is fitted once."""
AT_A_TIME = 2000
"""Configurations whose expectation is computed at a time: the covariances with a task's results take 2 MB."""
NEAREST, FARTHEST, PER_UNIT = 0.99, 0.5, 0.05
"""The most that two tasks can be correlated: the nearest ones, the farthest, and what a distance of 1 takes away."""
DOUBTS = 3.0
"""So many results stand for what is assumed of a task before there are any here."""
SHARES = (1.0, 0.5)
"""Of what is expected by others, which this task may follow; beside nothing of it."""
MIN_JUDGED = 3
"""Results of this task without which all others count alike."""
SCEPTICISM = 2.0
"""Logarithm of the prior odds that no task is followed.

After three results one is often a little more probable than none. A search on gemm 1024 that followed gemm 2048 for
that took 23 and 24.5 evaluations (bfloat16 nn and nt, medians of 120 seeds), so it takes 14.5 and 14, and untaught 14
and 16.5 (results/evidence/search-tried.txt)."""

Numbers = NDArray[np.int64]


class Teacher:
    """The results of another task.

    Args:
        features: of this task's space.
        model: for them; it is fitted.
        locations: of the results in this space, best first.
        codes: theirs.
        values: theirs, as :func:`compressed` returns them.
        distance: how unlike the task is.
    """

    def __init__(
        self,
        features: Features,
        model: GaussianProcess,
        locations: Sequence[Location],
        codes: Codes,
        values: Floats,
        distance: float,
    ) -> None:
        self.best, self.size = locations[0], len(locations)
        self._features, self._model = features, model
        self._unit = float(values.std()) or 1.0
        targets = (values - values.mean()) / self._unit
        model.fit(codes, targets, STEPS)
        model.condition(codes, targets)
        correlation = min(NEAREST, max(FARTHEST, 1 - PER_UNIT * distance))
        self.doubt = self._unit * float(np.sqrt(1 - correlation**2))
        """How far, in log2, the times here are expected to be from those there."""
        self._known = [np.full(len(variant), np.nan) for variant in features.space.variants]

    def expected(self, numbers: Numbers, rows: Numbers) -> Floats:
        """Return log2 of the time of configurations there, but for a constant."""
        values = np.empty(len(rows))
        for number in np.unique(numbers):
            known, of_variant = self._known[number], rows[numbers == number]
            new = np.unique(of_variant[np.isnan(known[of_variant])])
            for part in np.split(new, range(AT_A_TIME, len(new), AT_A_TIME)):
                known[part] = self._unit * self._model.mean(self._features.encode(int(number), part))
            values[numbers == number] = known[of_variant]
        return values


@dataclass(frozen=True)
class Observed:
    """Results of this task, as the model learns them.

    Args:
        targets: how far each is from what others lead one to expect, with the deviation 1.
        unit: log2 of the time for one unit of the targets.
        middle: log2 of the time where the targets are 0 and nothing is expected.
    """

    targets: Floats
    unit: float
    middle: float


class Teachers:
    """Other tasks, and how far this one follows each."""

    def __init__(self) -> None:
        self._all: list[Teacher] = []
        self._weights: Floats = np.empty(0)

    def __bool__(self) -> bool:
        """Return whether one is followed; once none is, none will be."""
        return bool(self._weights.any())

    def add(self, teacher: Teacher) -> None:
        """Learn from another task, too; as long as no results say otherwise, all count alike."""
        self._all.append(teacher)
        self._weights = np.full(len(self._all), 1 / len(self._all))

    @property
    def best(self) -> list[Location]:
        """The best configuration of each."""
        return [teacher.best for teacher in self._all]

    @property
    def size(self) -> int:
        """Results of all of them."""
        return sum(teacher.size for teacher in self._all)

    def expected(self, numbers: Numbers, rows: Numbers) -> Floats:
        """Return log2 of the time that is expected of configurations, but for a constant."""
        return self._by(self._weights, numbers, rows)

    def observe(self, values: Floats, numbers: Numbers, rows: Numbers) -> Observed:
        """Return results of this task, beside what is expected of them."""
        return self._observed(self._weights, values, numbers, rows)

    def judge(
        self, model: GaussianProcess, codes: Codes, values: Floats, numbers: Numbers, rows: Numbers
    ) -> None:
        """Follow those tasks, and as far, under which the results of this one are the most probable.

        One that was dropped would come back for what it rightly says of slow configurations, and mislead among the
        fast: the worst of 31 pairs of recorded tasks took 1.15 of the untaught evaluations, without that 1.05
        (results/evidence/search-tried.txt).
        """
        if not self or len(values) < MIN_JUDGED:
            return
        count = len(self._all)
        following = [np.full(count, 1 / count), *(np.eye(count) if count > 1 else ())]
        weights = [np.zeros(count), *(share * one for share in SHARES for one in following)]
        scores = []
        for one in weights:
            observed = self._observed(one, values, numbers, rows)
            scores.append(model.evidence(codes, observed.targets) - len(values) * np.log(observed.unit))
        scores[0] += SCEPTICISM
        self._weights = weights[int(np.argmax(scores))]

    def _by(self, weights: Floats, numbers: Numbers, rows: Numbers) -> Floats:
        total = np.zeros(len(rows))
        for weight, teacher in zip(weights, self._all, strict=True):
            if weight:
                total += weight * teacher.expected(numbers, rows)
        return total

    def _observed(self, weights: Floats, values: Floats, numbers: Numbers, rows: Numbers) -> Observed:
        rest = values - self._by(weights, numbers, rows)
        spread = float(((rest - rest.mean()) ** 2).sum())
        count = float(len(rest))
        if weights.any():
            doubt = float(np.mean([teacher.doubt for teacher in self._all]))
            spread, count = spread + DOUBTS * doubt**2, count + DOUBTS
        unit = float(np.sqrt(spread / count)) or 1.0
        return Observed((rest - rest.mean()) / unit, unit, float(rest.mean()))


def compressed(objectives: Floats, knee: float, failure: float) -> Floats:
    """Return log2 of times, the slow ones compressed.

    A result much slower than the best says little about how the best differ, and would stretch the model.

    Args:
        objectives: log2 of times, NaN for failures; at least one is finite.
        knee: results worse than this quantile are compressed.
        failure: by how much a failure counts as slower than the slowest result.
    """
    ok = objectives[np.isfinite(objectives)]
    bend = _quantile(ok, knee)
    scale = max(bend - float(ok.min()), 0.1)
    values = np.where(np.isfinite(objectives), objectives, ok.max() + failure)
    return np.asarray(np.minimum(values, bend) + scale * np.log1p(np.maximum(values - bend, 0.0) / scale))


def _quantile(values: Floats, share: float) -> float:
    """Return what np.quantile returns, in a twentieth of its time: it is asked twice a trial."""
    ordered = np.sort(values)
    place = share * (len(ordered) - 1)
    before = int(place)
    low, high = float(ordered[before]), float(ordered[min(before + 1, len(ordered) - 1)])
    part = place - before
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1.0 - part)
