"""Sizes at which a tiled kernel is most likely to be wrong: one off its tiles, and smaller than all of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import chain, combinations, islice, product

from tuner.model import Configuration, Problem

MAX_PROBLEMS = 48
MAX_WIDE_PROBLEMS = 200
"""The same around products of parameters, most of which a configuration may refuse."""
MAX_BETWEEN_PROBLEMS = 96
"""Of these, too, a configuration that is for certain numbers of tiles refuses most."""
ENOUGH = 12
"""So many that a configuration's constraints allow are verified."""
SHARES = (8, 2, 2)
"""Of these around the tile; between that and the own size, where persistent blocks have several tiles; beside it."""
MAX_ELEMENTS = 1 << 26
"""Of the product of all sizes: an edge case need not be large, only awkward."""
MAX_ELEMENTS_BETWEEN = 1 << 36
"""The same for configurations that are for nothing small: a product of 4096 cubed."""
MAX_LENGTH = 1 << 22
ALIGNED = 8
"""Lengths are this far from a tile in every second half: some variants take whole vectors only."""


def edge_case_problems(
    problem: Problem, configuration: Configuration, fits: Callable[[Problem, Configuration], bool]
) -> list[Problem]:
    """Choose sizes at which a winner is verified: of each kind its share, the rest of what there is of the first."""
    around = chain(tile_edge_problems(problem, configuration), tile_product_problems(problem, configuration))
    kinds = [
        (one for one in kind if fits(one, configuration))
        for kind in (around, intermediate_problems(problem), near_problems(problem))
    ]
    found = [one for kind, share in zip(kinds, SHARES, strict=True) for one in islice(kind, share)]
    found += islice(chain(*kinds), ENOUGH)
    return list({str(one): one for one in found}.values())[:ENOUGH]


def tile_edge_problems(problem: Problem, configuration: Configuration, seed: int = 0) -> list[Problem]:
    """Return problems around a configuration's tile: 1, tile - 1, tile + 1, two tiles and a bit, in mixed dimensions.

    The tile lengths are not declared anywhere; every integer parameter and their product may be one, which covers
    blocks, vectors and their combinations. The problem's own sizes, one more and one less, are among the lengths, too:
    a split along k, say, has no use for small ones, and a variant may be for a single row. Behind those come the same
    with multiples of 8 near the tile, for variants that refuse all others.
    """
    numbers = _numbers(configuration)
    largest = sorted({*numbers, math.prod(numbers)}, reverse=True)
    return _both(problem, [length for length in largest if length <= MAX_LENGTH][:4], seed, MAX_PROBLEMS)


def tile_product_problems(problem: Problem, configuration: Configuration, seed: int = 0) -> list[Problem]:
    """Return the same around the products of any two parameters.

    A walk over groups of tiles, or k in many parts, may be refused where there is no more than a tile or two.
    """
    numbers = _numbers(configuration)
    lengths = {*numbers, *(one * other for one, other in combinations(numbers, 2))}
    return _both(problem, sorted(lengths), seed, MAX_WIDE_PROBLEMS)


def intermediate_problems(problem: Problem) -> list[Problem]:
    """Return problems with an eighth of each size up to all of it, one off round lengths, 8 or 64; the largest first.

    There persistent blocks have several tiles; and some configurations are for many tiles only. Where the own sizes
    are beyond ``MAX_ELEMENTS_BETWEEN`` all are as much shorter. What is shorter than 16 keeps its length.
    """
    draw = random.Random(0)
    count, own = len(problem.sizes), math.prod(problem.sizes.values())
    scale = min(1.0, (MAX_ELEMENTS_BETWEEN / own) ** (1 / count))
    found: list[Problem] = []
    for turn in range(4 * MAX_BETWEEN_PROBLEMS):
        off = (ALIGNED, 1, 64)[turn % 3]
        step = 2 * max(off, ALIGNED)
        sizes = {}
        for name, size in problem.sizes.items():
            steps = int(size * scale * 2 ** draw.uniform(-3, 0)) // step
            sizes[name] = min(size, steps * step + draw.choice((-off, off))) if steps else size
        candidate = Problem(problem.kernel, sizes, problem.dtypes, problem.options)
        small = math.prod(sizes.values()) <= MAX_ELEMENTS_BETWEEN
        if small and candidate not in found and sizes != problem.sizes:
            found.append(candidate)
    return sorted(found[:MAX_BETWEEN_PROBLEMS], key=lambda one: -math.prod(one.sizes.values()))


def near_problems(problem: Problem) -> list[Problem]:
    """Return problems a vector off the own size in every dimension, and one off: all one way, and the ways in turn.

    These are as large as the problem itself, whatever ``MAX_ELEMENTS`` says, and so the last to be looked at.
    """
    names = list(problem.sizes)
    found: list[Problem] = []
    for off, first, others in product((ALIGNED, 1), (-1, 1), (-1, 1)):
        signs = [first * others**place for place in range(len(names))]
        lengths = [problem.sizes[name] + sign * off for name, sign in zip(names, signs, strict=True)]
        sizes = dict(zip(names, lengths, strict=True))
        candidate = Problem(problem.kernel, sizes, problem.dtypes, problem.options)
        if min(lengths) >= 1 and candidate not in found:
            found.append(candidate)
    return found


def _numbers(configuration: Configuration) -> list[int]:
    return [
        v for _, v in configuration.parameters if isinstance(v, int) and not isinstance(v, bool) and v > 1
    ]


def _both(problem: Problem, lengths: Sequence[int], seed: int, most: int) -> list[Problem]:
    """Return problems one off the lengths, and then as many that are a vector off."""
    found = _around(problem, lengths or [32], seed, 1, most)
    return found + [
        other for other in _around(problem, lengths or [32], seed, ALIGNED, most) if other not in found
    ]


def _around(problem: Problem, lengths: Sequence[int], seed: int, off: int, most: int) -> list[Problem]:
    """Return at most so many problems whose lengths are so far off those given."""
    around = sorted(
        {n for length in lengths for n in (length - off, length + off, 2 * length + 3 * off) if n >= 1}
    )
    names = list(problem.sizes)
    draw = random.Random(seed)
    cases: list[tuple[int, ...]] = [(off,) * len(names)]
    if len(names) == 1:
        cases += [(n,) for n in around]
    else:
        smallest = min(lengths) + off
        mixed = [choice for choice in product((off, smallest), repeat=len(names)) if len(set(choice)) > 1]
        cases += mixed[:3]
        own = {name: [size, size + off, max(off, size - off)] for name, size in problem.sizes.items()}
        for turn in range(8 * most):
            # Every second case has small sizes only, so that both kinds are among the first.
            cases.append(tuple(draw.choice(around + (own[name] if turn % 2 else [])) for name in names))
    found: list[Problem] = []
    for case in cases:
        candidate = Problem(
            problem.kernel, dict(zip(names, case, strict=True)), problem.dtypes, problem.options
        )
        if math.prod(case) <= MAX_ELEMENTS and candidate not in found:
            found.append(candidate)
    return found[:most]
