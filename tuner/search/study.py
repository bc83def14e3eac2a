"""A run's Optuna study: asks its sampler, tells it, and uses the optional abilities of that sampler.

The study holds the trials of this run alone, in memory; results of earlier runs and of other tasks go to the sampler.
The database is the record, from which the study of an interrupted run is rebuilt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tuner.core.model import Configuration
from tuner.kernel.space import SearchSpace
from tuner.search.base import Expecting, Nominating, SpaceSampler, Transferring, objective_of
from tuner.search.parameters import distributions, parameters_of, suggest
from tuner.search.stopping import Stopped, StoppingCriterion

optuna.logging.set_verbosity(optuna.logging.ERROR)


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

    def learn(self, results: Sequence[tuple[Configuration, float | None]], distance: float) -> int:
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
