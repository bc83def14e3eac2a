"""The candidates for a proposal: draws them, for a space may have millions, and says what each is worth.

A candidate is worth how much it is expected to improve on the best, less a penalty for what is far away. The penalty
keeps a search near the configurations that it begins with, as long as these are good. Initial configurations come from
those who know the kernel, and from earlier runs. Where one of them is among the best, what differs from it in few
values is more likely to be good than what differs in many, which the model alone learns only slowly. And what lies
near is what another run tries, too, so that both more often find the same winner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.search.base import Location, SpaceSampler
from tuner.search.features import Codes, Features, Floats

NEARBY = 2
"""Parameters in which a configuration near a good one may differ."""
GOOD = 0.1375
"""How far behind the best, in log2 of the time, an initial configuration may be: 10 %."""
PENALTY = 2.0
"""Taken off the logarithm of the expected improvement for each value that differs from the nearest good one. Chosen on
models of 40 searches: with 1 two runs chose the same less often, and their winners were slower; 4 did no better."""
FARTHEST = 8
"""Values that count, at most."""
UNRELATED = 4
"""Values that count for variants that have no good initial configuration."""
TAIL = -2.0
"""Deviations below the best where the expected improvement is computed as a tail."""
FRACTION_DEPTH = 20
"""Of the tail's continued fraction: eleven digits at :data:`TAIL`, more beyond."""

Rows = NDArray[np.int64]


class Candidates:
    """Draws unseen configurations of a sampler's space, and says what is taken off those that are far away.

    Args:
        sampler: whose space, random numbers and seen configurations.
        features: of the space.
    """

    def __init__(self, sampler: SpaceSampler, features: Features) -> None:
        self._sampler, self._features = sampler, features
        self._near: dict[Location, Rows] = {}
        """Rows near the best configurations: in a set of millions they take a while to find."""
        self._apart_from: dict[Location, NDArray[np.int16]] = {}
        """For an initial configuration, in how many values each row of its variant differs from it."""

    def near_and_random(self, good: Iterable[Location], limit: int) -> list[Rows]:
        """Return for each variant unseen rows: all, or neighbours of good configurations and random ones.

        Args:
            good: the best configurations so far, the best first.
            limit: about how many rows are returned.
        """
        unseen, seen = self._sampler.unseen, self._sampler.seen
        total = sum(unseen)
        if total <= limit:
            return [np.flatnonzero(~mask) for mask in seen]
        shares = [-(-limit // (2 * len(unseen))) + limit * count // (2 * total) for count in unseen]
        parts = [
            self.random(number, min(count, share)) if count else np.empty(0, dtype=np.int64)
            for number, (count, share) in enumerate(zip(unseen, shares, strict=True))
        ]
        self._near = {
            location: self._near[location] if location in self._near else self._neighbours(location)
            for location in good
        }
        for (number, _), rows in self._near.items():
            rows = rows[~seen[number][rows]]
            if len(rows) > limit // 6:
                rows = self._sampler.rng.permutation(rows)[: limit // 6]
            parts[number] = np.union1d(parts[number], rows)
        return parts

    def farthest(self, number: int, others: Sequence[Codes], count: int) -> int:
        """Return the one of ``count`` random unseen rows of a variant that is least like other configurations."""
        rows = self.random(number, count)
        if not others or not len(self._features):
            return int(rows[0])
        codes, other_codes = self._features.encode(number, rows), np.stack(others)
        apart = np.zeros((len(rows), len(others)))
        for j, distances in enumerate(self._features.distances):
            apart += distances[np.ix_(codes[:, j], other_codes[:, j])]
        return int(rows[int(np.argmax(apart.min(axis=1)))])

    def random(self, number: int, count: int) -> Rows:
        """Return some unseen rows of a variant, in random order."""
        rng, seen = self._sampler.rng, self._sampler.seen[number]
        if self._sampler.unseen[number] <= 4 * count:
            return rng.permutation(np.flatnonzero(~seen))[:count]
        # Few of very many: drawn with those that were seen, which are left out afterwards.
        drawn = np.unique(rng.integers(len(seen), size=2 * count))
        drawn = drawn[~seen[drawn]]
        if len(drawn) < count // 2:
            drawn = np.flatnonzero(~seen)
        return rng.permutation(drawn)[:count]

    def _neighbours(self, location: Location) -> Rows:
        """Return the rows that differ from a configuration in at most two parameters."""
        variant = self._sampler.space.variants[location[0]]
        return np.flatnonzero(variant.distances(variant.matrix[location[1]].astype(np.int64)) <= NEARBY)

    def penalty(self, number: int, rows: NDArray[np.int64], initial: Collection[Location]) -> Floats:
        """Return what is taken off the logarithm of the expected improvement of some rows of a variant.

        Args:
            number: of the variant.
            rows: in it.
            initial: the initial configurations that are good; without any nothing is taken off.
        """
        if not initial:
            return np.zeros(len(rows))
        own = [location for location in initial if location[0] == number]
        if not own:
            return np.full(len(rows), PENALTY * UNRELATED)
        apart = np.min([self.apart(location)[rows] for location in own], axis=0)
        return np.asarray(PENALTY * np.minimum(apart, FARTHEST))

    def apart(self, location: Location) -> NDArray[np.int16]:
        """Return in how many values each row of a configuration's variant differs from it."""
        if location not in self._apart_from:
            variant = self._sampler.space.variants[location[0]]
            self._apart_from[location] = variant.distances(variant.matrix[location[1]].astype(np.int64))
        return self._apart_from[location]


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Return by how much each is expected to be below the best (Jones et al., 1998, equation 15); never negative."""
    return np.asarray(deviation * np.exp(_log_standard((best - mean) / deviation)))


def log_expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Return the logarithm of :func:`expected_improvement`, which still ranks candidates whose own is 0 in floats.

    Ament, Daulton, Eriksson, Balandat and Bakshy, "Unexpected Improvements to Expected Improvement for Bayesian
    Optimization", NeurIPS 2023.
    """
    return np.asarray(np.log(deviation) + _log_standard((best - mean) / deviation))


def _log_standard(z: Floats) -> Floats:
    """Return the logarithm of ``z * cdf(z) + density(z)``, for a normal distribution.

    Far below the mean the two terms cancel. There Laplace's continued fraction of the ratio of tail and density,
    ``1 / (x + k)`` with ``k = 1 / (x + 2 / (x + 3 / ...))``, turns it into ``density * k / (x + k)``.
    """
    near = np.maximum(z, TAIL)
    density = np.exp(-0.5 * near * near) / np.sqrt(2 * np.pi)
    values = np.log(near * _normal_cdf(near) + density)
    if len(far := np.flatnonzero(z < TAIL)):
        x = -z[far]
        rest = np.zeros_like(x)
        for term in range(FRACTION_DEPTH, 0, -1):
            rest = term / (x + rest)
        values[far] = -0.5 * x * x - 0.5 * np.log(2 * np.pi) + np.log(rest) - np.log(x + rest)
    return np.asarray(values)


def _normal_cdf(z: Floats) -> Floats:
    """Return the normal distribution function, to seven decimals (Abramowitz and Stegun, 26.2.17)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    powers = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * powers
    return np.asarray(np.where(z > 0, 1 - tail, tail))
