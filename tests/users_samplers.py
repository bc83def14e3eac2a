"""Samplers as a user writes them, for ``--sampler module:Class``."""

from __future__ import annotations

from optuna.samplers import RandomSampler

from tuner.search.base import Location, SpaceSampler


class Plain(RandomSampler):
    """One of Optuna's, which knows nothing of a space."""


class Last(SpaceSampler):
    """Takes the last configurations first, and learns nothing."""

    def _propose(self) -> Location:
        number = max(n for n, left in enumerate(self.unseen) if left)
        return number, int((~self.seen[number]).nonzero()[0][-1])

    def _proposed(self, location: Location) -> None:
        pass

    def _told(self, location: Location, objective: float | None) -> None:
        pass

    def _added(self, location: Location, objective: float | None) -> None:
        pass


class Wanting(RandomSampler):
    """Cannot be made without an argument."""

    def __init__(self, what: object) -> None:
        super().__init__()


NOT_A_SAMPLER = 3
