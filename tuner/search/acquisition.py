"""How much a candidate is expected to improve on the best, by a normal distribution of its objective."""

from __future__ import annotations

import numpy as np

from tuner.search.features import Floats

TAIL = -2.0
"""Deviations below the best where the expected improvement is computed as a tail."""
FRACTION_DEPTH = 20
"""Of the tail's continued fraction: eleven digits at :data:`TAIL`, more beyond."""


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
