"""The score of Willemsen et al.: how far a search is between random order and the best, on average over a budget.

"A methodology for comparing optimization algorithms for auto-tuning", Future Generation Computer Systems 159, 2024. The
budget of a space ends where random order is expected to be within 5 % of the way from the median to the best, here at
the latest with the evaluations of the runs. Score 0 is random order, 1 is the best at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
CUTOFF = 0.95


def of_random_order(times: Times, count: int) -> Times:
    """Return the expected best after 1 to ``count`` draws without replacement; a failure has the median time."""
    ranked = np.sort(np.where(np.isnan(times), np.nanmedian(times), times))
    size = len(ranked)
    worse = size - np.arange(1, size, dtype=float)  # than each but the last
    none_better, expected = np.ones(size - 1), np.empty(min(count, size))
    for drawn in range(len(expected)):
        none_better *= np.maximum(worse - drawn, 0.0) / (size - drawn)
        expected[drawn] = ranked[0] + np.diff(ranked) @ none_better
    return expected


def score(times: Times, trajectories: Sequence[Sequence[float]], count: int) -> float:
    """Return the score of some runs on a space.

    Args:
        times: of all of its configurations, not a number for a failure.
        trajectories: of each run the best time after each evaluation, infinite before the first; one that ends early
            has found the best.
        count: evaluations of a run, at most.
    """
    best, middle = float(np.nanmin(times)), float(np.nanmedian(times))
    expected = of_random_order(times, count)
    reached = np.flatnonzero(expected <= middle - CUTOFF * (middle - best))
    budget = int(reached[0]) + 1 if len(reached) else len(expected)
    found = np.full((len(trajectories), budget), best)
    for row, trajectory in zip(found, trajectories, strict=True):
        part = np.array(trajectory[:budget])
        row[: len(part)] = np.where(np.isinf(part), middle, part)
    gap = expected[:budget] - best
    of_mean = (expected[:budget] - found.mean(axis=0))[gap > 0] / gap[gap > 0]
    return float(of_mean.mean()) if len(of_mean) else 1.0
