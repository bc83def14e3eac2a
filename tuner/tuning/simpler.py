"""The last trials of a search: what is simpler than its best, and perhaps as fast.

Of equally fast configurations the simplest wins, and another run can choose the same one only if it has tried it, too.
A search goes where it expects gains, and two searches end in different corners of what is equally fast. From there both
find the same simplest one more often if they try what lies between the best and the nearest initial configuration.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from tuner.model import Configuration, Value
from tuner.space.simplicity import distance
from tuner.space.space import SearchSpace
from tuner.stats import EQUIVALENT
from tuner.tuning.decision import Preference

CLOSING = 12
"""Trials at the end of a run's budget in which simpler configurations go first."""
CLOSING_SHARE = 0.1
"""Of a small budget."""


def closing_trials(trials: int) -> int:
    """Return how many of a run's last trials go to simpler configurations first."""
    return min(CLOSING, int(CLOSING_SHARE * trials))


def simpler_configurations(
    space: SearchSpace,
    times_ns: Mapping[Configuration, float],
    known: Collection[Configuration],
    simplicity: Preference,
    margin: float | None = None,
) -> list[Configuration]:
    """Return what is simpler than the best and was not tried; the simplest first.

    These are the nearest of the known configurations with one value of the fastest, unless that one is fast enough
    itself. If none is of the fastest's variant, these are the simpler neighbours of the simplest of the fastest.

    Args:
        space: of the search.
        times_ns: of what was tried in this run; infinite where it failed.
        known: the default and the initial configurations.
        simplicity: sorts simpler configurations first.
        margin: how much slower than the fastest they may be; None for :data:`EQUIVALENT`.
    """
    timed = {one: time_ns for one, time_ns in times_ns.items() if math.isfinite(time_ns)}
    if not timed:
        return []
    fastest = min(timed, key=lambda one: timed[one])
    limit_ns = timed[fastest] * (1 + (EQUIVALENT if margin is None else margin))
    near = [one for one in known if one.variant == fastest.variant and one in timed]
    if near:
        base = min(near, key=lambda one: distance(one, fastest))
        simpler = [_with(base, name, value) for name, value in fastest.parameters if timed[base] > limit_ns]
    else:
        base = min((one for one, time_ns in timed.items() if time_ns <= limit_ns), key=simplicity)
        (variant,) = (variant for variant in space.variants if variant.name == base.variant)
        neighbours = (_with(base, one.name, value) for one in variant.parameters for value in one.values)
        simpler = [one for one in neighbours if simplicity(one) < simplicity(base)]
    return [one for one in sorted(simpler, key=simplicity) if one not in times_ns and space.contains(one)]


def _with(configuration: Configuration, name: str, value: Value) -> Configuration:
    return Configuration.of(configuration.variant, {**configuration.values, name: value})
