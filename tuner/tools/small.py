"""Sizes at which a tool that is a hundred times slower than the kernel ends soon, and kernels still go wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from tuner.edges import ALIGNED, edge_problems, wide_edge_problems
from tuner.model import Configuration, Problem
from tuner.space import SearchSpace

MOST_WORK = 1 << 22
"""Of the product of all sizes: racecheck follows every access, and makes some kernels a thousand times slower."""

CUTS = 300
"""Times that a length is cut, where a configuration is for nothing small: the constraints are asked each time."""


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
        At least one problem: where none is small, the problem's own sizes cut down as far as is allowed.
    """
    fitting: list[Problem] = []
    for make in (edge_problems, wide_edge_problems):  # the second are many, and few configurations need them
        fitting += [candidate for candidate in make(problem, configuration, seed) if fits(candidate)]
        if affordable := [candidate for candidate in fitting if _work(candidate) <= MOST_WORK]:
            break
    small = sorted(affordable, key=_balance)
    if not small:
        least = min(fitting or [problem], key=_work)
        cut = (_cut(least, fits, seed + i) for i in range(count))
        small = sorted({str(one): one for one in cut}.values(), key=_balance)
    if len(small) <= count:
        return small
    last = len(small) - 1
    places = [last] if count == 1 else [round(i * last / (count - 1)) for i in range(count)]
    return [small[place] for place in dict.fromkeys(places)]


def _cut(problem: Problem, fits: Callable[[Problem], bool], seed: int) -> Problem:
    """Shorten one dimension after the other, as long as the configuration may be run; whole vectors stay such."""
    rng = random.Random(seed)
    for _ in range(CUTS):
        name = rng.choice(list(problem.sizes))
        length = int(problem.sizes[name] * rng.uniform(0.5, 0.95))
        if problem.sizes[name] % ALIGNED == 0:
            length -= length % ALIGNED
        candidate = Problem(problem.kernel, {**problem.sizes, name: length}, problem.dtypes, problem.options)
        if length >= 1 and fits(candidate):
            problem = candidate
    return problem


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
