"""The winner among contestants that are equally fast for all that one race can tell.

Two runs of a problem, with other seeds or on other cards of a model, race other finalists and see times that differ by
the noise. If the fastest won, chance would choose among all that are close. So what is within a margin of the fastest
counts as equally fast, and of these the same one wins in every run: what earlier runs chose, the most frequent choice
first; else the simplest (:mod:`tuner.space.simplicity`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.model import Configuration, Trial
from tuner.stats import equivalence_margin
from tuner.tuning.elimination import Standing

Preference = Callable[[Configuration], Any]
"""The sort key of equally fast configurations: the first is chosen."""


def preference(simplicity: Preference, won: Mapping[Configuration, int]) -> Preference:
    """Return the order in which equally fast configurations are chosen.

    Args:
        simplicity: sorts simpler ones first.
        won: how many earlier runs each was the winner of.
    """
    return lambda configuration: (-won.get(configuration, 0), simplicity(configuration))


def choose(
    fastest: int,
    contestants: Sequence[Trial],
    standings: Sequence[Standing],
    prefer: Preference,
    margin: float | None = None,
) -> int:
    """Return the preferred contestant of those that are equally fast in every standing.

    Args:
        fastest: the contestant that the others are compared with.
        contestants: of the race.
        standings: of the race in each mode that counts; the same contestants have not failed in them.
        prefer: sorts them.
        margin: of :func:`tuner.stats.equivalence_margin`.
    """
    behind = {i: standings[0].ratio(i, fastest).median for i in standings[0].groups if i != fastest}
    equal = [
        i
        for i in sorted(behind, key=lambda i: behind[i])
        if all(
            s.ratio(i, fastest).median <= 1.0 + equivalence_margin(s.noise_floor, margin) for s in standings
        )
    ]
    return min([fastest, *equal], key=lambda i: prefer(contestants[i].configuration))
