"""Configurations of a space as the parameters of an Optuna trial, and back; results of another task as those of these.

In a study of one's own, ``optuna.create_study(sampler=...)`` with a sampler over the space, the objective gets the
configuration by :func:`suggest`.

A kernel gains parameters, and loses some; other tools know no variants. What another task has measured with the value
that a parameter has now, or that it had by default, still says how the others matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import CategoricalDistribution
from optuna.trial import Trial

from tuner.core.model import Configuration, Value
from tuner.kernel.space import SearchSpace
from tuner.kernel.variant_space import VariantSpace
from tuner.kernel.variant_spec import ParameterSpec

VARIANT = "variant"

Distributions = Mapping[str, CategoricalDistribution]
Results = Sequence[tuple[Configuration, float | None]]
"""Configurations, each with its time in nanoseconds, or None for a failure."""


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


# -- results of another task


def translated(results: Results, space: SearchSpace) -> Results:
    """Return the results as those of a space's variants; whether it has the configurations is not looked up.

    A parameter that a result lacks has its default. One that the space lacks must have had the value of the first
    result of its variant, which of a run is the default.

    Args:
        results: of one task.
        space: of this one.
    """
    surplus: dict[str, dict[str, Value]] = {}
    here = []
    for configuration, time_ns in results:
        values = dict(configuration.parameters)
        if (variant := _variant_of(configuration, values, space)) is None:
            continue
        own = {parameter.name: parameter for parameter in variant.parameters}
        others = {name: value for name, value in values.items() if name not in own}
        if others != surplus.setdefault(variant.name, others):
            continue
        values = {name: _value_in(of, values.get(name, of.default)) for name, of in own.items()}
        here.append((Configuration.of(variant.name, values), time_ns))
    return here


def winner_of(results: Results, space: SearchSpace) -> Configuration | None:
    """Return the fastest configuration that a search of a space may try, also where its sample lacks it."""
    timed = sorted((time_ns, number) for number, (_, time_ns) in enumerate(results) if time_ns)
    for configuration in (results[number][0] for _, number in timed):
        if space.contains(configuration) or (space.beyond and space.beyond.contains(configuration)):
            return configuration
    return None


def _variant_of(
    configuration: Configuration, values: Mapping[str, Value], space: SearchSpace
) -> VariantSpace | None:
    """Return the variant that a configuration belongs to: by its name, or, without variants, by its parameters."""
    named = {variant.name: variant for variant in space.variants}
    for name in (configuration.variant, values.get(VARIANT)):
        if name in named:
            return named[str(name)]
    if len(named) == 1:
        (only,) = named.values()
        return only if values.keys() & {parameter.name for parameter in only.parameters} else None
    like = [one for one in space.variants if {p.name for p in one.parameters} == values.keys()]
    return like[0] if len(like) == 1 else None


def _value_in(parameter: ParameterSpec, value: Value) -> Value:
    """Return a value with its type here, as some writers make 1 of True, or 2.0 of 2."""
    return next((one for one in parameter.values if one == value), value)
