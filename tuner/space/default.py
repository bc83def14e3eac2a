"""The default configuration of a problem, found without its whole space."""

from __future__ import annotations

from tuner.errors import SpaceError
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Problem
from tuner.space.space import SearchSpace


def default_configuration(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Configuration | None:
    """Return the default of the kernel's search space: that of the first variant with a valid configuration.

    Returns:
        The variant's defaults, or the valid configuration nearest to them; None where no variant has any.
    """
    names = kernel.environment(problem, gpu)
    for variant in kernel.usable_variants(problem, gpu)[0]:
        values = variant.defaults
        if variant.listed is None and all(
            condition.holds({**names, **values}) for _, condition in variant.search_conditions
        ):
            return Configuration.of(variant.name, values)
        try:
            return SearchSpace.from_kernel(kernel, problem, gpu, [variant.name]).default
        except SpaceError:
            continue
    return None
