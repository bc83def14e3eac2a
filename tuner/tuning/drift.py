"""Drift re-measurement: finds the times that a drifting GPU has made suspect, and has them taken again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tuner.children.measuring import PROBED
from tuner.core.model import Configuration, Status, Trial

NEAR = 1.10
"""Only times this close to the best are taken again: the others do not matter, and the race decides anyway."""
RETIMINGS = 2
"""Of one configuration, at most: on a GPU that drifts all the time its last time counts, and the race decides."""


class DriftCheck:
    """Collects what was timed since the GPU was last known to be steady."""

    def __init__(self) -> None:
        self.waiting: list[Configuration] = []
        """To be timed again."""
        self._recent: dict[tuple[float, ...], list[Trial]] = {}
        """The last measurements, oldest first, by their samples: equal sources share one."""
        self._suspect: set[tuple[float, ...]] = set()
        """Samples that are suspect, whichever trial has them."""
        self._suspected: Counter[Configuration] = Counter()

    def add(self, trial: Trial, *, timed: bool, drifted: bool, best_ns: float | None) -> list[Trial]:
        """Note a trial that has just ended, and return those that are suspect because of the probe after it.

        Their configurations are in :attr:`waiting` from now on.

        Args:
            trial: the newest.
            timed: whether it was timed itself. Otherwise it failed before that, or has the samples of an equal source:
                it is as suspect as that source, and says nothing about the GPU at this moment.
            drifted: whether the reference kernel's time changed from the probe before it to the probe after it.
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
        suspects = [
            t for t in recent if (t.time_ns or 0.0) <= limit and self._suspected[t.configuration] < RETIMINGS
        ]
        for suspect in suspects:
            self._suspect.add(suspect.samples_ns)
            self._suspected[suspect.configuration] += 1
            if suspect.configuration not in self.waiting:
                self.waiting.append(suspect.configuration)
        return suspects

    def _note(self, trial: Trial, *, timed: bool) -> None:
        if timed:
            self._recent[trial.samples_ns] = [*self._recent.pop(trial.samples_ns, []), trial]
            if len(self._recent) > PROBED:  # these are successes, and of a probe's candidates some may fail
                del self._recent[next(iter(self._recent))]
        elif trial.samples_ns in self._recent:  # else a probe without drift came after it
            self._recent[trial.samples_ns].append(trial)

    def recall(self, trials: Iterable[Trial]) -> None:
        """Learn from the trials of an interrupted run, in their order, which are suspect and were not timed again."""
        left: dict[Configuration, bool] = {}
        for trial in trials:
            left[trial.configuration] = trial.suspect
            self._suspected[trial.configuration] += trial.suspect
        self.waiting = [configuration for configuration, suspect in left.items() if suspect]

    def forget(self, configuration: Configuration) -> None:
        """Take a configuration off the list: it is not timed again."""
        self.waiting = [waiting for waiting in self.waiting if waiting != configuration]
