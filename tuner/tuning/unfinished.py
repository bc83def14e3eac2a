"""What an interrupted run left: its trials, and what it had begun without a result.

A resumed run does not go on where that one ended. It begins anew with the same seed, and what it asks for is answered
from here as long as it can be: so it asks what the unbroken run would have asked.
"""

from __future__ import annotations

from collections.abc import Iterable

from tuner.core.model import Configuration, Trial

SUSPECT_ATTEMPTS, MAX_ATTEMPTS = 2, 3
"""A configuration that was begun twice without a result is tried once more with nothing beside it: another one may have
killed the tuner. Begun three times without a result, it is recorded as crashed."""


class UnfinishedRun:
    """Results of an interrupted run that have not been asked for again; of a new run there are none.

    Args:
        trials: of the run, in the order of their numbers.
        attempts: number, configuration and count of what was begun without a result.
    """

    def __init__(
        self, trials: Iterable[Trial] = (), attempts: Iterable[tuple[int, Configuration, int]] = ()
    ) -> None:
        self._first: dict[Configuration, Trial] = {}
        self._again: dict[int, Trial] = {}
        """Of configurations that had been tried before, by number."""
        for trial in trials:
            if trial.configuration in self._first:
                self._again[trial.number] = trial
            else:
                self._first[trial.configuration] = trial
        self._configurations = {trial.number: configuration for configuration, trial in self._first.items()}
        attempts = list(attempts)
        self._attempts = {configuration: count for _, configuration, count in attempts}
        self._begun_again = {number: c for number, c, _ in attempts if c in self._first}

    @property
    def over(self) -> bool:
        """Whether all results have been asked for again."""
        return not self._first and not self._again

    def take(self, configuration: Configuration) -> Trial | None:
        """Return the result of a configuration that the search asks for; None if there is none."""
        return self._first.pop(configuration, None)

    def timed_again(self, number: int) -> Configuration | None:
        """Return the configuration that the run timed once more at this place, or None."""
        if not self._first and self._again:
            number = min(self._again)  # places may differ where times were suspect
        again = self._again[number].configuration if number in self._again else self._begun_again.get(number)
        return None if again in self._first or self.over else again

    def take_again(self, number: int) -> Trial | None:
        """Return the result of what :meth:`timed_again` says of this place; None if there is none."""
        if not self._first and self._again:
            number = min(self._again)
        return self._again.pop(number, None)

    def departs(self, number: int) -> bool:
        """Return whether the run asked for something else at this place, and it was not asked for since."""
        return self._configurations.get(number) in self._first

    def give_up(self) -> tuple[list[Trial], list[Trial]]:
        """Return what was not asked for again, and what was timed once more, both in their order; none are left."""
        first, again = self._first, self._again
        self._first, self._again = {}, {}
        return list(first.values()), list(again.values())

    def attempts(self, configuration: Configuration) -> int:
        """Return how often a configuration was begun without a result."""
        return self._attempts.get(configuration, 0)

    def suspect(self, configuration: Configuration) -> bool:
        """Return whether a configuration may have killed the tuner, and is tried with nothing beside it."""
        return self.attempts(configuration) >= SUSPECT_ATTEMPTS
