"""The winner of a race: no finalist is faster than it beyond the noise; of those that are tied the simplest wins.

A finalist is tied with the fastest if its time is longer by at most the noise floor, and by no more than
:data:`SIMPLER_WITHIN`, and none is surely faster than it.
Where two modes count, its time over another's is the geometric mean of the ratios in both.

With a margin (``--margin``) the winner may be slower, so that another run chooses it as well. Two runs of a problem,
with other seeds or on other cards of a model, race other finalists and see times that differ by the noise. So then a
configuration must be faster by the margin for each value in which it differs from what both runs have tried, the
default and the initial configurations; and earlier winners are preferred.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from tuner.core.model import Configuration, Trial
from tuner.core.stats import Ratio, Verdict, verdict
from tuner.kernel.default import Simplicity
from tuner.tuning.elimination import Standing

MOST = 4
"""Margins by which a winner may be slower than the fastest."""
SIMPLER_WITHIN = 0.005
"""What a simpler one may lose. Without this bound an addition of 2^20 floats, whose noise floor is above 1 %, was won
by one 0.94 % slower than the fastest in fresh processes (H100); with it no winner of 20 problems is more than 0.2 %
behind (results/evidence/winners.json)."""
WINS = 2
"""Earlier wins that count, each as one margin. Values that differ do not count for an earlier winner."""
PLACES = 4
"""Places in the order of earlier winners, from the simplest on, that count one margin: of two that are equally fast and
have won as often, the same one wins again. Two of an H100 were 0.15 % apart on two cards, one faster on each. Each of
the four that race again (``KNOWN_WINNERS``) still has some of a margin before what is new."""

Preference = Callable[[Configuration], tuple[float, *tuple[object, ...]]]
"""Of a configuration what settles a tie: the least wins. The first element is the number of margins by which it must be
faster."""


def alike(_: Configuration) -> tuple[float, *tuple[object, ...]]:
    """Return no preference: the fastest wins."""
    return (0.0,)


def preference(
    simplicity: Callable[[Configuration], Simplicity], won: Mapping[Configuration, int]
) -> Preference:
    """Return which configurations are preferred by a margin.

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


def margin_of(noise_floor: float, margin: float) -> float:
    """Return how much faster a contestant must be for each value that differs, as a share; 0 where only time counts.

    Args:
        noise_floor: of the times; 0 where nothing is known of it.
        margin: what it is at least; 0 for none.
    """
    return max(noise_floor, margin) if noise_floor and margin else 0.0


def penalized(time: float, preferred: tuple[float, *tuple[object, ...]], margin: float) -> tuple[object, ...]:
    """Return a time, or a ratio, with its margins, and what settles a tie: the least wins."""
    return time * (1.0 + margin * preferred[0]), *preferred[1:]


def choose(
    contestants: Sequence[Trial], standings: Sequence[Standing], prefer: Preference, margin: float = 0.0
) -> int:
    """Return the contestant that wins.

    Args:
        contestants: of the race.
        standings: of the race in each mode that counts, the run's first; the same contestants have not failed in them.
        prefer: settles ties; with a margin it says what each has to gain.
        margin: as a share; 0 where no winner may be slower than the fastest beyond the noise.
    """
    raced, fastest = standings[0].groups, _fastest(standings)
    behind = {i: max(1.0, _ratio(standings, i, fastest).median) for i in raced}
    floors = [standing.noise_floor for standing in standings]
    preferred = {i: prefer(contestants[i].configuration) for i in raced}
    if step := margin_of(max(floors) if all(floors) else 0.0, margin):
        near = [i for i in raced if behind[i] <= 1.0 + max(*floors, MOST * margin)]
        return min(near, key=lambda i: penalized(behind[i], preferred[i], step))
    floor = _mean([1.0 + floor for floor in floors]) - 1.0
    close = 1.0 + min(floor, SIMPLER_WITHIN)

    def is_beaten(i: int) -> bool:
        return any(verdict(_ratio(standings, i, j), floor) is Verdict.SLOWER for j in raced if j != i)

    tied = [i for i in raced if behind[i] <= close and not is_beaten(i)]
    return min(tied, key=lambda i: (preferred[i], behind[i], i != fastest), default=fastest)


def _fastest(standings: Sequence[Standing]) -> int:
    """Return the fastest in the mean over the modes.

    In one mode it is the leader of what is left: an eliminated one had fewer rounds, and is not faster. In another mode
    it may be.
    """
    leader = standings[0].left[0]
    if len(standings) == 1:
        return leader
    return min(standings[0].groups, key=lambda i: (_ratio(standings, i, leader).median, i != leader))


def undecided(contestants: Sequence[Trial], standing: Standing, prefer: Preference) -> set[int]:
    """Return the contestants left that more rounds may show to win, where one mode counts and no margin.

    One that is not simpler than the winner, and surely not faster beyond the noise, cannot. Where there is no other,
    and the winner is surely the same as the fastest, nothing is undecided; else these two belong to it.
    """
    winner, first = choose(contestants, [standing], prefer), standing.left[0]
    preferred = prefer(contestants[winner].configuration)
    able = {
        i
        for i in standing.left
        if i != winner
        and (
            prefer(contestants[i].configuration) < preferred
            or standing.ratio(i, winner).low < 1.0 - standing.noise_floor
        )
    }
    certain = winner == first or standing.compare(winner, first) is Verdict.SAME
    return set() if certain and not able else {winner, first, *able}


def _ratio(standings: Sequence[Standing], contestant: int, other: int) -> Ratio:
    """Return a contestant's time over another's: the geometric mean over the modes, and of the intervals' ends."""
    ratios = [standing.ratio(contestant, other) for standing in standings]
    return Ratio(*(_mean([getattr(ratio, end) for ratio in ratios]) for end in ("median", "low", "high")))


def _mean(ratios: Sequence[float]) -> float:
    return ratios[0] if len(ratios) == 1 else prod(ratios) ** (1 / len(ratios))
