"""Configurations at small sizes, planned and compiled for a process that a tool watches."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from msgspec import structs

from tuner.children.compilation import RenderRequest, SourceRequest
from tuner.children.compile_pool import CompilePool
from tuner.children.job import CaseRun
from tuner.children.measuring import Candidate, ProblemSetup, ReferenceData
from tuner.core.errors import CompileError, DeviceError, TunerError
from tuner.core.model import Configuration, Gpu, Problem, Resources, Status
from tuner.devices.requests import Requests
from tuner.kernel.edge_sizes import ALIGNED, admitted_problems, tile_edge_problems, tile_product_problems
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launches import Buffer, Launch, Plan


@dataclass(frozen=True)
class Case:
    """A configuration, and the problem that it is to compute."""

    problem: Problem
    configuration: Configuration

    def __str__(self) -> str:
        return f"{self.configuration} at {self.problem.sizes_text}"


@dataclass(frozen=True)
class Unit:
    """A case that can be run."""

    number: int
    case: Case
    candidate: Candidate
    setup: ProblemSetup
    resources: tuple[Resources, ...] = ()
    """Of each launch."""

    @property
    def entries(self) -> tuple[str, ...]:
        """Its kernels' names in the cubins."""
        return self.candidate.entries


LeftOut = tuple[Case, str]
"""A case that cannot be run, and why."""


def compile_cases(
    kernel: KernelSpec, gpu: Gpu, pool: CompilePool, cases: Sequence[Case], golden: Problem
) -> tuple[list[Unit], list[LeftOut]]:
    """Plan and compile cases, all of them at once.

    Args:
        kernel: whose configurations they are.
        gpu: that they are for.
        pool: compiles them.
        cases: numbered from 0 in this order.
        golden: the problem that the kernel's golden files are about, if it has any: they are of one size.

    Raises:
        DeviceError: the kernel's CUDA reference does not compile.
    """
    waits = [pool.submit(RenderRequest(kernel.file, case.problem, gpu, case.configuration)) for case in cases]
    requests = Requests(kernel, gpu, pool)
    setups: dict[str, ProblemSetup | str] = {}
    units: list[Unit] = []
    left_out: list[LeftOut] = []
    for number, (case, wait) in enumerate(zip(cases, waits, strict=True)):
        compilation = wait.result()
        if compilation.status is not Status.OK:
            kind = "" if compilation.status is Status.INVALID_CONFIG else f"{compilation.status}: "
            left_out.append((case, kind + compilation.error))
            continue
        if compilation.call is not None:
            left_out.append((case, "it is a call, and has no code of its own"))
            continue
        key = case.problem.key
        if key not in setups:
            setups[key] = _setup(requests, case.problem, with_golden=case.problem == golden)
        setup = setups[key]
        if isinstance(setup, str):
            left_out.append((case, setup))
            continue
        units.append(Unit(number, case, compilation.candidate, setup, compilation.resources))
    return units, left_out


def _setup(requests: Requests, problem: Problem, *, with_golden: bool) -> ProblemSetup | str:
    """Describe tensors and reference of a problem, or say why there are none."""
    try:
        setup = requests.problem_setup(problem)
    except DeviceError:
        raise
    except TunerError as error:
        return str(error)
    if with_golden:
        return setup
    return structs.replace(setup, reference=structs.replace(setup.reference, golden={}))


def as_runs(units: Sequence[Unit]) -> tuple[tuple[ProblemSetup, ...], tuple[CaseRun, ...]]:
    """Return units as ``setups`` and ``runs`` of a job; units of one problem share its setup."""
    setups: list[ProblemSetup] = []
    indices: dict[int, int] = {}
    runs = []
    for unit in units:
        if id(unit.setup) not in indices:
            indices[id(unit.setup)] = len(setups)
            setups.append(unit.setup)
        runs.append(CaseRun(unit.number, indices[id(unit.setup)], unit.candidate))
    return tuple(setups), tuple(runs)


# -- sizes at which a tool that is a hundred times slower than the kernel ends soon, and kernels still go wrong

MOST_WORK = 1 << 22
"""Of the product of all sizes: racecheck follows every access, and makes some kernels a thousand times slower."""
MOST_WIDE_WORK = 1 << 29
"""The same of the one problem that has more tiles than an H200 has SMs, if they are no larger than 256 x 192."""
MOST_LONG_WORK = 1 << 27
"""The same of one that is long in one dimension and a tile and a bit in the others: under racecheck a product of 144 x
144 with k = 25528 took more than two minutes on an H200."""
SHORT, SHALLOW = 5 * ALIGNED, 9 * ALIGNED
"""Less than a tile; and a bit more than the depth of most."""


def small_problems(
    problem: Problem, configuration: Configuration, fits: Callable[[Problem], bool], count: int, seed: int = 0
) -> list[Problem]:
    """Return sizes around a configuration's tile, each of which lets another part of a kernel go wrong.

    First that with the longest shortest dimension, which ends beside its tiles; one that is long in its last dimension
    and short in the others, so that the buffers of a product are used again and again; one that is wide in two
    dimensions, so that persistent blocks have several tiles; the smallest; those that are long in the others; and what
    lies between. None is longer in a dimension than the problem, but for what is around the tile.

    Args:
        problem: whose dtypes and options they have.
        configuration: whose tile they go around.
        fits: whether the configuration may be run at a size.
        count: how many at most.
        seed: of the mixed sizes.

    Returns:
        At least one problem: where none is small, the smallest that the configuration admits.
    """
    admitted = admitted_problems(problem, configuration, lambda candidate, _: fits(candidate))
    fitting: list[Problem] = []
    # The tiles' products are many, and few configurations need them.
    for candidates in (
        tile_edge_problems(problem, configuration, seed),
        tile_product_problems(problem, configuration, seed),
        admitted,
    ):
        fitting += [candidate for candidate in candidates if fits(candidate)]
        if small := [one for one in fitting if _work(one) <= MOST_WORK]:
            break
    if not small:
        tile = max((int(n) for n in configuration.values.values() if not isinstance(n, str)), default=1)
        # Of the smallest, what ends beside its tiles, whose last ones are only partly full.
        smallest = sorted(fitting or [problem], key=_work)[: 2 * count]
        small = sorted(smallest, key=lambda one: sum(size % tile != 0 for size in one.sizes.values()))[
            -count:
        ]
    # The shortest dimension first: a kernel whose tiles are whole in no dimension shows little.
    small.sort(key=lambda one: sorted(one.sizes.values()))
    long = [[one for one in _long(problem, name) if fits(one)][:1] for name in problem.sizes]
    wide = [one for one in _wide(problem) if fits(one)][:1]
    between = [small[len(small) * i // count] for i in range(count)]
    wanted = [small[-1], *long[-1], *wide, small[0], *chain(*long[-2::-1]), *between]
    return list({str(one): one for one in wanted}.values())[:count]


def _long(problem: Problem, name: str) -> list[Problem]:
    """Return those that are as long in a dimension as is affordable: in whole vectors, none whole, and less short."""
    others, longest_ones = len(problem.sizes) - 1, []
    for short, work in ((SHORT, MOST_WORK), (2 * SHALLOW, MOST_LONG_WORK))[: 2 if others else 1]:
        longest = (work // (short + 1) ** others - 1) // ALIGNED * ALIGNED
        longest_ones += [_sized(problem, short + off, {name: longest + off}) for off in (0, 1)]
    return longest_ones


def _wide(problem: Problem) -> list[Problem]:
    """Return those that are as wide in all but one of at least three dimensions as is affordable."""
    others = len(problem.sizes) - 1
    if others < 2:
        return []
    width = int((MOST_WIDE_WORK // (SHALLOW + 1)) ** (1 / others)) // ALIGNED * ALIGNED - ALIGNED
    return [
        _sized(problem, width + off, {name: SHALLOW + off})
        for name in list(problem.sizes)[::-1]
        for off in (0, 1)
    ]


def _sized(problem: Problem, length: int, other: dict[str, int]) -> Problem:
    """Return every dimension a length, but some another, and none one beyond the problem's own."""
    return replace(problem, sizes={n: min(own, other.get(n, length)) for n, own in problem.sizes.items()})


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


# -- kernels with one known fault each
#
# A compute-sanitizer that does not fit the driver can end with a clean summary without having looked at anything: one
# that sees nothing wrong with these cannot be relied on for others.

THREADS = 64
NUMBER = -1
"""Of the planted unit, where others are numbered from 0."""
FAULTS = {
    "memcheck": "writes behind the end of a tensor",
    "racecheck": "reads shared memory that another warp may not have written yet",
    "synccheck": "has a barrier that half of a warp does not reach",
    "initcheck": "reads memory that nothing has written",
}
SOURCE = """\
extern "C" __global__ void planted_memcheck(float* out) { out[threadIdx.x + 1] = threadIdx.x; }

extern "C" __global__ void planted_racecheck(float* out) {
    __shared__ float values[64];
    values[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = values[63 - threadIdx.x];
}

extern "C" __global__ void planted_synccheck(float* out) {
    __shared__ float values[64];
    values[threadIdx.x] = threadIdx.x;
    if (threadIdx.x % 2 == 0) __syncthreads();
    out[threadIdx.x] = values[63 - threadIdx.x];
}

extern "C" __global__ void planted_initcheck(float* out) { out[threadIdx.x] += 1.0f; }
"""


def planted(tool: str, gpu: Gpu, pool: CompilePool) -> Unit:
    """Compile the kernel that has what a tool looks for.

    Raises:
        CompileError: it does not compile.
    """
    entry = f"planted_{tool}"
    compilation = pool.compile(SourceRequest(SOURCE, entry, gpu, ()))
    if compilation.status is not Status.OK:
        raise CompileError(
            f"the kernel that tries {tool} does not compile: {compilation.error}", "run `tune doctor`"
        )
    out = Buffer("out", (THREADS,), "float32", "output")
    launch = Launch((1, 1, 1), (THREADS, 1, 1), 0, (("buffer", "out", 0),))
    candidate = Candidate(Plan((launch,), ()), compilation.cubins, compilation.entries)
    case = Case(Problem("planted", {"n": THREADS}, {"input": "float32"}), Configuration(tool, ()))
    return Unit(NUMBER, case, candidate, ProblemSetup((out,), ReferenceData("float32")))
