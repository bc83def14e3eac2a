"""Draws the configurations that a model compares before it proposes one: a space may have millions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.search.base import Location, SpaceSampler
from tuner.search.features import Codes, Features

NEARBY = 2
"""Parameters in which a configuration near a good one may differ."""

Rows = NDArray[np.int64]


class Candidates:
    """Draws unseen configurations of a sampler's space.

    Args:
        sampler: whose space, random numbers and seen configurations.
        features: of the space.
    """

    def __init__(self, sampler: SpaceSampler, features: Features) -> None:
        self._sampler, self._features = sampler, features
        self._near: dict[Location, Rows] = {}
        """Rows near the best configurations: in a set of millions they take a while to find."""

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
