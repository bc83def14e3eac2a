"""What every search promises, and the part of it that is the same for all of them."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.model import Configuration, Resources
from tuner.space.space import Mask, SearchSpace

Place = tuple[int, int]
"""A configuration as the number of its variant in the space and its row there."""


@dataclass(frozen=True)
class Nominee:
    """A configuration that was nominated and has been compiled."""

    configuration: Configuration
    resources: Resources | None = None
    """What the compiler said; None where it said nothing."""


class Search(abc.ABC):
    """Chooses what to try next, by asking and telling.

    The contract, for every implementation:

    - ``ask`` gives a configuration of the space that was neither asked for nor added before, and None when
      there is no such configuration left. The first one is the space's default; after it come those of
      ``begin_with``.
    - Any number of configurations may be asked for before the first of them is told, and they may be told
      in any order.
    - A failure (an objective that is None, or not finite) teaches like a bad result, and never stops the
      search.
    - The same space, seed, and order of calls with the same objectives give the same configurations.

    A ``selective`` search can also be asked in two steps: ``nominate`` gives what is worth compiling, and
    ``choose`` says later, with the results of meanwhile, which of the nominees is to be tried. The default and those of
    ``begin_with`` are asked for all the same, as long as it is ``opening``.

    Args:
        space: what may be asked for.
        seed: of every random choice.
    """

    selective = False
    """Whether :meth:`nominate`, :meth:`choose` and :meth:`withdraw` may be called."""

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self.space = space
        self.rng = np.random.default_rng(seed)
        self.seen: list[Mask] = [np.zeros(len(variant), dtype=bool) for variant in space.variants]
        """For each variant the rows that were asked for or added."""
        self.unseen: list[int] = [len(variant) for variant in space.variants]
        """For each variant the number of rows that were not."""
        self.promise: float | None = None
        """By how much the most promising candidate for the last proposal was expected to be better than the best
        result, in log2 of the time; infinite while nothing can be said, None where the search never says it."""
        default = space.locate(space.default)
        assert default is not None
        self._first: list[Place] = [default]
        """What is asked for before anything that the search itself would propose."""

    def ask(self) -> Configuration | None:
        """Return a configuration to try, or None when all have been tried."""
        if not any(self.unseen):
            return None
        self._first = [place for place in self._first if not self._seen(place)]
        place = self._first.pop(0) if self._first else self._propose()
        assert not self._seen(place)
        self._see(place)
        self._asked(place)
        return self.space.variants[place[0]].configuration(place[1])

    def begin_with(self, configurations: Iterable[Configuration]) -> None:
        """Have these asked for after the default, in this order, before anything that the search itself would propose.

        What is not in the space, or was asked for or added before its turn, is left out.
        """
        self._first += [place for place in map(self.space.locate, configurations) if place is not None]

    @property
    def opening(self) -> bool:
        """Whether the default, or some of ``begin_with``, still have to be asked for."""
        return not all(map(self._seen, self._first))

    def tell(self, configuration: Configuration, objective: float | None) -> None:
        """Say how a configuration that was asked for ended.

        Args:
            configuration: what :meth:`ask` gave; anything else is taken as :meth:`add` would.
            objective: base-2 logarithm of the time in nanoseconds, or None for a failure.
        """
        place = self.space.locate(configuration)
        if place is None or not self._seen(place):
            self.add(configuration, objective)
        else:
            self._told(place, _finite(objective))

    def add(self, configuration: Configuration, objective: float | None) -> None:
        """Teach what is known from an earlier run, so that it is not asked for again.

        What is not in the space (other values, another narrowing) is ignored.
        """
        place = self.space.locate(configuration)
        if place is not None and not self._seen(place):
            self._see(place)
            self._added(place, _finite(objective))

    def learn(self, results: Iterable[tuple[Configuration, float | None]], distance: float) -> None:  # noqa: B027
        """Take hints from what was measured elsewhere: at another size, dtype or GPU. Most searches ignore them.

        What is hinted at may be asked for like anything else.

        Args:
            results: configurations, each with its objective there; all of one problem on one GPU.
            distance: how unlike this problem that one is, from 0, as :func:`tuner.search.task_distance.distance` says.
        """

    def nominate(self, count: int) -> list[Configuration]:
        """Return configurations to compile that were not asked for, added or nominated before; fewer if few are left.

        Nothing is promised: each may be chosen later, told of as a failure (:meth:`tell`), or withdrawn.
        """
        raise NotImplementedError

    def choose(self, nominees: Sequence[Nominee]) -> Sequence[int]:
        """Rank nominees; the first is to be tried now, and counts as asked for.

        Args:
            nominees: at least one, each nominated and neither chosen, told of nor withdrawn since.

        Returns:
            Their places, the most promising first.
        """
        raise NotImplementedError

    def withdraw(self, configuration: Configuration) -> None:
        """Take a nomination back: the configuration may be asked for or nominated again."""
        raise NotImplementedError

    def draw_variant(self) -> int:
        """Return at random the number of a variant that has unseen configurations, however many."""
        return int(self.rng.choice(np.flatnonzero(self.unseen)))

    def _seen(self, place: Place) -> bool:
        return bool(self.seen[place[0]][place[1]])

    def _see(self, place: Place) -> None:
        self.seen[place[0]][place[1]] = True
        self.unseen[place[0]] -= 1

    def _unsee(self, place: Place) -> None:
        self.seen[place[0]][place[1]] = False
        self.unseen[place[0]] += 1

    @abc.abstractmethod
    def _propose(self) -> Place:
        """Return an unseen configuration; there is at least one."""

    @abc.abstractmethod
    def _asked(self, place: Place) -> None:
        """Note that a configuration has been given out."""

    @abc.abstractmethod
    def _told(self, place: Place, objective: float | None) -> None:
        """Learn the result of a configuration that was given out."""

    @abc.abstractmethod
    def _added(self, place: Place, objective: float | None) -> None:
        """Learn the result of a configuration from elsewhere."""


def _finite(objective: float | None) -> float | None:
    return objective if objective is not None and math.isfinite(objective) else None
