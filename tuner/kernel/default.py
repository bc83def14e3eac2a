"""The default configuration of a problem, found without its whole space; those of all problems of one kind; and the
order of configurations from the simplest on, which says how much each has to gain (:mod:`tuner.tuning.decision`).

That order depends on the kernel's file and the initial configurations, and not on times, the seed, compilers or the
order of the trials, so that two runs that have the same close configurations before them choose the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tuner.core.errors import SpaceError, TunerError
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.kernel.initial import settled_default
from tuner.kernel.space import Allowed, SearchSpace, narrow
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import VariantSpec, first_unmet, index_of


def default_configuration(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Configuration | None:
    """Return the default of the kernel's search space; None where nothing is valid.

    It is the initial configuration that the kernel's file makes the default for such problems, else a plain one.
    """
    conditions = Allowed(kernel, problem, gpu, narrow(kernel, (), {}))
    return settled_default(kernel, problem, gpu, conditions.contains) or plain_default(kernel, problem, gpu)


def plain_default(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Configuration | None:
    """Return the default of the first variant with a valid configuration.

    Returns:
        The variant's defaults, or the valid configuration nearest to them; None where no variant has any.
    """
    names = kernel.environment(problem, gpu)
    for variant in [one for one in kernel.variants.values() if one.is_usable(names)]:
        values = variant.defaults
        if variant.listed is None and first_unmet(variant.search_conditions, {**names, **values}) is None:
            return Configuration.of(variant.name, values)
        try:
            return SearchSpace.from_kernel(kernel, problem, gpu, [variant.name]).variants[0].plain
        except SpaceError:
            continue
    return None


def default_configurations(
    kernel: KernelSpec, problem: Problem, gpu: Gpu
) -> list[tuple[Problem, Configuration]]:
    """Return the plain defaults of problems with the same dtypes and options, each with one of these problems.

    The first that is valid for a problem is its default: near to a variant's defaults is the same for all problems, so
    that their defaults have one order, that of :func:`default_order`. They are gathered from problems that differ in
    what vectors divide, and in magnitude, around the problem itself first and then around the kernel's default sizes.
    """
    defaults: dict[Configuration, Problem] = {}
    around = [sizes for own in (problem.sizes, kernel.problem().sizes) for sizes in _sizes_around(own)]
    for sizes in {tuple(sizes.items()): sizes for sizes in around}.values():
        other = replace(problem, sizes=sizes)
        try:
            default = plain_default(kernel, other, gpu)
        except TunerError:  # an expression without a value
            continue
        if default is not None:
            defaults.setdefault(default, other)
    ordered = sorted(defaults, key=lambda default: default_order(kernel, default))
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


def default_order(kernel: KernelSpec, configuration: Configuration) -> tuple[int, int, int, tuple[int, ...]]:
    """Return what orders defaults as a search prefers them: by variant, then as ``VariantSpace.nearest`` has it."""
    variant = kernel.variants[configuration.variant]
    number = list(kernel.variants).index(configuration.variant)
    return number, *_apart(variant, configuration, variant.defaults)


def _apart(
    variant: VariantSpec, configuration: Configuration, plain: Mapping[str, Value]
) -> tuple[int, int, tuple[int, ...]]:
    """Return in how many values a configuration differs from plain ones, by how many positions, and its own."""
    lists = {name: variant.parameters[name].values for name, _ in configuration.parameters}
    positions = tuple(index_of(value, lists[name]) or 0 for name, value in configuration.parameters)
    usual = (index_of(plain[name], values) or 0 for name, values in lists.items())
    away = [abs(a - b) for a, b in zip(positions, usual, strict=True)]
    return sum(map(bool, away)), sum(away), positions


Simplicity = tuple[float, bool, int, int, int, tuple[int, ...]]
"""Sorts simpler configurations first; two have the same only if they are equal. The first element says in how many
values one differs from the nearest of the initial configurations and the default, and adds a part for the place of that
one in their order."""
PARTS, LAST_PLACE = 5, 4
"""A place counts a fifth of a value, up to the fifth place: of two initial configurations that are equally fast, the
same one wins in each run."""


def distance(a: Configuration, b: Configuration) -> int:
    """Return how many values of two configurations of one variant differ."""
    return sum(value != b.values[name] for name, value in a.parameters)


def simplicity(
    kernel: KernelSpec, default: Configuration, initial: Sequence[Configuration] = ()
) -> Callable[[Configuration], Simplicity]:
    """Return the sort key of a kernel's configurations.

    First come the initial configurations in their order and the default, then those that differ from the nearest of
    these in one value, and so on. Of variants that have none of them, the file's defaults count as if they differed in
    one value. Of equally distant ones those of the default's variant are simpler, then those of the others in the order
    of the kernel's file. Of one variant the one with fewer values that are not the default's is simpler; then the one
    whose values are fewer positions away from those in their lists; at last the one with the earlier values.

    Args:
        kernel: names variants and values in its order.
        default: what a user gets without tuning; of other variants the file's defaults count.
        initial: the initial configurations of the problem.
    """
    order = {name: number for number, name in enumerate(kernel.variants)}
    known = (*initial, default)

    def key(configuration: Configuration) -> Simplicity:
        variant = kernel.variants[configuration.variant]
        own = configuration.variant == default.variant
        plain = {**variant.defaults, **(default.values if own else {})}
        differing, away, positions = _apart(variant, configuration, plain)
        near = [
            distance(configuration, one) + min(place, LAST_PLACE) / PARTS
            for place, one in enumerate(known)
            if one.variant == configuration.variant
        ]
        nearest = min(near, default=1.0 + differing)
        return nearest, not own, order[configuration.variant], differing, away, positions

    return key
