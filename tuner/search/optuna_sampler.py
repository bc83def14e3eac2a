"""Our searches as Optuna samplers, for studies of one's own: ``optuna.create_study(sampler=SpaceSampler(space))``.

The objective asks for its configuration with :func:`suggest` and gives the time; storage, callbacks and dashboards are
Optuna's. What a storage already holds is learnt before the first proposal.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.model import Configuration
from tuner.search import make_search
from tuner.space.space import SearchSpace

VARIANT = "variant"
_ALONE = threading.Lock()
"""Held by who asks or tells: ``optimize(n_jobs=...)`` does so from several threads. All samplers share it: with a lock
of its own none could be pickled."""


class SpaceSampler(BaseSampler):
    """Proposes valid configurations of a space, none of them twice.

    The study minimises times, or maximises rates. A trial that fails, is pruned, or whose value is not positive counts
    as a configuration that failed. When all have been tried, the study is stopped.

    Args:
        space: what may be proposed.
        seed: of every random choice.
        name: of one of the tuner's samplers.
    """

    def __init__(self, space: SearchSpace, seed: int = 0, name: str = "kriging") -> None:
        self.space = space
        self._search = make_search(name, space, seed)
        self._independent = RandomSampler(seed)
        self._known: set[int] = set()
        self._distributions = distributions(space)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        """Return the parameters of all variants."""
        return self._distributions

    def sample_relative(
        self,
        study: Study,
        trial: FrozenTrial,  # noqa: ARG002
        search_space: dict[str, BaseDistribution],  # noqa: ARG002
    ) -> dict[str, Any]:
        """Choose a configuration: the variant, and the parameters that it has."""
        with _ALONE:
            for other in study.get_trials(deepcopy=False):
                if other.state.is_finished():
                    self._tell(study, other, other.state, other.values)
            configuration = self._search.ask()
        if configuration is None:
            with contextlib.suppress(RuntimeError):  # not within optimize()
                study.stop()
            return {}
        return parameters(self.space, configuration)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw at random what is no parameter of the space."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Learn the result of a trial."""
        with _ALONE:
            self._tell(study, trial, state, values)

    def _tell(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        configuration = configuration_of(self.space, trial.params)
        if trial.number in self._known or configuration is None:
            return
        self._known.add(trial.number)
        objective = None
        if state is TrialState.COMPLETE and values and values[0] > 0:
            up = study.direction is StudyDirection.MAXIMIZE
            objective = -math.log2(values[0]) if up else math.log2(values[0])
        self._search.tell(configuration, objective)


def suggest(trial: Trial, space: SearchSpace) -> Configuration:
    """Ask a trial for its configuration, with the names that :class:`SpaceSampler` uses."""
    found = distributions(space)
    variant = space.variants[0].name
    if len(space.variants) > 1:
        variant = str(trial.suggest_categorical(VARIANT, [v.name for v in space.variants]))
    names = next(v for v in space.variants if v.name == variant).parameters
    values = {}
    for parameter in names:
        name = _name(space, variant, parameter.name)
        distribution = found[name]
        assert isinstance(distribution, CategoricalDistribution)
        values[parameter.name] = trial.suggest_categorical(name, distribution.choices)
    return Configuration.of(variant, values)  # type: ignore[arg-type]


def distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Return Optuna's distributions for the parameters of all variants."""
    found: dict[str, BaseDistribution] = {}
    if len(space.variants) > 1:
        found[VARIANT] = CategoricalDistribution([variant.name for variant in space.variants])
    for variant in space.variants:
        for parameter in variant.parameters:
            found[_name(space, variant.name, parameter.name)] = CategoricalDistribution(parameter.values)
    return found


def parameters(space: SearchSpace, configuration: Configuration) -> dict[str, Any]:
    """Return a configuration as the parameters of a trial."""
    chosen = {_name(space, configuration.variant, name): value for name, value in configuration.parameters}
    return {VARIANT: configuration.variant, **chosen} if len(space.variants) > 1 else chosen


def configuration_of(space: SearchSpace, chosen: dict[str, Any]) -> Configuration | None:
    """Return the configuration of a trial, or None if it is no configuration of the space."""
    variant = chosen.get(VARIANT, space.variants[0].name)
    for known in space.variants:
        names = {p.name: _name(space, known.name, p.name) for p in known.parameters}
        if known.name == variant and all(name in chosen for name in names.values()):
            found = Configuration.of(variant, {name: chosen[key] for name, key in names.items()})
            return found if space.contains(found) else None
    return None


def _name(space: SearchSpace, variant: str, parameter: str) -> str:
    # Variants may give different values to parameters of the same name, and Optuna does not allow that.
    return parameter if len(space.variants) == 1 else f"{variant}.{parameter}"
