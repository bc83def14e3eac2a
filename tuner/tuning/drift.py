"""Which times a drifting GPU has made doubtful, and what has to be timed again because of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tuner.database.records import SUSPECT
from tuner.model import Configuration, Status, Trial

WINDOW = 16
"""Candidates that the measuring process times from one look at its reference kernel to the next, at most. Those that
failed there are among them, so the last 16 that succeeded cover all that was timed since the look before."""
NEAR = 1.10
"""Only who is this close to the best is timed again: for the others it does not matter, and the race decides anyway."""
RETIMINGS = 2
"""Of one configuration, at most: on a GPU that drifts all the time its last time stands, and the race decides."""


class Doubts:
    """Collects what was timed since the GPU was last known to be steady."""

    def __init__(self) -> None:
        self.waiting: list[Configuration] = []
        """To be timed again."""
        self._recent: dict[tuple[float, ...], list[Trial]] = {}
        """The last measurements, oldest first, by their samples: equal sources share one."""
        self._suspect: set[tuple[float, ...]] = set()
        """Samples that are not believed, whoever else gets them."""
        self._doubted: Counter[Configuration] = Counter()

    def add(self, trial: Trial, *, timed: bool, drifted: bool, best_ns: float | None) -> list[Trial]:
        """Note a trial that has just ended; gives those that are suspect because of what was seen after it.

        Their configurations are in :attr:`waiting` from now on.

        Args:
            trial: the newest.
            timed: whether it was timed itself. Else it has failed before, or an equal source was timed earlier: it is
                as doubtful as that one, and says nothing about the GPU of now.
            drifted: whether the look after it found another GPU than the look before.
            best_ns: the incumbent's time.
        """
        if trial.status is Status.OK:
            self._note(trial, timed=timed)
        if timed and drifted:
            recent, self._recent = [t for shared in self._recent.values() for t in shared], {}
        elif not timed and trial.status is Status.OK and trial.samples_ns in self._suspect:
            recent = [trial]
        else:
            return []
        limit = NEAR * (best_ns or 0.0)
        found = [
            t for t in recent if (t.time_ns or 0.0) <= limit and self._doubted[t.configuration] < RETIMINGS
        ]
        for suspect in found:
            self._suspect.add(suspect.samples_ns)
            self._doubted[suspect.configuration] += 1
            if suspect.configuration not in self.waiting:
                self.waiting.append(suspect.configuration)
        return found

    def _note(self, trial: Trial, *, timed: bool) -> None:
        if timed:
            self._recent[trial.samples_ns] = [*self._recent.pop(trial.samples_ns, []), trial]
            if len(self._recent) > WINDOW:
                del self._recent[next(iter(self._recent))]
        elif trial.samples_ns in self._recent:  # else a look at which all was well came after it
            self._recent[trial.samples_ns].append(trial)

    def recall(self, trials: Iterable[Trial]) -> None:
        """Learn from the trials of an interrupted run, in their order, what was doubted and not timed again."""
        left: dict[Configuration, bool] = {}
        for trial in trials:
            left[trial.configuration] = SUSPECT in trial.tags
            self._doubted[trial.configuration] += SUSPECT in trial.tags
        self.waiting = [configuration for configuration, suspect in left.items() if suspect]

    def forget(self, configuration: Configuration) -> None:
        """Return a configuration up: it is not to be timed again."""
        self.waiting = [waiting for waiting in self.waiting if waiting != configuration]
