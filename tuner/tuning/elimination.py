"""Who of several is fastest: heats of growing length, after each of which those that are surely slower drop out.

Nothing here measures: whoever has contestants gives a callable that times those still in for so many more rounds. In
each round every contestant is timed once (one *group* of samples), in an order shuffled anew. Judged are ratios
within a round, so that drift cancels, and all rounds that two contestants shared, from whichever heat.

**Looking several times.** Whoever looks after each heat has several chances to see a difference that is not there,
and whoever is compared with the first has one for each that may be the first. So with h heats and k contestants each
interval has a confidence of 1 - 0.05 / (h (k - 1)) (Bonferroni; no assumption about how they depend on each other).
Who is first is chosen from the same samples, so the pairs that can be compared are k (k - 1) / 2, and *all* of their
intervals need not hold together with 95 %. What does hold, whoever comes first: any one contestant has k - 1 pairs and
can be dropped at one end of an interval only, so it is dropped for somebody who is not faster with a probability of at
most 2.5 %. That goes for the truly fastest; and that one is declared the only fastest who is not has at most 5 % (of m
that are equally fast m - 1 would have to drop at once, which has at most 2.5 % m / (m - 1)). That somebody among many
equals drops out, though not all the others, is bounded less tightly, and costs nothing: an equal is left.

Correction for all the pairs would bound that, too, but 9 contestants could not be decided after 12 rounds. A difference
must besides exceed the noise floor, which covers what more rounds cannot average away: the same kernel at another
address is a little faster or slower.

``tests/test_elimination.py`` simulates what this comes to; ``docs/measuring.md`` has what it did on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.stats import Ratio, Verdict, median, paired_ratio, verdict

HEATS = (12, 24, 48)
"""Rounds of each heat. Few, because each loads and verifies everybody again. From 12 rounds on, 8 comparisons can be
decided at all; 36 find a difference of 0.5 % among 9; 84 are for kernels so short that they cost nothing."""
SECONDS = 5.0
CONFIDENCE = 0.95
FEWEST_ROUNDS = 8
"""A heat that the remaining time allows fewer rounds for is not begun: it would hardly change anything."""

Groups = Sequence[Sequence[float]]
"""The samples of one contestant, one group for each round."""
Measure = Callable[[Sequence[int], int, int], Mapping[int, Groups]]
"""Times the given contestants for so many rounds, in the heat of that number (from 0). Whoever is missing in the answer
has failed, and is out. All others have as many groups as there were rounds."""


@dataclass(frozen=True)
class Standing:
    """How a race ended: who is left, and every group that was taken."""

    groups: Mapping[int, Groups]
    """Of everybody who did not fail; who dropped out has fewer rounds."""
    left: tuple[int, ...]
    """Who cannot be told to be slower than the fastest, fastest first; nobody when all have failed."""
    heats: int
    seconds: float
    confidence: float
    """Of each single interval, so that a contestant's intervals all hold together with the one that was asked for."""
    noise_floor: float
    seed: int
    _medians: Mapping[int, Sequence[float]] = field(default_factory=dict, repr=False)
    _ratios: dict[tuple[int, int], Ratio] = field(default_factory=dict, repr=False, compare=False)
    """Computed already: a surer interval takes some 10 ms."""

    @property
    def rounds(self) -> int:
        """Most rounds that anybody ran."""
        return max((len(groups) for groups in self.groups.values()), default=0)

    @property
    def verdict(self) -> Verdict:
        """Of the first against all the others: faster than each of them, the same as those left, or nobody knows."""
        others = {self.compare(other, self.left[0]) for other in self.left[1:]}
        if not others:
            return Verdict.FASTER
        return Verdict.SAME if others == {Verdict.SAME} else Verdict.AMBIGUOUS

    def time_ns(self, contestant: int) -> float:
        """Return the median of all of a contestant's samples."""
        return median([sample for group in self.groups[contestant] for sample in group])

    def ratio(self, contestant: int, other: int) -> Ratio:
        """Return a contestant's time over another's, by the rounds that both were in."""
        pair = (contestant, other)
        if pair not in self._ratios:
            a, b = self._medians[contestant], self._medians[other]
            shared = min(len(a), len(b))
            self._ratios[pair] = paired_ratio(a[:shared], b[:shared], self.seed, self.confidence)
        return self._ratios[pair]

    def compare(self, contestant: int, other: int) -> Verdict:
        """Return whether a contestant is faster or slower than another."""
        return verdict(self.ratio(contestant, other), self.noise_floor)

    def tied_with(self, contestant: int) -> list[int]:
        """Name those left that are the same as a contestant, or cannot be told from it; itself not included."""
        undecided = (Verdict.SAME, Verdict.AMBIGUOUS)
        return [
            other
            for other in self.left
            if other != contestant and self.compare(other, contestant) in undecided
        ]

    def same_as_first(self) -> list[int]:
        """Name those left whose difference from the first is surely below the noise floor, the first included."""
        return [i for i in self.left if i == self.left[0] or self.compare(i, self.left[0]) is Verdict.SAME]


def eliminate(
    count: int,
    measure: Measure,
    noise_floor: float,
    *,
    heats: Sequence[int] = HEATS,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Standing:
    """Race until one is left, all that are left are the same, or rounds or time are used up.

    Args:
        count: of the contestants, who are called 0, 1, 2 and so on.
        measure: gives the next rounds.
        noise_floor: how far from 1 the ratio of a kernel to itself gets.
        heats: rounds of each. After ``SECONDS`` no further one begins, and a later one is shortened to what is left of
            them. The first is never shortened: kernels that take very long take longer.
        seed: of the resampling.
        clock: seconds.

    Returns:
        Who is left; all the intervals of any one contestant hold together with ``CONFIDENCE``, in all heats.
    """
    each = 1 - (1 - CONFIDENCE) / (len(heats) * max(1, count - 1))
    began = clock()
    groups: dict[int, list[Sequence[float]]] = {i: [] for i in range(count)}
    standing = Standing({}, (), 0, 0.0, each, noise_floor, seed)
    left: Sequence[int] = range(count)
    last_began, last_share = began, 1
    for number, planned in enumerate(heats):
        before = clock()
        rounds = planned
        if number:
            each_s = (before - last_began) / last_share  # of one group; of loading and verifying, too
            affordable = (SECONDS - (before - began)) / max(each_s * len(left), 1e-9)
            rounds = int(min(planned, affordable))
            if rounds < min(FEWEST_ROUNDS, planned):
                break
        last_began, last_share = before, rounds * len(left)
        found = measure(left, rounds, number)
        for lost in set(left) - set(found):
            del groups[lost]
        for i, more in found.items():
            groups[i] += more
        standing = _standing(groups, sorted(found), number + 1, clock() - began, standing)
        left = standing.left
        if len(left) < 2 or standing.verdict is Verdict.SAME:
            break
    return standing


def _standing(
    groups: Mapping[int, Groups], running: Sequence[int], heats: int, seconds: float, before: Standing
) -> Standing:
    """Order who ran the last heat, and leave out who is surely slower than the first."""
    medians = {i: [median(group) for group in taken] for i, taken in groups.items()}
    everybody = Standing(
        {i: list(taken) for i, taken in groups.items()},
        tuple(_ranking({i: medians[i] for i in running})),
        heats,
        seconds,
        before.confidence,
        before.noise_floor,
        before.seed,
        medians,
    )
    if not running:
        return everybody
    first = everybody.left[0]
    left = tuple(i for i in everybody.left if i == first or everybody.compare(i, first) is not Verdict.SLOWER)
    return replace(everybody, left=left)


def _ranking(medians: Mapping[int, Sequence[float]]) -> list[int]:
    """Order by the median over the rounds of a contestant's time relative to its round, which drift does not move."""
    if not medians:
        return []
    names = list(medians)
    table = np.asarray([medians[i] for i in names], dtype=float)
    relative = np.median(table / np.median(table, axis=0), axis=1)
    return [names[i] for i in np.argsort(relative, kind="stable")]
