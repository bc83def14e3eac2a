"""Configurations of a space as the parameters of an Optuna trial, and back.

In a study of one's own, ``optuna.create_study(sampler=...)`` with a sampler over the space, the objective gets the
configuration by :func:`suggest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.distributions import CategoricalDistribution
from optuna.trial import Trial

from tuner.core.model import Configuration
from tuner.kernel.space import SearchSpace

VARIANT = "variant"

Distributions = Mapping[str, CategoricalDistribution]


def suggest(trial: Trial, space: SearchSpace, dists: Distributions | None = None) -> Configuration:
    """Return the configuration of a trial, asking its study's sampler for it.

    Args:
        trial: of a study whose sampler is one over this space.
        space: what may be tried.
        dists: :func:`distributions` of the space; computed when left out.
    """
    dists = distributions(space) if dists is None else dists
    variant = space.variants[0].name
    if len(space.variants) > 1:
        variant = str(trial.suggest_categorical(VARIANT, [v.name for v in space.variants]))
    values: dict[str, Any] = {}
    for parameter in next(v for v in space.variants if v.name == variant).parameters:
        name = _name(space, variant, parameter.name)
        values[parameter.name] = trial.suggest_categorical(name, dists[name].choices)
    return Configuration.of(variant, values)


def distributions(space: SearchSpace) -> dict[str, CategoricalDistribution]:
    """Return Optuna's distributions for the parameters of all variants."""
    dists: dict[str, CategoricalDistribution] = {}
    if len(space.variants) > 1:
        dists[VARIANT] = CategoricalDistribution([variant.name for variant in space.variants])
    for variant in space.variants:
        for parameter in variant.parameters:
            dists[_name(space, variant.name, parameter.name)] = CategoricalDistribution(parameter.values)
    return dists


def parameters_of(space: SearchSpace, configuration: Configuration) -> dict[str, Any]:
    """Return a configuration as the parameters of a trial: the variant, and the parameters that it has."""
    chosen = {_name(space, configuration.variant, name): value for name, value in configuration.parameters}
    return {VARIANT: configuration.variant, **chosen} if len(space.variants) > 1 else chosen


def configuration_of(space: SearchSpace, parameters: Mapping[str, Any]) -> Configuration | None:
    """Return the configuration of a trial's parameters, or None if it is no configuration of the space."""
    name = parameters.get(VARIANT, space.variants[0].name)
    variant = next((variant for variant in space.variants if variant.name == name), None)
    if variant is None:
        return None
    keys = {p.name: _name(space, variant.name, p.name) for p in variant.parameters}
    if not all(key in parameters for key in keys.values()):
        return None
    configuration = Configuration.of(variant.name, {name: parameters[key] for name, key in keys.items()})
    return configuration if space.contains(configuration) else None


def _name(space: SearchSpace, variant: str, parameter: str) -> str:
    # Variants may give different values to parameters of the same name, and Optuna does not allow that.
    return parameter if len(space.variants) == 1 else f"{variant}.{parameter}"
