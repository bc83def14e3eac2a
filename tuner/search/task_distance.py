"""The distance of two problems, as far as the speed of configurations is concerned."""

from __future__ import annotations

import math

from tuner.core.model import Run

OTHER_GPU = 4.0
OTHER_DTYPE = 3.0
OTHER_OPTION = 1.0
DOUBLED_SIZE = 0.25
"""A size twice as large; each of them counts, up to a factor of 64."""
NEAREST, FARTHEST, PER_UNIT = 0.99, 0.5, 0.05
"""The most that two tasks can be correlated: the nearest ones, the farthest, and what a distance of 1 takes away."""


def distance(run: Run, other: Run) -> float:
    """Return how unlike this problem the problem of another run of the same kernel is, from 0 on."""
    a, b = run.problem, other.problem
    total = OTHER_GPU * (run.gpu.name != other.gpu.name)
    total += OTHER_DTYPE * (a.dtypes != b.dtypes)
    total += OTHER_OPTION * sum(a.options.get(n) != b.options.get(n) for n in {*a.options, *b.options})
    for name, size in a.sizes.items():
        ratio = math.log2(max(size, 1) / max(b.sizes.get(name, size), 1))
        total += DOUBLED_SIZE * min(abs(ratio), 6.0)
    return total


def correlation_limit(apart: float) -> float:
    """Return the most that two tasks at a distance can be correlated."""
    return min(NEAREST, max(FARTHEST, 1 - PER_UNIT * apart))
