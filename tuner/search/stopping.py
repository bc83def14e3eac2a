"""The stopping criterion: a search ends when the gain that it still expects is below the noise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from tuner.search.base import objective_of

PATIENCE = 40
"""Proposals in a row; see docs/searching.md for what others cost."""
LEAST, CALM_S = 20, 60.0
"""So many are enough once they have taken so long: where each takes seconds, more would cost more than they gain."""


@dataclass(frozen=True)
class Stopped:
    """Why nothing more is worth trying."""

    expected: float
    """The share of the best time that the best candidate was expected to save, on average over the noise."""
    noise_floor: float
    """How far from 1 the ratio of two equal kernels of the best time may be."""
    patience: int
    """For so many proposals in a row the first was below the second."""


class StoppingCriterion:
    """Follows a search, and says when it has converged.

    It goes by what the search was told, in that order, and so does not depend on the order of a device's answers.

    Args:
        noise_floor: of a time in nanoseconds.
        patience: how many proposals in a row must be expected to gain less.
        clock: returns seconds.
    """

    def __init__(
        self,
        noise_floor: Callable[[float], float],
        patience: int = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.noise_floor = noise_floor
        self.patience = patience
        self._clock, self._calm_since = clock, math.inf
        self._best = math.inf
        """Base-2 logarithm of the best time."""
        self._calm = 0
        self._expected = math.inf

    @property
    def reached(self) -> Stopped | None:
        """Why nothing more is worth trying; None while something is, or may be."""
        long = self._calm >= LEAST and self._clock() - self._calm_since >= CALM_S
        if self._calm < self.patience and not long:
            return None
        return Stopped(self._expected, self._floor(), min(self._calm, self.patience))

    def proposed(self, expected_improvement: float | None) -> None:
        """Note a proposal.

        Args:
            expected_improvement: as :class:`tuner.search.base.Expecting` has it, after the proposal.
        """
        self._expected = math.inf
        if (
            expected_improvement is not None
            and math.isfinite(expected_improvement)
            and math.isfinite(self._best)
        ):
            self._expected = -math.expm1(-math.log(2) * expected_improvement)
        self._calm = self._calm + 1 if self._expected < self._floor() else 0
        if self._calm <= 1:
            self._calm_since = self._clock()

    def told(self, time_ns: float | None) -> None:
        """Note a result, or None for a failure.

        A result that is better than the best by more than the noise starts the count again: with several proposals
        under way any of them may be a surprise.
        """
        objective = objective_of(time_ns)
        if objective is None or objective >= self._best:
            return
        if math.isfinite(self._best) and 1 - 2 ** (objective - self._best) > self._floor():
            self._calm = 0
        self._best = objective

    def _floor(self) -> float:
        return self.noise_floor(2**self._best) if math.isfinite(self._best) else 0.0
