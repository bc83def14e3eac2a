"""The last trials of a search: the neighbours of its best that are simpler.

Of equally fast configurations the simplest wins, and another run can choose the same one only if it has tried it, too.
A search goes where it expects gains, and two searches end in different corners of what is equally fast; from there both
find the same simplest one more often if they try what it is next to.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.model import Configuration
from tuner.space.space import SearchSpace
from tuner.stats import EQUIVALENT
from tuner.tuning.decision import Preference

CLOSING = 12
"""Trials at the end of a run's budget in which simpler neighbours go first; on recorded spaces one or two are used."""
CLOSING_SHARE = 0.1
"""Of a small budget."""


def closing_trials(trials: int) -> int:
    """Return how many of a run's last trials go to simpler neighbours first."""
    return min(CLOSING, int(CLOSING_SHARE * trials))


def simpler_neighbours(
    space: SearchSpace,
    times_ns: Mapping[Configuration, float],
    simplicity: Preference,
    margin: float | None = None,
) -> list[Configuration]:
    """Return what is simpler than the simplest of the fastest, and differs in one value from it; the simplest first.

    Args:
        space: of the search.
        times_ns: what was told of it.
        simplicity: sorts simpler configurations first.
        margin: how much slower than the fastest they may be; None for :data:`EQUIVALENT`.
    """
    if not times_ns:
        return []
    limit = min(times_ns.values()) * (1 + (EQUIVALENT if margin is None else margin))
    base = min((c for c, time_ns in times_ns.items() if time_ns <= limit), key=simplicity)
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
