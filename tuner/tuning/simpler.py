"""The last trials of a search: what is simpler than its best, and perhaps as fast.

Of equally fast configurations the simplest wins, and another run can choose the same one only if it has tried it, too.
A search goes where it expects gains, and two searches end in different corners of what is equally fast. From there both
find the same simplest one more often if they try what is on the way to an initial configuration, which both have.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from tuner.model import Configuration
from tuner.space.simplicity import distance
from tuner.space.space import SearchSpace
from tuner.stats import EQUIVALENT
from tuner.tuning.decision import Preference

CLOSING = 12
"""Trials at the end of a run's budget in which simpler configurations go first; twice as many gained nothing in worlds
that were fitted to two runs of 20 products on an H200."""
CLOSING_SHARE = 0.1
"""Of a small budget."""


def closing_trials(trials: int) -> int:
    """Return how many of a run's last trials go to simpler configurations first."""
    return min(CLOSING, int(CLOSING_SHARE * trials))


def simpler_configurations(
    space: SearchSpace,
    times_ns: Mapping[Configuration, float],
    initial: Collection[Configuration],
    simplicity: Preference,
    margin: float | None = None,
) -> list[Configuration]:
    """Return what to try next to find the simplest of the fastest.

    Args:
        space: of the search.
        times_ns: of what was tried; infinite where it failed.
        initial: configurations that were tried first.
        simplicity: sorts simpler configurations first.
        margin: how much slower than the fastest they may be; None for :data:`EQUIVALENT`.
    """
    if not times_ns:
        return []
    fastest = min(times_ns, key=lambda c: times_ns[c])
    limit_ns = times_ns[fastest] * (1 + (EQUIVALENT if margin is None else margin))
    known = [c for c in initial if c.variant == fastest.variant and c in times_ns]
    if known:
        nearest = min(known, key=lambda c: distance(c, fastest))
        return _on_the_way(space, times_ns, nearest, fastest, limit_ns)
    base = min((c for c, time_ns in times_ns.items() if time_ns <= limit_ns), key=simplicity)
    return _simpler_neighbours(space, times_ns, base, simplicity)


def _on_the_way(
    space: SearchSpace,
    times_ns: Mapping[Configuration, float],
    start: Configuration,
    fastest: Configuration,
    limit_ns: float,
) -> list[Configuration]:
    """Return the next steps of a way on which one value after the other becomes the fastest's.

    Each step is the best of those that are possible; the way ends within the limit.
    """
    while times_ns[start] > limit_ns:
        steps = [
            Configuration.of(start.variant, {**start.values, name: value})
            for name, value in fastest.parameters
            if value != start.values[name]
        ]
        steps = [step for step in steps if space.contains(step)]
        untried = [step for step in steps if step not in times_ns]
        if untried or not steps:
            return untried
        start = min(steps, key=lambda step: times_ns[step])
        if math.isinf(times_ns[start]):
            return []
    return []


def _simpler_neighbours(
    space: SearchSpace,
    times_ns: Mapping[Configuration, float],
    base: Configuration,
    simplicity: Preference,
) -> list[Configuration]:
    """Return what is simpler than a configuration, and differs in one value from it; the simplest first."""
    (variant,) = (variant for variant in space.variants if variant.name == base.variant)
    values = base.values
    neighbours = (
        Configuration.of(base.variant, {**values, parameter.name: value})
        for parameter in variant.parameters
        for value in parameter.values
        if value != values[parameter.name]
    )
    simpler = [c for c in neighbours if simplicity(c) < simplicity(base) and c not in times_ns]
    return [c for c in sorted(simpler, key=simplicity) if space.contains(c)]
