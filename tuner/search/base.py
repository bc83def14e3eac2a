"""The contract of every sampler: an Optuna sampler that proposes valid configurations of a space, none of them twice.

A sampler of one's own subclasses :class:`SpaceSampler`, and implements how it proposes and what it learns; Optuna's
samplers are wrapped by :mod:`tuner.search.optuna_samplers`. What it may offer beyond this are the protocols at the end,
each of a few methods: a sampler that has them offers them, and the tuner works without.
"""

from __future__ import annotations

import abc
import contextlib
import math
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.core.model import Configuration
from tuner.kernel.space import SearchSpace
from tuner.kernel.variant_space import Mask
from tuner.search.parameters import configuration_of, distributions, parameters_of

Location = tuple[int, int]
"""A configuration as the number of its variant in the space and its row there."""

_LOCK = threading.RLock()
"""Held while a sampler is asked or told: ``optimize(n_jobs=...)`` does so from several threads. All samplers share it,
because a sampler with a lock of its own could not be pickled."""


class SpaceSampler(BaseSampler):
    """Proposes configurations of a space, for a study that minimises times or maximises rates.

    The contract, for every implementation:

    - A proposal is a configuration of the space that was neither proposed nor added before. The first is the space's
      default; those of :meth:`begin_with` follow. When all have been tried, the study is stopped.
    - Any number of trials may run at a time, and they may be told in any order.
    - A failure (a trial that fails or is pruned, a value that is not positive and finite) teaches like a bad result,
      and never stops the search.
    - The same space, seed, and order of calls with the same values give the same configurations.
    - A trial that was enqueued in the study counts as proposed.

    Args:
        space: what may be proposed.
        seed: of every random choice.
    """

    def __init__(self, space: SearchSpace, seed: int = 0) -> None:
        self.space = space
        self.rng = np.random.default_rng(seed)
        self.seen: list[Mask] = [np.zeros(len(variant), dtype=bool) for variant in space.variants]
        """For each variant the rows that were proposed or added."""
        self.unseen: list[int] = [len(variant) for variant in space.variants]
        """For each variant the number of rows that were neither."""
        default = space.locate(space.default)
        assert default is not None
        self._first: list[Location] = [default]
        """Proposed before anything that the sampler chooses itself."""
        self.initial: set[Location] = set()
        """Those of :meth:`begin_with` that a search should stay near."""
        self._distributions: dict[str, BaseDistribution] = {**distributions(space)}
        self._independent = RandomSampler(seed)
        self._running: dict[int, Location] = {}
        """Of the trials that were proposed and not told, by their numbers in the study."""
        self._told_trials: set[int] = set()
        self._settled = 0
        """Number of the first trial in the study that was not told."""

    # -- what the tuner asks for beyond Optuna's contract

    @property
    def exhausted(self) -> bool:
        """Whether everything has been proposed or added."""
        return not any(self.unseen)

    @property
    def opening(self) -> bool:
        """Whether the default, or some of :meth:`begin_with`, still have to be proposed."""
        return not all(map(self._seen, self._first))

    def begin_with(self, configurations: Iterable[Configuration], *, near: bool = True) -> None:
        """Have these proposed after the default, in this order, before anything that the sampler chooses itself.

        Those that are not in the space, or were proposed or added before their turn, are left out.

        Args:
            configurations: to propose.
            near: whether the search should stay near them while they are good.
        """
        located = map(self.space.locate, configurations)
        first = [location for location in located if location is not None]
        self._first += first
        if near:
            self.initial.update(first)

    def add(self, configuration: Configuration, time_ns: float | None) -> None:
        """Learn a result of an earlier run of this very problem; the configuration is not proposed again.

        One that is not in the space (other values, another narrowing) is ignored.
        """
        if (location := self.exclude(configuration)) is not None:
            self._added(location, objective_of(time_ns))

    def exclude(self, configuration: Configuration) -> Location | None:
        """Have a configuration not proposed; nothing is learnt of it.

        Returns:
            Where it is; None if it is not in the space, or was proposed or added before.
        """
        location = self.space.locate(configuration)
        if location is None or self._seen(location):
            return None
        self._see(location)
        return location

    # -- Optuna's contract

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Choose the configuration of a trial, or take note of the one that it was enqueued with."""
        with _LOCK:
            self._learn_from_storage(study)
            fixed = trial.system_attrs.get("fixed_params")
            location = self._propose_next() if fixed is None else self._enqueued(fixed)
        if location is not None:
            self._running[trial.number] = location
        elif fixed is None:
            _stop(study)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        """Return the parameters of all variants."""
        return self._distributions

    def sample_relative(
        self,
        study: Study,  # noqa: ARG002
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return the parameters of the configuration that :meth:`before_trial` chose."""
        location = self._running.get(trial.number)
        return {} if location is None else parameters_of(self.space, self.configuration(location))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw a parameter at random that the space does not have."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Learn the result of a trial."""
        with _LOCK:
            self._learn_trial(study, trial, state, values)
        if self.exhausted and not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            _stop(study)  # one more trial would have a random configuration, valid or not

    # -- for implementations

    @abc.abstractmethod
    def _propose(self) -> Location:
        """Return an unseen configuration; there is at least one."""

    def _proposed(self, location: Location) -> None:
        """Note that a configuration has been proposed, or enqueued."""

    def _told(self, location: Location, objective: float | None) -> None:
        """Learn the result of a configuration that was proposed: log2 of nanoseconds, None for a failure."""

    def _added(self, location: Location, objective: float | None) -> None:
        """Learn the result of a configuration that an earlier run measured."""

    def configuration(self, location: Location) -> Configuration:
        """Return the configuration at a location."""
        return self.space.variants[location[0]].configuration(location[1])

    def draw_variant(self) -> int:
        """Return the number of a random variant that has unseen configurations, each as likely as the others."""
        return int(self.rng.choice(np.flatnonzero(self.unseen)))

    def draw(self, number: int) -> Location:
        """Return a random unseen configuration of a variant."""
        return number, int(self.rng.choice(np.flatnonzero(~self.seen[number])))

    def best_and_random(self, order: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
        """Return at most ``limit`` of an order: its first half of that, and others at random."""
        if len(order) <= limit:
            return order
        best = limit // 2
        return np.append(order[:best], self.rng.choice(order[best:], limit - best, replace=False))

    def _seen(self, location: Location) -> bool:
        return bool(self.seen[location[0]][location[1]])

    def _see(self, location: Location) -> None:
        self.seen[location[0]][location[1]] = True
        self.unseen[location[0]] -= 1

    def _unsee(self, location: Location) -> None:
        self.seen[location[0]][location[1]] = False
        self.unseen[location[0]] += 1

    def _propose_next(self) -> Location | None:
        if self.exhausted:
            return None
        self._first = [location for location in self._first if not self._seen(location)]
        location = self._first.pop(0) if self._first else self._propose()
        assert not self._seen(location)
        self._see(location)
        self._proposed(location)
        return location

    def _enqueued(self, fixed: dict[str, Any]) -> Location | None:
        if (configuration := configuration_of(self.space, fixed)) is None:
            return None
        if (location := self.exclude(configuration)) is not None:
            self._proposed(location)
        return self.space.locate(configuration)

    def _learn_from_storage(self, study: Study) -> None:
        """Learn the trials that other processes, or an earlier one, have put into the study's storage."""
        trials = study.get_trials(deepcopy=False)
        for trial in trials[self._settled :]:
            if trial.number not in self._told_trials and trial.state.is_finished():
                self._learn_trial(study, trial, trial.state, trial.values)
        while self._settled < len(trials) and self._settled in self._told_trials:
            self._settled += 1

    def _learn_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        if trial.number in self._told_trials:
            return
        self._told_trials.add(trial.number)
        value = values[0] if state is TrialState.COMPLETE and values else None
        if value is not None and study.direction is StudyDirection.MAXIMIZE:
            value = 1.0 / value if value > 0 else None
        location = self._running.pop(trial.number, None)
        if location is not None:
            self._told(location, objective_of(value))
        elif (configuration := configuration_of(self.space, trial.params)) is not None:
            self.add(configuration, value)


def _stop(study: Study) -> None:
    """End ``optimize()``; without it there is nothing to end."""
    with contextlib.suppress(RuntimeError):
        study.stop()


def objective_of(time_ns: float | None) -> float | None:
    """Return what samplers learn: log2 of a time, or None for a failure (None, not positive, not finite)."""
    if time_ns is None or not math.isfinite(time_ns) or time_ns <= 0.0:
        return None
    return math.log2(time_ns)


@runtime_checkable
class Nominating(Protocol):
    """Chooses in two steps: what is worth compiling, and later, with more results, what is tried.

    The default and the initial configurations are proposed all the same, as long as the sampler is ``opening``.
    """

    def nominate(self, count: int) -> list[Configuration]:
        """Return configurations to compile that were not proposed, added or nominated before; fewer if few are left.

        Each may be chosen later, tried without having been chosen, or withdrawn.
        """

    def choose(self, nominees: Sequence[Configuration]) -> Sequence[int]:
        """Rank nominees, the most promising first: that is tried next, as an enqueued trial.

        Args:
            nominees: at least one, each nominated and neither chosen, tried nor withdrawn since.

        Returns:
            Indices into ``nominees``.
        """

    def withdraw(self, configuration: Configuration) -> None:
        """Take a nomination back: the configuration may be proposed or nominated again."""


@runtime_checkable
class Transferring(Protocol):
    """Learns from other tasks: the same kernel at another size, in another dtype, on another GPU."""

    def learn(self, results: Sequence[tuple[Configuration, float | None]], distance: float) -> int | None:
        """Learn the results of another task. Its configurations may be proposed like any other.

        Args:
            results: configurations, each with its time there in nanoseconds, or None for a failure.
            distance: how unlike this task is, from 0, as :func:`tuner.database.earlier.distance` says.

        Returns:
            How many were learnt; None for all.
        """


@runtime_checkable
class Expecting(Protocol):
    """Knows the gain that it still expects, so that a stopping criterion can end the search."""

    expected_improvement: float
    """By how much the best candidate for the last proposal was expected to be faster than the best result, in log2 of
    the time; infinite as long as it is not known."""
