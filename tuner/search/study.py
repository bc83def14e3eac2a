"""A run's Optuna study: asks its sampler, tells it, and uses the optional abilities of that sampler. And the stopping
criterion: a search ends when the gain that it still expects is below the noise.

The study holds the trials of this run alone, in memory; results of earlier runs and of other tasks go to the sampler.
The database is the record, from which the study of an interrupted run is rebuilt.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tuner.core.model import Configuration
from tuner.kernel.space import SearchSpace
from tuner.search.base import Expecting, Nominating, SpaceSampler, Transferring, objective_of
from tuner.search.parameters import Results, distributions, parameters_of, suggest

optuna.logging.set_verbosity(optuna.logging.ERROR)

PATIENCE = 40
"""Proposals in a row; see docs/searching.md for what others cost."""
LEAST, CALM_S = 20, 60.0
"""So many are enough once they have taken so long: where each takes seconds, more would cost more than they gain."""


@dataclass(frozen=True)
class Stopped:
    """Why nothing more is worth trying."""

    expected: float
    """The share of the best time that the best candidate was expected to save, on average over the noise."""
    noise_floor: float
    """How far from 1 the ratio of two equal kernels of the best time may be."""
    patience: int
    """For so many proposals in a row the first was below the second."""


class StoppingCriterion:
    """Follows a search, and says when it has converged.

    It goes by what the search was told, in that order, and so does not depend on the order of a device's answers.

    Args:
        noise_floor: of a time in nanoseconds.
        patience: how many proposals in a row must be expected to gain less.
        clock: returns seconds.
    """

    def __init__(
        self,
        noise_floor: Callable[[float], float],
        patience: int = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.noise_floor = noise_floor
        self.patience = patience
        self._clock, self._calm_since = clock, math.inf
        self._best = math.inf
        """Base-2 logarithm of the best time."""
        self._calm = 0
        self._expected = math.inf

    @property
    def reached(self) -> Stopped | None:
        """Why nothing more is worth trying; None while something is, or may be."""
        long = self._calm >= LEAST and self._clock() - self._calm_since >= CALM_S
        if self._calm < self.patience and not long:
            return None
        return Stopped(self._expected, self._floor(), min(self._calm, self.patience))

    def proposed(self, expected_improvement: float | None) -> None:
        """Note a proposal.

        Args:
            expected_improvement: as :class:`tuner.search.base.Expecting` has it, after the proposal.
        """
        self._expected = math.inf
        if (
            expected_improvement is not None
            and math.isfinite(expected_improvement)
            and math.isfinite(self._best)
        ):
            self._expected = -math.expm1(-math.log(2) * expected_improvement)
        self._calm = self._calm + 1 if self._expected < self._floor() else 0
        if self._calm <= 1:
            self._calm_since = self._clock()

    def told(self, time_ns: float | None) -> None:
        """Note a result, or None for a failure.

        A result that is better than the best by more than the noise starts the count again: with several proposals
        under way any of them may be a surprise.
        """
        objective = objective_of(time_ns)
        if objective is None or objective >= self._best:
            return
        if math.isfinite(self._best) and 1 - 2 ** (objective - self._best) > self._floor():
            self._calm = 0
        self._best = objective

    def _floor(self) -> float:
        return self.noise_floor(2**self._best) if math.isfinite(self._best) else 0.0


class Search:
    """Asks for configurations to try, and tells how they ended.

    Args:
        space: what may be tried.
        sampler: chooses.
        criterion: follows proposals and results.
    """

    def __init__(
        self, space: SearchSpace, sampler: SpaceSampler, criterion: StoppingCriterion | None = None
    ) -> None:
        self.space, self.sampler, self.criterion = space, sampler, criterion
        self.study = optuna.create_study(sampler=sampler)
        self._distributions = distributions(space)
        self._running: dict[Configuration, Trial] = {}

    # -- trials of this run

    def ask(self, configuration: Configuration | None = None) -> Configuration | None:
        """Begin a trial, and return its configuration: the one given, or the sampler's choice.

        Returns:
            None when everything has been tried.
        """
        if configuration is not None:
            self.study.enqueue_trial(parameters_of(self.space, configuration))
        elif self.sampler.exhausted:
            return None
        trial = self.study.ask()
        configuration = suggest(trial, self.space, self._distributions)
        self._running[configuration] = trial
        if self.criterion is not None:
            self.criterion.proposed(self.expected_improvement)
        return configuration

    def tell(self, configuration: Configuration, time_ns: float | None) -> None:
        """End a trial with its time, or None for a failure; one that was not begun here counts as an earlier run's."""
        trial = self._running.pop(configuration, None)
        if trial is None:
            self.add(configuration, time_ns)
        else:
            state, value = _ending(time_ns)
            self._ended(self.study.tell(trial, value, state))

    def recall(self, configuration: Configuration, time_ns: float | None) -> None:
        """Put a trial of this run into its study again, from before the run was interrupted."""
        if not self.space.contains(configuration):
            return
        parameters, (state, value) = parameters_of(self.space, configuration), _ending(time_ns)
        dists: dict[str, BaseDistribution] = {name: self._distributions[name] for name in parameters}
        self.study.add_trial(create_trial(state=state, value=value, params=parameters, distributions=dists))
        trial = self.study.get_trials(deepcopy=False)[-1]
        self.sampler.after_trial(self.study, trial, trial.state, trial.values)
        self._ended(trial)

    def _ended(self, trial: FrozenTrial) -> None:
        if self.criterion is not None:
            self.criterion.told(trial.value if trial.state is TrialState.COMPLETE else None)

    # -- what is known from elsewhere

    def add(self, configuration: Configuration, time_ns: float | None) -> None:
        """Teach a result of an earlier run of this very problem; the configuration is not tried again."""
        self.sampler.add(configuration, time_ns)
        if self.criterion is not None:
            self.criterion.told(time_ns)

    def learn(self, results: Results, distance: float) -> int:
        """Teach the results of another task, to a sampler that can use them; return how many it has learnt."""
        if not isinstance(self.sampler, Transferring):
            return 0
        learnt = self.sampler.learn(results, distance)
        return len(results) if learnt is None else learnt

    def expected_gain(self) -> float | None:
        """Return the share of the best time that the sampler expects its next proposal to save, where it says so."""
        if not isinstance(self.sampler, Nominating) or not isinstance(self.sampler, Expecting):
            return None
        expected = self.sampler.expected_improvement if self.sampler.nominate(1) else 0.0
        return 1 - 2.0**-expected if math.isfinite(expected) else None

    @property
    def stopped(self) -> Stopped | None:
        """Why nothing more is worth trying; None while something is, or may be."""
        return self.criterion.reached if self.criterion is not None else None

    @property
    def expected_improvement(self) -> float | None:
        """The gain that the sampler still expects, in log2 of the time; None where it is not :class:`Expecting`."""
        return self.sampler.expected_improvement if isinstance(self.sampler, Expecting) else None


def _ending(time_ns: float | None) -> tuple[TrialState, float | None]:
    """Return how a trial ends that takes so long, and its value."""
    return (TrialState.FAIL, None) if objective_of(time_ns) is None else (TrialState.COMPLETE, time_ns)
