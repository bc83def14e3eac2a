"""Sizes at which a tool that is a hundred times slower than the kernel ends soon, and kernels still go wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from tuner.edges import edge_problems, wide_edge_problems
from tuner.model import Configuration, Problem
from tuner.space import SearchSpace

MOST_WORK = 1 << 22
"""Of the product of all sizes: racecheck follows every access, and makes some kernels a thousand times slower."""


def small_problems(
    problem: Problem, configuration: Configuration, fits: Callable[[Problem], bool], count: int, seed: int = 0
) -> list[Problem]:
    """Give sizes around a configuration's tile, from the smallest to the one with the longest shortest dimension.

    Args:
        problem: whose dtypes and options they have.
        configuration: whose tile they go around.
        fits: whether the configuration may be run at a size.
        count: how many at most.
        seed: of the mixed sizes.

    Returns:
        At least one problem: the smallest that is allowed, where none is small.
    """
    fitting: list[Problem] = []
    for make in (edge_problems, wide_edge_problems):  # the second are many, and few configurations need them
        fitting += [candidate for candidate in make(problem, configuration, seed) if fits(candidate)]
        if affordable := [candidate for candidate in fitting if _work(candidate) <= MOST_WORK]:
            break
    fitting += [problem] if fits(problem) else []
    small = sorted(affordable, key=_balance) or [min(fitting or [problem], key=_work)]
    if len(small) <= count:
        return small
    last = len(small) - 1
    places = [last] if count == 1 else [round(i * last / (count - 1)) for i in range(count)]
    return [small[place] for place in dict.fromkeys(places)]


def _balance(problem: Problem) -> list[int]:
    """Order by the shortest dimension first: a kernel whose tiles are whole in no dimension shows little."""
    return sorted(problem.sizes.values())


def _work(problem: Problem) -> int:
    return math.prod(problem.sizes.values())


def sample(space: SearchSpace, count: int, seed: int) -> list[Configuration]:
    """Draw configurations without repetition, from the variants in turn: a large one must not hide the small ones."""
    draw = random.Random(seed)
    rows: list[Sequence[int]] = [draw.sample(range(len(v)), min(count, len(v))) for v in space.variants]
    chosen = []
    for turn in range(count):
        chosen += [
            v.configuration(own[turn]) for v, own in zip(space.variants, rows, strict=True) if turn < len(own)
        ]
    return chosen[:count]
