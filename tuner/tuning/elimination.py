"""Sequential elimination: finds the fastest of several contestants in heats of growing length.

**Guarantee.** A contestant is eliminated by one that is not faster with a probability of at most 2.5 %, over all heats
and whichever contestant leads. This holds for the truly fastest, too. A contestant that is not the fastest is declared
the only fastest with a probability of at most 5 %.

**Procedure.** A function of the caller times the contestants that are left for a number of rounds. In each round every
contestant is timed once (one *group* of samples), in an order shuffled anew. Two contestants are compared by the ratio
of their times within a round, so that drift cancels, over all rounds that both ran, of every heat. After each heat
those that are surely slower than the leader are eliminated. A difference must also exceed the noise floor, which covers
what more rounds cannot average away: the same kernel at another address is a little faster or slower. A small one
(:data:`CLOSE`) must exceed it in two heats, each of which loads the kernels anew.

**Confidence.** With h heats and k contestants each interval has a confidence of 1 - 0.05 / (h (k - 1)). This is
Bonferroni's correction for h tests of each of a contestant's k - 1 pairs; it assumes nothing about their dependence.

**Why the guarantee holds.** A contestant has k - 1 pairs, and only one end of an interval can eliminate it: half of
5 %. The leader is chosen from the same samples, so that any of the k (k - 1) / 2 pairs may be compared. *All* of their
intervals need not hold together with 95 %, and the guarantee does not ask for it. For a wrong only winner among m
equally fast contestants m - 1 must be eliminated together: at most 2.5 % m / (m - 1), which is at most 5 %.

That some of many equal contestants are eliminated, but not all, is bounded less tightly. It costs nothing, because an
equal one is left. A correction for all pairs would bound it, too, but could not decide between 9 contestants after 12
rounds.

``tests/tuning/test_elimination.py`` simulates the error rates; ``docs/measuring.md`` has those on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from tuner.core.stats import UNDECIDED, Ratio, Verdict, median, paired_ratio, verdict

HEATS = (12, 24, 48)
"""Rounds of each heat. Heats are few, because each loads and verifies every contestant again. 12 rounds are the fewest
that can decide 8 comparisons; 36 find a difference of 0.5 % among 9 contestants; 84 are for kernels so short that they
cost nothing."""
SECONDS = 5.0
"""After so long no further heat begins: a user waits for the race."""
CONFIDENCE = 0.95
"""With which all intervals of any one contestant hold together."""
FEWEST_ROUNDS = 8
"""A heat is not begun with fewer: it would hardly change anything."""
CLOSE = 0.005
"""A smaller difference is not decided by one heat. Of 1000 races between two loads of one kernel, on an H100, one had
such a difference in all 12 rounds: 0.26 %. The others' were within 0.16 %."""

Groups = Sequence[Sequence[float]]
"""The samples of one contestant, one group for each round."""
Measure = Callable[[Sequence[int], int, int], Mapping[int, Groups]]
"""Times the given contestants for so many rounds, in the heat of that number (from 0). A contestant that is missing in
the answer has failed, and is out. All others have as many groups as there were rounds."""


@dataclass(frozen=True)
class Standing:
    """The state of a race after a heat: the contestants left, and every group that was taken."""

    groups: Mapping[int, Groups]
    """Of the contestants that did not fail; an eliminated one has fewer rounds."""
    left: tuple[int, ...]
    """Contestants not surely slower than the leader, fastest first; empty when all have failed."""
    heats: int
    seconds: float
    confidence: float
    """Of each single interval; all intervals of one contestant hold together with :data:`CONFIDENCE`."""
    noise_floor: float
    ends: tuple[int, ...] = ()
    """The rounds before the end of each heat."""
    _medians: Mapping[int, Sequence[float]] = field(default_factory=dict, repr=False)

    @property
    def rounds(self) -> int:
        """Most rounds of any contestant."""
        return max((len(groups) for groups in self.groups.values()), default=0)

    @property
    def verdict(self) -> Verdict:
        """Of the leader against all others: faster than each, the same as those left, or ambiguous."""
        others = {self.compare(other, self.left[0]) for other in self.left[1:]}
        if not others:
            return Verdict.FASTER
        return Verdict.SAME if others == {Verdict.SAME} else Verdict.AMBIGUOUS

    def time_ns(self, contestant: int) -> float:
        """Return the median of all of a contestant's samples."""
        return median([sample for group in self.groups[contestant] for sample in group])

    def ratio(self, contestant: int, other: int) -> Ratio:
        """Return a contestant's time over another's, by the rounds that both were in."""
        a, b = self._medians[contestant], self._medians[other]
        shared = min(len(a), len(b))
        return paired_ratio(a[:shared], b[:shared], self.confidence)

    def behind(self, contestant: int) -> float:
        """Return a contestant's time over that of the fastest."""
        return self.ratio(contestant, self.left[0]).median

    def compare(self, contestant: int, other: int) -> Verdict:
        """Return whether a contestant is faster or slower than another."""
        ratio = self.ratio(contestant, other)
        found = verdict(ratio, self.noise_floor)
        if found in UNDECIDED or abs(ratio.median - 1) >= CLOSE:
            return found
        a, b = (np.asarray(self._medians[i]) for i in (contestant, other))
        heats = [slice(*ends) for ends in pairwise((0, *self.ends)) if ends[1] <= min(len(a), len(b))]
        alone = [np.median(a[heat] / b[heat]) - 1 for heat in heats]
        agreeing = [by for by in alone if abs(by) > self.noise_floor and (by > 0) == (ratio.median > 1)]
        return found if len(agreeing) > 1 else Verdict.AMBIGUOUS

    def tied_with(self, contestant: int) -> list[int]:
        """Return those left that are the same as a contestant, or cannot be told from it; itself not included."""
        return [
            other
            for other in self.left
            if other != contestant and self.compare(other, contestant) in UNDECIDED
        ]


def eliminate(
    count: int,
    measure: Measure,
    noise_floor: float,
    *,
    heats: Sequence[int] = HEATS,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.monotonic,
    undecided: Callable[[Standing], Collection[int]] | None = None,
) -> Standing:
    """Race until one contestant is left, all that are left are the same, or rounds or time are used up.

    Args:
        count: number of contestants; they are called 0, 1, 2 and so on.
        measure: gives the next rounds.
        noise_floor: how far from 1 the ratio of a kernel to itself gets.
        heats: rounds of each. The first is never shortened: kernels that take very long take longer.
        seconds: after these no further heat begins, and a later one is shortened to what is left of them.
        clock: seconds.
        undecided: those left that more rounds may show to be what wins, after two heats or more. Only these go on; the
            others stay as they are, neither eliminated nor told apart. All that are left, unless given.

    Returns:
        The standing after the last heat.
    """
    began = clock()
    confidence = 1 - (1 - CONFIDENCE) / (len(heats) * max(1, count - 1))
    standing = Standing({}, (), 0, 0.0, confidence, noise_floor)
    groups: dict[int, list[Sequence[float]]] = {i: [] for i in range(count)}
    left: Sequence[int] = range(count)
    last_began, last_groups = began, 0
    for heat, planned in enumerate(heats):
        heat_began, rounds = clock(), planned
        if heat:
            group_s = (heat_began - last_began) / last_groups  # with loading and verifying
            affordable = (seconds - (heat_began - began)) / max(group_s * len(left), 1e-9)
            rounds = int(min(planned, affordable))
            if rounds < min(FEWEST_ROUNDS, planned):
                break
        last_began, last_groups = heat_began, rounds * len(left)
        samples = measure(left, rounds, heat)
        for failed in set(left) - set(samples):
            del groups[failed]
        for i, more in samples.items():
            groups[i] += more
        standing = _standing(groups, sorted(samples), heat + 1, clock() - began, standing)
        left = standing.left
        if heat and undecided is not None:
            left = sorted(undecided(standing))
        if len(left) < 2 or standing.verdict is Verdict.SAME:
            break
    return standing


def _standing(
    groups: Mapping[int, Groups], running: Sequence[int], heats: int, seconds: float, before: Standing
) -> Standing:
    """Return the contestants of the last heat, ordered, then those that did not go on, without the slower ones.

    These are surely slower than the leader.
    """
    medians = {i: [median(group) for group in taken] for i, taken in groups.items()}
    standing = replace(
        before,
        groups={i: list(taken) for i, taken in groups.items()},
        left=(),
        heats=heats,
        seconds=seconds,
        ends=(*before.ends, max(map(len, groups.values()), default=0)),
        _medians=medians,
    )
    if not running:
        return standing
    # By the median over the rounds of a contestant's time relative to its round, which drift does not move.
    table = np.asarray([medians[i] for i in running], dtype=float)
    relative = np.median(table / np.median(table, axis=0), axis=1)
    order = [running[i] for i in np.argsort(relative, kind="stable")]
    order += [i for i in before.left if i in groups and i not in running]
    left = (i for i in order if i == order[0] or standing.compare(i, order[0]) is not Verdict.SLOWER)
    return replace(standing, left=tuple(left))
