"""The initial configurations of a kernel's file, settled for one problem on one GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.core.errors import ExpressionError
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.expressions.arithmetic import Expression
from tuner.kernel.spec import InitialSpec, KernelSpec
from tuner.kernel.variant_spec import VariantSpec, first_unmet, index_of

MAX_INITIAL = 10
"""Of a kernel's file, for one problem: they start a search, and do not replace it."""


@dataclass(frozen=True)
class Settled:
    """An initial configuration of the kernel's file, for one problem on one GPU."""

    spec: InitialSpec
    configuration: Configuration | None
    """None where it is not tried."""
    refused: str = ""
    """Why it is not tried."""


Contains = Callable[[Configuration], bool]


def settle(kernel: KernelSpec, problem: Problem, gpu: Gpu, contains: Contains) -> list[Settled]:
    """Settle every initial configuration of a kernel's file, in its order.

    Args:
        kernel: whose file.
        problem: conditions and values depend on its sizes, dtypes and options.
        gpu: and on its limits.
        contains: whether a search may try a configuration; others are refused.
    """
    results: list[Settled] = []
    tried: set[Configuration] = set()
    for spec in kernel.initial:
        settled = _settle(kernel, problem, gpu, contains, spec)
        configuration = settled.configuration
        if configuration in tried:
            settled = Settled(spec, None, "the same as one before it")
        elif configuration is not None and len(tried) == MAX_INITIAL:
            settled = Settled(spec, None, f"beyond the first {MAX_INITIAL}")
        elif configuration is not None:
            tried.add(configuration)
        results.append(settled)
    return results


def settled_default(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, contains: Contains
) -> Configuration | None:
    """Return the first initial configuration that is the default for a problem; None where none is."""
    names = kernel.environment(problem, gpu)
    for spec in kernel.initial:
        one = _settle(kernel, problem, gpu, contains, spec).configuration if spec.default else None
        if one and spec.default and spec.default.holds({**names, **one.values}):
            return one
    return None


def _settle(kernel: KernelSpec, problem: Problem, gpu: Gpu, contains: Contains, spec: InitialSpec) -> Settled:
    names = kernel.environment(problem, gpu)
    variant = kernel.variants[spec.variant]
    refused = ""
    try:
        if reason := variant.refused(names):
            return Settled(spec, None, f"{variant.name} {reason}")
        for values in _in_order(spec, variant, names):
            result = _tried(spec, variant, names, values, contains)
            if isinstance(result, Configuration):
                return Settled(spec, result)
            refused = refused or result
    except ExpressionError as error:
        refused = error.problem
    return Settled(spec, None, refused)


def _in_order(spec: InitialSpec, variant: VariantSpec, names: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the values of all parameters for each of its choices, the cheapest first."""
    lists = {name: given for name, given in spec.parameters.items() if isinstance(given, tuple)}
    by_cost: list[tuple[Any, dict[str, Any]]] = []
    for chosen in itertools.product(*lists.values()):
        picked = dict(zip(lists, chosen, strict=True))
        values: dict[str, Any] = dict(variant.defaults)
        defined = dict(names)
        for name, given in spec.parameters.items():
            value = given.evaluate(defined) if isinstance(given, Expression) else picked.get(name, given)
            defined[name] = values[name] = value
        cost = spec.minimize.evaluate({**names, **values}) if spec.minimize is not None else 0
        by_cost.append((cost, values))
    return [values for _, values in sorted(by_cost, key=lambda item: item[0])]


def _tried(
    spec: InitialSpec,
    variant: VariantSpec,
    names: Mapping[str, Any],
    values: Mapping[str, Any],
    contains: Contains,
) -> Configuration | str:
    """Return the configuration of some values, or why it cannot be tried."""
    if spec.when is not None and not spec.when.evaluate({**names, **values}):
        return f"holds when {spec.when.written}"
    typed: dict[str, Value] = {}
    for name, value in values.items():
        index = index_of(value, variant.parameters[name].values)
        if index is None:
            return f"{name} = {value} is not among its values"
        typed[name] = variant.parameters[name].values[index]
    configuration = Configuration.of(variant.name, typed)
    if contains(configuration):
        return configuration
    unmet = first_unmet(variant.search_conditions, {**names, **typed})
    return "not part of the space that is searched" if unmet is None else f"does not meet {unmet!r}"
