"""Keeps a search near the configurations that it begins with, as long as these are good.

Initial configurations come from those who know the kernel, and from earlier runs. Where one of them is among the best,
what differs from it in few values is more likely to be good than what differs in many, which the model alone learns
only slowly. And what lies near is what another run tries, too, so that both more often find the same winner.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from tuner.kernel.space import SearchSpace
from tuner.search.base import Location
from tuner.search.features import Floats

GOOD = 0.1375
"""How far behind the best, in log2 of the time, an initial configuration may be: 10 %."""
PENALTY = 2.0
"""Taken off the logarithm of the expected improvement for each value that differs from the nearest good one. Chosen on
models of 40 searches: with 1 two runs chose the same less often, and their winners were slower; 4 did no better."""
FARTHEST = 8
"""Values that count, at most."""
UNRELATED = 4
"""Values that count for variants that have no good initial configuration."""


class Nearness:
    """The penalty of each configuration.

    Args:
        space: of the search.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._distances: dict[Location, NDArray[np.int16]] = {}
        """For an initial configuration, in how many values each row of its variant differs from it."""

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
        apart = np.min([self._apart(location)[rows] for location in own], axis=0)
        return np.asarray(PENALTY * np.minimum(apart, FARTHEST))

    def _apart(self, location: Location) -> NDArray[np.int16]:
        if location not in self._distances:
            variant = self._space.variants[location[0]]
            self._distances[location] = variant.distances(variant.matrix[location[1]].astype(np.int64))
        return self._distances[location]
