"""The default configuration of a problem, found without its whole space; and those of all problems of one kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tuner.core.errors import SpaceError, TunerError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import first_unmet


def default_configuration(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Configuration | None:
    """Return the default of the kernel's search space: that of the first variant with a valid configuration.

    Returns:
        The variant's defaults, or the valid configuration nearest to them; None where no variant has any.
    """
    names = kernel.environment(problem, gpu)
    for variant in [one for one in kernel.variants.values() if one.is_usable(names)]:
        values = variant.defaults
        if variant.listed is None and first_unmet(variant.search_conditions, {**names, **values}) is None:
            return Configuration.of(variant.name, values)
        try:
            return SearchSpace.from_kernel(kernel, problem, gpu, [variant.name]).default
        except SpaceError:
            continue
    return None


def default_configurations(
    kernel: KernelSpec, problem: Problem, gpu: Gpu
) -> list[tuple[Problem, Configuration]]:
    """Return the defaults of problems with the same dtypes and options, each with one of these problems.

    The first that is valid for a problem is its default: near to a variant's defaults is the same for all problems, so
    that their defaults have one order, that of :func:`preference`. They are gathered from problems that differ in what
    vectors divide, and in magnitude, around the problem itself first and then around the kernel's default sizes.
    """
    defaults: dict[Configuration, Problem] = {}
    around = [sizes for own in (problem.sizes, kernel.problem().sizes) for sizes in _sizes_around(own)]
    for sizes in {tuple(sizes.items()): sizes for sizes in around}.values():
        other = replace(problem, sizes=sizes)
        try:
            default = default_configuration(kernel, other, gpu)
        except TunerError:  # an expression without a value
            continue
        if default is not None:
            defaults.setdefault(default, other)
    ordered = sorted(defaults, key=lambda default: preference(kernel, default))
    return [(defaults[default], default) for default in ordered]


def _sizes_around(own: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield sizes that vectors divide or do not, in all dimensions and in one at a time, and small and large ones."""
    yield dict(own)
    for off in (1, 2, 4):
        yield {name: size + off for name, size in own.items()}
    for other in (1, 16, 4097, 1 << 20):
        yield dict.fromkeys(own, other)
        if len(own) > 1:
            yield from ({**own, name: other} for name in own)


def preference(kernel: KernelSpec, configuration: Configuration) -> tuple[int, int, int, tuple[int, ...]]:
    """Return what orders defaults as a search prefers them: by variant, then as ``VariantSpace.nearest`` has it."""
    variant = kernel.variants[configuration.variant]
    values = configuration.values
    row = tuple(p.values.index(values[p.name]) for p in variant.parameters.values())
    default = (p.values.index(p.default) for p in variant.parameters.values())
    apart = [abs(a - b) for a, b in zip(row, default, strict=True)]
    number = list(kernel.variants).index(configuration.variant)
    return number, sum(map(bool, apart)), sum(apart), row
