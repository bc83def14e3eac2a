"""Problem sizes at which a tiled kernel is most likely wrong: one off a tile, smaller than all tiles, between tiles.
Where those are not valid, others that are. On a CPU, where nothing has the problem's own sizes, whole tiles too.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, cycle, islice, permutations, product

from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.expressions.arithmetic import WIDE
from tuner.kernel.plan import scalars_of, tensors_of
from tuner.kernel.reference import UNIT_ROUNDOFF, numpy_of
from tuner.kernel.spec import KernelSpec
from tuner.runtime.expressions import Tree

MAX_PROBLEMS = 48
"""Problems around a tile."""
MAX_WIDE_PROBLEMS = 200
"""Problems around products of parameters: more, because a configuration may reject most of them."""
MAX_BETWEEN_PROBLEMS = 96
"""Problems with several tiles, and as many again: a configuration for certain numbers of tiles rejects most of them."""
VERIFIED_PROBLEMS = 12
"""Problems at which a winner is verified, of those that its constraints allow."""
SHARES = (8, 2, 2)
"""Of these, how many are around the tile, between that and the problem's own sizes, and next to these or beyond."""
MAX_ELEMENTS = 1 << 26
"""Product of all sizes: an edge case need not be large."""
MAX_ELEMENTS_BETWEEN = 1 << 36
"""Product of all sizes with several tiles, for configurations that reject small problems: a product of 4096 cubed."""
MAX_LENGTH = 1 << 22
VARIED_ELEMENTS = 1 << 10
"""Of all inputs: a problem with so many tells contents of the inputs apart, and is soon computed."""
MAX_VARIED_ELEMENTS = 1 << 24
"""What NumPy computes on the host in a second or so, if it need not multiply matrices."""
SCALAR_FACTORS = (0.75, 0.625, 0.875)
"""Of other scalars in turn."""
FEW_ELEMENTS = 1 << 16
"""Of all tensors: no reference takes long for so many."""
MAX_LENGTHS = 8
"""Of a dimension, among those that constraints admit."""
DIVIDING = ("%", "//", "ceil_div", "round_up")
ALIGNED = 8
"""Distance from a tile of half of the problems: some variants take only lengths that are multiples of a vector's."""


Fits = Callable[[Problem, Configuration], bool]
"""Whether a configuration claims to work for a problem."""


def edge_case_problems(
    problem: Problem, configuration: Configuration, fits: Fits, kernel: KernelSpec | None = None
) -> Iterator[Problem]:
    """Yield the problems at which a winner is verified, the smallest first, and then others to replace some of them.

    They are a share of each kind, filled up from the first kinds. The problem itself is none of them.

    Args:
        problem: what was tuned.
        configuration: the winner.
        fits: whether it claims to work at other sizes.
        kernel: whose presets and constraints say which sizes there may be.
    """
    if not problem.sizes:
        return
    around = chain(
        tile_edge_problems(problem, configuration),
        tile_product_problems(problem, configuration),
        admitted_problems(problem, configuration, fits, kernel),
    )
    near = near_problems(problem)
    beyond = [*near[:1], *larger_problems(problem), *near[1:]]
    kinds = [
        (case for case in kind if case.sizes != problem.sizes and fits(case, configuration))
        for kind in (around, intermediate_problems(problem), beyond)
    ]
    cases = [case for kind, share in zip(kinds, SHARES, strict=True) for case in islice(kind, share)]
    distinct = {str(case): case for case in chain(cases, islice(chain(*kinds), VERIFIED_PROBLEMS))}
    first = list(distinct.values())[:VERIFIED_PROBLEMS]
    yield from sorted(first, key=lambda case: math.prod(case.sizes.values()))
    yield from list(distinct.values())[VERIFIED_PROBLEMS:]
    yield from (case for case in chain(*kinds) if str(case) not in distinct)


def admitted_problems(
    problem: Problem, configuration: Configuration, fits: Fits, kernel: KernelSpec | None = None
) -> Iterator[Problem]:
    """Yield problems that a configuration admits, small ones first, for one that rejects what is beside its tiles.

    Lengths are multiples of parameters, of their products and of divisors in the constraints, powers of two, and
    numbers of the constraints; each dimension has those that are valid beside the other sizes. Then follow equal
    lengths, the own sizes scaled, exchanged or made longer and shorter in turn, and the presets.
    """
    said, _, others = _said(kernel, problem, configuration) if kernel is not None else (set(), [], [])
    numbers = _numbers(configuration)
    products = {math.prod(some) for count in (1, 2, 3) for some in combinations(numbers, count)}
    steps = sorted(step for step in {*products, math.prod(numbers), *said} if 1 < step <= MAX_LENGTH)
    own, draw = problem.sizes, random.Random(0)
    longest = 2 * max(*own.values(), *steps, 1)
    lengths = {count * step for step in steps for count in (1, 2, 3, 5)} | {1 << power for power in range(23)}
    lengths |= {size + sign * step for size in own.values() for step in steps for sign in (-1, 1)}
    ordered = sorted(length for length in lengths if 0 < length <= longest)
    valid = {name: _valid_lengths(problem, configuration, fits, name, ordered) for name in own}

    def candidates() -> Iterator[Mapping[str, int]]:
        yield {name: some[0] for name, some in valid.items()}
        for _ in range(MAX_PROBLEMS if len(own) > 1 else 0):
            yield {name: draw.choice(some) for name, some in valid.items()}
        yield from ({**own, name: length} for name in own for length in valid[name])
        yield from (dict.fromkeys(own, length) for length in ordered)
        for factor in (8, 4, 2):
            yield {name: max(1, size // factor) for name, size in own.items()}
            for one, other in permutations(own, 2):
                yield {**own, one: max(1, own[one] // factor), other: own[other] * factor}
                yield {**own, one: own[other], other: own[one]}
        yield from others

    most = max(MAX_ELEMENTS, math.prod(own.values()))
    yield from (case for case in _distinct(problem, candidates(), most) if fits(case, configuration))


def _valid_lengths(
    problem: Problem, configuration: Configuration, fits: Fits, name: str, lengths: Sequence[int]
) -> list[int]:
    """Return the smallest lengths of a dimension that are valid beside the others' own, and its own."""
    cases = (replace(problem, sizes={**problem.sizes, name: length}) for length in lengths)
    valid = (case.sizes[name] for case in cases if fits(case, configuration))
    return list(dict.fromkeys([*islice(valid, MAX_LENGTHS), problem.sizes[name]]))


def _said(
    kernel: KernelSpec, problem: Problem, configuration: Configuration
) -> tuple[set[int], list[int], list[Mapping[str, int]]]:
    """Return numbers and divisors of a variant's conditions and grids, the divisors alone, and the presets' sizes."""
    variant = kernel.variants[configuration.variant]
    names = {**problem.dtypes, **problem.options, **problem.sizes, **configuration.values}
    found: set[int] = set()
    divisors: set[int] = set()

    def collect(tree: Tree) -> None:
        value, by = tree, False
        if isinstance(tree, tuple) and tree[0] != "text":
            for part in tree[1:]:
                collect(part)
            if tree[0] in DIVIDING and tree[2] not in problem.sizes:
                with contextlib.suppress(ArithmeticError, KeyError, TypeError, ValueError, TunerError):
                    value, by = WIDE.evaluator(tree[2])(names), True
        if isinstance(value, int) and not isinstance(value, bool):
            (divisors if by else found).add(value)

    conditions = [variant.requires, *(condition for _, condition in variant.constraints_before)]
    for expression in (
        *filter(None, conditions),
        *(side for launch in variant.launches for side in launch.grid),
    ):
        collect(expression.tree)
    presets = [kernel.problem(preset=name).sizes for name in kernel.presets]
    return found | divisors, sorted((n for n in divisors if n > 1), reverse=True), presets


def with_other_scalars(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Problem:
    """Return a problem with other floating-point scalars: a caller of its winner may pass others than the file has.

    They are somewhat smaller, so that a share or a probability stays one; zero stays zero. It is the same problem
    where the reference does not take all of them: two may belong together, such as a scale and its inverse.
    """
    reference = kernel.reference
    if reference.golden or reference.checked_against != "reference":
        return problem
    taken = {name for one in numpy_of(kernel, problem).values() for name in one.names}
    taken |= reference.python.parameters() if reference.python is not None else set()
    optional = {name for names in kernel.elements.values() for name in names}
    others = dict[str, float]()
    for name, (dtype, value) in scalars_of(kernel, problem, gpu).items():
        if dtype not in UNIT_ROUNDOFF or value == 0 or math.isinf(float(value)):
            continue
        if name in taken:
            others[name] = float(value) * SCALAR_FACTORS[len(others) % len(SCALAR_FACTORS)]
        elif name not in optional:
            return problem
    return replace(problem, scalars=others)


def varied_problem(kernel: KernelSpec, problems: Iterable[Problem], gpu: Gpu) -> Problem | None:
    """Return the problem at which inputs get further contents: the smallest that is large enough, or the largest.

    Returns:
        None where all are too large to compute references of several contents on the host.
    """
    every = [(_elements(kernel, problem, gpu), problem) for problem in problems]
    usable = [one for one in every if 0 < one[0] <= MAX_VARIED_ELEMENTS]
    enough = [one for one in usable if _elements(kernel, one[1], gpu, given=True) >= VARIED_ELEMENTS]
    chosen = min if enough else max
    return chosen(enough or usable, key=lambda one: one[0])[1] if usable else None


def tile_edge_problems(problem: Problem, configuration: Configuration, seed: int = 0) -> list[Problem]:
    """Return problems around a configuration's tile: 1, tile - 1, tile + 1, two tiles and a bit, in mixed dimensions.

    Tile lengths are not declared. Each integer parameter and the product of all may be one, which covers blocks,
    vectors and their combinations. The problem's own sizes, one more and one less, are among the lengths, too: a split
    along k rejects small ones, and a variant may be for a single row. Then follow the same problems at multiples of 8
    near the tile, for variants that reject all others.
    """
    numbers = _numbers(configuration)
    largest = sorted({*numbers, math.prod(numbers)}, reverse=True)
    lengths = [length for length in largest if length <= MAX_LENGTH][:4]
    return _unaligned_and_aligned(problem, lengths, seed, MAX_PROBLEMS)


def tile_product_problems(problem: Problem, configuration: Configuration, seed: int = 0) -> list[Problem]:
    """Return problems around the products of any two parameters.

    A walk over groups of tiles, or k in many parts, may be rejected if there are only one or two tiles.
    """
    numbers = _numbers(configuration)
    lengths = {*numbers, *(a * b for a, b in combinations(numbers, 2))}
    return _unaligned_and_aligned(problem, sorted(lengths), seed, MAX_WIDE_PROBLEMS)


def intermediate_problems(problem: Problem) -> list[Problem]:
    """Return problems with an eighth of each size up to all of it, off round lengths by 1, 2, 8 or 64.

    Of each half, the second of which is for configurations that reject most of the first, the largest come first.

    At these sizes persistent blocks have several tiles, and some configurations are for many tiles only. Sizes whose
    product is beyond ``MAX_ELEMENTS_BETWEEN`` are scaled down first. A size below 16 stays as it is.
    """
    draw = random.Random(0)
    count, elements = len(problem.sizes), math.prod(problem.sizes.values())
    scale = min(1.0, (MAX_ELEMENTS_BETWEEN / elements) ** (1 / count))
    candidates: list[dict[str, int]] = []
    for turn in range(8 * MAX_BETWEEN_PROBLEMS):
        off = (ALIGNED, 1, 64, ALIGNED, 2, 64)[turn % 6]
        step = 2 * max(off, ALIGNED)
        sizes = {}
        for name, size in problem.sizes.items():
            steps = int(size * scale * 2 ** draw.uniform(-3, 0)) // step
            sizes[name] = min(size, steps * step + draw.choice((-off, off))) if steps else size
        if sizes != problem.sizes:
            candidates.append(sizes)
    cases = _distinct(problem, candidates, MAX_ELEMENTS_BETWEEN)
    halves = (islice(cases, MAX_BETWEEN_PROBLEMS) for _ in range(2))
    return [
        case for half in halves for case in sorted(half, key=lambda case: -math.prod(case.sizes.values()))
    ]


def no_larger(than: Problem, kernel: KernelSpec, gpu: Gpu, fits: Fits) -> Fits:
    """Return ``fits`` for problems whose tensors hold at most twice as much as another's, or ``FEW_ELEMENTS``.

    A length around a tile may be the side of a cube.
    """
    most = max(FEW_ELEMENTS, 2 * _elements(kernel, than, gpu))
    return lambda case, configuration: fits(case, configuration) and _elements(kernel, case, gpu) <= most


def _elements(kernel: KernelSpec, problem: Problem, gpu: Gpu, *, given: bool = False) -> int:
    """Return how many elements a problem's tensors have, or what is given of them; none if shapes are not valid."""
    with contextlib.suppress(TunerError):
        tensors = tensors_of(kernel, problem, gpu)
        return sum(tensor.count for tensor in tensors if not given or tensor.role != "output")
    return 0


def halved(problem: Problem, share: float) -> Problem:
    """Return a problem whose largest sizes are halved until their product is at most such a share of what it was."""
    sizes = dict(problem.sizes)
    while (
        math.prod(sizes.values()) > share * math.prod(problem.sizes.values())
        and max(sizes.values(), default=1) > 1
    ):
        largest = max(sizes, key=sizes.__getitem__)
        sizes[largest] //= 2
    return replace(problem, sizes=sizes)


def whole_problems(
    problem: Problem, configuration: Configuration, usable: Callable[[Problem], bool], kernel: KernelSpec
) -> list[Problem]:
    """Return problems of whole tiles, powers of two, presets, single rows, even lengths: the first usable of each kind.

    What a kernel does without a rest at the end is other code than with one, and most of its work.

    Args:
        problem: what is tuned.
        configuration: its integer parameters are tile lengths, and so are divisors in its grids.
        usable: whether a problem may be one of them.
        kernel: whose presets count.
    """
    numbers = _numbers(configuration) or [32]
    _, divisors, presets = _said(kernel, problem, configuration)
    names = [*problem.sizes] if len(problem.sizes) > 1 else []
    tiles = dict.fromkeys([math.prod(numbers), math.lcm(*numbers), max(numbers), min(numbers)])
    kinds: list[list[tuple[int, ...]]] = [
        [(2 * tile, 3 * tile) for tile in tiles],
        [(2 * divisor, 3 * divisor) for divisor in divisors],
        [(tile, 2 * tile) for tile in (128, 64, 32)],
        *([tuple(sizes.values())] for sizes in presets),
        *([tuple(1 if other == name else 40 for other in names)] for name in names),
        [(2 * tile,) for tile in tiles],
        [(3 * tile + 2, 2 * tile + 2) for tile in tiles],
        [(tile,) for tile in tiles],
    ]
    first: list[Mapping[str, int]] = []
    for kind in kinds:
        sizes = (dict(zip(problem.sizes, cycle(lengths), strict=False)) for lengths in kind)
        cases = filter(usable, _distinct(problem, sizes, MAX_ELEMENTS))
        first += [case.sizes for case in islice(cases, 1)]
    return list(_distinct(problem, first))


def near_problems(problem: Problem) -> list[Problem]:
    """Return problems that differ from the own sizes by a vector or by one, in all dimensions alike or alternately.

    They are as large as the problem itself, whatever ``MAX_ELEMENTS`` says, so they come last.
    """
    candidates = []
    for off, first, others in product((ALIGNED, 1), (-1, 1), (-1, 1)):
        signs = (first * others**index for index in range(len(problem.sizes)))
        sizes = {
            name: size + sign * off for (name, size), sign in zip(problem.sizes.items(), signs, strict=True)
        }
        if min(sizes.values()) >= 1:
            candidates.append(sizes)
    return list(_distinct(problem, candidates))


def larger_problems(problem: Problem) -> list[Problem]:
    """Return problems with nearly twice one of the sizes: a grid or a table may end just behind the own ones."""
    sizes = (
        {**problem.sizes, name: 2 * size - ALIGNED} for name, size in problem.sizes.items() if size > ALIGNED
    )
    return list(_distinct(problem, sizes, MAX_ELEMENTS))


def _numbers(configuration: Configuration) -> list[int]:
    return [
        v for _, v in configuration.parameters if isinstance(v, int) and not isinstance(v, bool) and v > 1
    ]


def _distinct(
    problem: Problem, candidates: Iterable[Mapping[str, int]], max_elements: float = math.inf
) -> Iterator[Problem]:
    """Yield a problem for each of the candidates' sizes, each once, up to a number of elements."""
    seen: set[tuple[int, ...]] = set()
    for sizes in candidates:
        lengths = tuple(sizes.values())
        if lengths not in seen and math.prod(lengths) <= max_elements:
            seen.add(lengths)
            yield replace(problem, sizes=dict(sizes))


def _unaligned_and_aligned(problem: Problem, lengths: Sequence[int], seed: int, most: int) -> list[Problem]:
    """Return problems off the lengths by one, and then as many off by a vector."""
    cases = [
        case.sizes
        for off in (1, ALIGNED)
        for case in islice(
            _distinct(problem, _around(problem, lengths or [32], seed, off, 8 * most), MAX_ELEMENTS), most
        )
    ]
    return list(_distinct(problem, cases))


def _around(
    problem: Problem, lengths: Sequence[int], seed: int, off: int, draws: int
) -> Iterator[dict[str, int]]:
    """Yield sizes that are so far off the lengths: the smallest first, then as many as are drawn."""
    names = list(problem.sizes)
    odd = [2 * length + 3 * off for length in lengths] if len(names) == 1 else []
    beside = (n for length in lengths for n in (length - off, length + off, 2 * (length + off)))
    around = sorted({n for n in (*beside, *odd) if n >= 1})
    draw = random.Random(seed)
    yield dict.fromkeys(names, off)
    if len(names) == 1:
        yield from ({names[0]: n} for n in around)
        return
    smallest = min(lengths) + off
    mixed = (choice for choice in product((off, smallest), repeat=len(names)) if len(set(choice)) > 1)
    yield from (dict(zip(names, choice, strict=True)) for choice in islice(mixed, 3))
    own = {name: [size, size + off, max(off, size - off)] for name, size in problem.sizes.items()}
    for turn in range(draws):
        # Every second case has small sizes only, so that both kinds are among the first.
        yield {name: draw.choice(around + (own[name] if turn % 2 else [])) for name in names}
