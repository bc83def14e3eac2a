"""Results of another task as results of this one's configurations, whose parameters may be others.

A kernel gains parameters, and loses some; other tools know no variants. What was measured with the value that a
parameter has now, or that it had by default, still says how the others matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.core.model import Configuration, Value
from tuner.kernel.space import SearchSpace
from tuner.kernel.variant_space import VariantSpace
from tuner.kernel.variant_spec import ParameterSpec
from tuner.search.parameters import VARIANT

Results = Sequence[tuple[Configuration, float | None]]
"""Configurations, each with its time in nanoseconds, or None for a failure."""


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
