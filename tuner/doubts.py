"""Which times a drifting GPU has made doubtful, and what has to be timed again because of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from tuner.model import Configuration, Status, Trial
from tuner.records import SUSPECT

WINDOW = 16
"""Candidates that the measuring process times from one look at its reference kernel to the next, at most: whatever came
before them was followed by a look at which all was well."""
NEAR = 1.10
"""Only who is this close to the best is timed again: for the others it does not matter, and the race decides anyway."""
RETIMINGS = 2
"""Of one configuration, at most: on a GPU that drifts all the time its last time stands, and the race decides."""


class Doubts:
    """Collects what was timed since the GPU was last known to be steady."""

    def __init__(self) -> None:
        self.waiting: list[Configuration] = []
        """To be timed again."""
        self._recent: deque[Trial] = deque(maxlen=WINDOW)
        self._doubted: Counter[Configuration] = Counter()

    def add(self, trial: Trial, *, drifted: bool, best_ns: float | None) -> list[Trial]:
        """Note a trial that was just timed; gives those that are suspect because of what was seen after it.

        Their configurations are in :attr:`waiting` from now on.

        Args:
            trial: the newest.
            drifted: whether the look after it found another GPU than the look before.
            best_ns: the incumbent's time.
        """
        self._recent.append(trial)
        if not drifted:
            return []
        recent, self._recent = list(self._recent), deque(maxlen=WINDOW)
        limit = NEAR * (best_ns or 0.0)
        found = [
            t
            for t in recent
            if t.status is Status.OK
            and (t.time_ns or 0.0) <= limit
            and self._doubted[t.configuration] < RETIMINGS
        ]
        for suspect in found:
            self._doubted[suspect.configuration] += 1
            if suspect.configuration not in self.waiting:
                self.waiting.append(suspect.configuration)
        return found

    def recall(self, trials: Iterable[Trial]) -> None:
        """Learn from the trials of an interrupted run, in their order, what was doubted and not timed again."""
        left: dict[Configuration, bool] = {}
        for trial in trials:
            left[trial.configuration] = SUSPECT in trial.tags
            self._doubted[trial.configuration] += SUSPECT in trial.tags
        self.waiting = [configuration for configuration, suspect in left.items() if suspect]

    def forget(self, configuration: Configuration) -> None:
        """Give a configuration up: it is not to be timed again."""
        self.waiting = [waiting for waiting in self.waiting if waiting != configuration]
