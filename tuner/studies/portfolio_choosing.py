"""Chooses few configurations so that each problem has one within a bound of its best: greedily, then by exchanges."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

import numpy as np

from tuner.winners.timings import Floats

INVALID = 4.0
"""Octaves: how slow nothing at all counts."""
WITHIN = 0.3
"""What a slowdown within the bound counts, of one beyond it."""
TAIL_FROM, TAIL = 0.07, 4.0
"""Octaves, from which a slowdown also counts by its square, and the factor: 1.25 counts twice what it would, so that no
size is badly served for the sake of the mean. In simulations it lowers the 95th percentile, and not the median."""
LEAST_GAIN = 2e-5
"""Octaves, in the mean over all problems: what a further configuration must be worth."""
EXCHANGES = 50


def choose(
    tables: Sequence[Floats],
    cubins: Callable[[int, int], Set[str]],
    given: Sequence[Set[int]],
    bound: float,
    most_cubins: int,
) -> list[list[int]]:
    """Return the configurations to keep of each computation.

    The loss of a problem is how far its best kept configuration is beyond the bound, a part of how slow it is, and the
    square of what is very slow.
    What a further configuration gains is less, the more there are (the gain is submodular), so that the greedy choice
    is near the best (Nemhauser, Wolsey and Fisher, Mathematical Programming 14, 1978); exchanges improve it.

    Args:
        tables: of each computation the slowdowns in octaves, by problem and configuration; infinite where invalid.
        cubins: the names of a configuration's cubins, by table and configuration.
        given: configurations of each table that are there anyway: they cost nothing.
        bound: the slowdown that is allowed.
        most_cubins: that all configurations together may have.
    """
    return _Choice(tables, cubins, given, float(np.log2(bound)), most_cubins).run()


class _Choice:
    def __init__(
        self,
        tables: Sequence[Floats],
        cubins: Callable[[int, int], Set[str]],
        given: Sequence[Set[int]],
        bound: float,
        most_cubins: int,
    ) -> None:
        self._losses = [_loss(np.minimum(table, INVALID), bound) for table in tables]
        self._rows = max(1, sum(len(table) for table in tables))
        self._cubins, self._given, self._most = cubins, given, most_cubins
        self._kept = [sorted(one) for one in given]
        """Of each table, those that are given first."""

    def run(self) -> list[list[int]]:
        while (best := self._addition()) is not None:
            self._kept[best[0]].append(best[1])
        for _ in range(EXCHANGES):
            if not self._exchange():
                break
        return self._kept

    def _fits(self, kept: Sequence[Sequence[int]]) -> bool:
        names = {name for table, ones in enumerate(kept) for one in ones for name in self._cubins(table, one)}
        return len(names) <= self._most

    def _addition(self) -> tuple[int, int] | None:
        """Return the table and configuration whose addition gains most; None if none is worth it, or fits."""
        gains = []
        for number, losses in enumerate(self._losses):
            now = self._now(number, self._kept[number])
            gain = np.maximum(now[:, None] - losses, 0).sum(axis=0) / self._rows
            gains += [(float(one), number, column) for column, one in enumerate(gain) if one > LEAST_GAIN]
        for _, number, column in sorted(gains, key=lambda item: (-item[0], item[1:])):
            with_it = [[*ones, column] if at == number else ones for at, ones in enumerate(self._kept)]
            if self._fits(with_it):
                return number, column
        return None

    def _now(self, number: int, kept: Sequence[int]) -> Floats:
        """Return the loss of each problem with what is kept."""
        losses = self._losses[number]
        if not len(kept):
            return np.full(len(losses), INVALID)
        return losses[:, list(kept)].min(axis=1)  # type: ignore[no-any-return]

    def _exchange(self) -> bool:
        """Exchange one configuration for a better one; return whether there was one."""
        for number, losses in enumerate(self._losses):
            kept = self._kept[number]
            before = self._now(number, kept).sum()
            for index, old in enumerate(kept):
                if old in self._given[number]:
                    continue
                others = [one for one in kept if one != old]
                left = self._now(number, others)
                after = np.minimum(left[:, None], losses).sum(axis=0)
                for column in np.argsort(after, kind="stable")[:5]:
                    if after[column] >= before - LEAST_GAIN * self._rows / 10:
                        break
                    new = [*kept[:index], int(column), *kept[index + 1 :]]
                    if self._fits([new if at == number else ones for at, ones in enumerate(self._kept)]):
                        self._kept[number] = new
                        return True
        return False


def _loss(slowdowns: Floats, bound: float) -> Floats:
    beyond = (1 - WITHIN) * np.maximum(0.0, slowdowns - bound)
    return WITHIN * slowdowns + beyond + TAIL * np.maximum(0.0, slowdowns - TAIL_FROM) ** 2
