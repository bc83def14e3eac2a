"""Samplers that learn nothing: every configuration in order, and every configuration at random."""

from __future__ import annotations

from tuner.kernel.space import SearchSpace
from tuner.search.base import Location, SpaceSampler


class _OrderedSampler(SpaceSampler):
    """Goes through a list of each variant's rows, and leaves out seen ones."""

    def __init__(self, space: SearchSpace, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._orders = [self._order(len(variant)) for variant in space.variants]
        self._next = [0] * len(space.variants)

    def _order(self, count: int) -> list[int] | range:
        return range(count)

    def _advance(self, number: int) -> Location:
        order = self._orders[number]
        while self.seen[number][order[self._next[number]]]:
            self._next[number] += 1
        return number, order[self._next[number]]


class BruteForceSampler(_OrderedSampler):
    """Proposes every configuration after the default, in the fixed order of the space."""

    def _propose(self) -> Location:
        return self._advance(next(number for number, left in enumerate(self.unseen) if left))


class RandomOrderSampler(_OrderedSampler):
    """Proposes every configuration after the default, once, at random: the variant first, then one of its own."""

    def _order(self, count: int) -> list[int] | range:
        order: list[int] = self.rng.permutation(count).tolist()
        return order

    def _propose(self) -> Location:
        return self._advance(self.draw_variant())
