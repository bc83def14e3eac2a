"""The winner of a race: not the fastest at any price, but one that another run would choose as well.

Two runs of a problem, with other seeds or on other cards of a model, race other finalists and see times that differ by
the noise. If the fastest won, chance would choose among all that are close. So a configuration must be faster by a
margin for each value in which it differs from what both runs have tried, the default and the initial configurations.
Where two modes count, so does the mean of its ratios in both (the geometric one). So whether a third is in the race
changes nothing but noise between two that are close to the fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from tuner.core.model import Configuration, Trial
from tuner.kernel.default import Simplicity
from tuner.tuning.elimination import Standing

MARGIN = 0.0075
"""How much faster, as a share, a configuration must be for each value that differs; the noise floor if that is higher.
Two simulated runs on recorded spaces (scripts/same_table.py simulate --margin), on cards that deviate by 0.1 %, chose
the same one in 88 % with 0.5 %, and 93 % with 0.75 %; winners were 0.19 and 0.23 % slower than the best."""
MOST = 4
"""Margins by which a winner may be slower than the fastest."""
WINS = 2
"""Earlier wins that count, each as one margin. Values that differ do not count for an earlier winner."""
PLACES = 4
"""Places in the order of earlier winners, from the simplest on, that count one margin: of two that are equally fast and
have won as often, the same one wins again. Two of an H100 were 0.15 % apart on two cards, one faster on each. Each of
the four that race again (``KNOWN_WINNERS``) still has some of a margin before what is new."""

Preference = Callable[[Configuration], tuple[float, *tuple[object, ...]]]
"""Of a configuration the number of margins by which it must be faster, and what settles a tie: the first wins."""


def alike(_: Configuration) -> tuple[float, *tuple[object, ...]]:
    """Return no preference: the fastest wins."""
    return (0.0,)


def preference(
    simplicity: Callable[[Configuration], Simplicity], won: Mapping[Configuration, int]
) -> Preference:
    """Return which configurations are preferred.

    Args:
        simplicity: sorts simpler ones first; says first in how many values one differs, with a part for a place.
        won: how many earlier runs each was the winner of.
    """

    places = {known: place for place, known in enumerate(sorted(won, key=simplicity))}

    def prefer(configuration: Configuration) -> tuple[float, *tuple[object, ...]]:
        differing, *ties = simplicity(configuration)
        if wins := won.get(configuration, 0):
            return (places[configuration] / PLACES - min(wins, WINS), *ties)
        return (differing, *ties)

    return prefer


def margin_of(noise_floor: float, margin: float | None = None) -> float:
    """Return how much faster a contestant must be for each value that differs, as a share.

    Args:
        noise_floor: of the times; 0 where nothing is known of it: then only the time counts.
        margin: what it is at least; None for :data:`MARGIN`.
    """
    return max(noise_floor, MARGIN if margin is None else margin) if noise_floor else 0.0


def penalized(time: float, preferred: tuple[float, *tuple[object, ...]], margin: float) -> tuple[object, ...]:
    """Return a time, or a ratio, with its margins, and what settles a tie: the least wins."""
    return time * (1.0 + margin * preferred[0]), *preferred[1:]


def choose(
    contestants: Sequence[Trial],
    standings: Sequence[Standing],
    prefer: Preference,
    margin: float | None = None,
) -> int:
    """Return the contestant that wins.

    Args:
        contestants: of the race.
        standings: of the race in each mode that counts, the run's first; the same contestants have not failed in them.
        prefer: says what each has to gain.
        margin: of :func:`margin_of`.
    """
    fastest = standings[0].left[0]
    floors = [standing.noise_floor for standing in standings]
    noise_floor = max(floors) if all(floors) else 0.0
    step = margin_of(noise_floor, margin)

    def behind(i: int) -> float:
        if i == fastest:
            return 1.0
        if (
            len(standings) == 1
        ):  # an eliminated one had fewer rounds, and is not faster; in the other mode it may be
            return max(1.0, standings[0].ratio(i, fastest).median)
        return prod(standing.ratio(i, fastest).median for standing in standings) ** (1 / len(standings))

    ratios = {i: behind(i) for i in standings[0].groups}
    best = min(ratios, key=lambda i: (ratios[i], i != fastest))
    limit = 1.0 + max(noise_floor, MOST * (MARGIN if margin is None else margin))
    close = [i for i in ratios if ratios[i] <= limit * ratios[best]] if step else [best]
    return min(close, key=lambda i: penalized(ratios[i], prefer(contestants[i].configuration), step))
