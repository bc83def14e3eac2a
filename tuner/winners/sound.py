"""Whether a stored problem and configuration are a kernel's: a database may be damaged, or written by others."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.core.model import Configuration, Problem
from tuner.kernel.spec import KernelSpec
from tuner.runtime.dtypes import ITEMSIZE

MOST_SIZE = 2**62


def misfit(kernel: KernelSpec, problem: Problem, configuration: Configuration) -> str:
    """Return why a problem or configuration cannot be one of a kernel's; empty if it can.

    Values that the kernel's file no longer lists are allowed: what was tuned with them still runs.
    """
    for what, given, expected in (
        ("sizes", problem.sizes, kernel.sizes),
        ("dtypes", problem.dtypes, kernel.dtypes),
        ("options", problem.options, kernel.options),
    ):
        if given.keys() != expected.keys():
            return f"its {what} are {_listed(given)}, and those of {kernel.name} {_listed(expected)}"
    for name, size in problem.sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST_SIZE:
            return f"its size {name} is {size!r}"
    if unknown := set(problem.dtypes.values()) - ITEMSIZE.keys():
        return f"there is no dtype {_listed(unknown)}"
    variant = kernel.variants.get(configuration.variant)
    if variant is None:
        return f"{kernel.name} has no variant {configuration.variant!r}"
    values = configuration.values
    if values.keys() != variant.parameters.keys():
        return (
            f"its parameters are {_listed(values)}, and those of {variant.name} {_listed(variant.parameters)}"
        )
    for name, value in values.items():
        if type(value) not in {type(allowed) for allowed in variant.parameters[name].values}:
            return f"its parameter {name} is {value!r}"
    return ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
