"""The order of configurations from the simplest on: how much each has to gain (:mod:`tuner.tuning.decision`).

It depends on the kernel's file and the initial configurations, and not on times, the seed, compilers or the order of
the trials, so that two runs that have the same close configurations before them choose the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.core.model import Configuration
from tuner.kernel.spec import KernelSpec
from tuner.kernel.values import index_of

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
        positions, differing, away = [], 0, 0
        for name, value in configuration.parameters:
            values = variant.parameters[name].values
            position, usual = index_of(value, values) or 0, index_of(plain[name], values) or 0
            positions.append(position)
            differing += position != usual
            away += abs(position - usual)
        near = [
            distance(configuration, one) + min(place, LAST_PLACE) / PARTS
            for place, one in enumerate(known)
            if one.variant == configuration.variant
        ]
        return (
            min(near, default=1.0 + differing),
            not own,
            order[configuration.variant],
            differing,
            away,
            tuple(positions),
        )

    return key
