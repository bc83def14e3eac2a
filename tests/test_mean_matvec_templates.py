"""The templates of mean_matvec: compiled for every architecture, and run on the host in many orders, without a GPU."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.sources import GENERATIONS
from tuner.compile.nvrtc import Cubin, compile_source
from tuner.emulator.host import COMPILER, HostArray, HostConfiguration, HostKernel, Schedule
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan, tensors_of
from tuner.kernel.render import render, render_launch
from tuner.kernel.tolerance import tolerance
from tuner.kernel.variant_spec import VariantSpec
from tuner.model import Configuration, Gpu, Problem
from tuner.runtime.dtypes import ITEMSIZE
from tuner.space.space import SearchSpace
from tuner.space.validity import invalid_reason, pruning_reason

KERNEL = load_kernel("mean_matvec")
DTYPES = ("float32", "float16", "bfloat16")
LAYOUTS = ("nml", "mnl")
PRODUCTS = ("float32", "tf32")

PTX_WIDTH = re.compile(r"ld\.global(?:\.nc)?(?:\.L1::no_allocate)?(?:\.v(\d))?\.[bfus](\d+)")


def problem(
    dtype: str = "float32", layout: str = "nml", product: str = "float32", sizes: tuple[int, ...] = ()
) -> Problem:
    return KERNEL.problem(
        dict(zip(KERNEL.sizes, sizes, strict=False)),
        {"": dtype},
        {"layout": layout, "product": product},
    )


def broken(variant: VariantSpec, parameters: Mapping[str, Any], of: Problem, device: Gpu) -> list[str]:
    names = {**KERNEL.environment(of, device), **parameters}
    return [reason for reason, condition in variant.constraints_before if not condition.evaluate(names)]


def draw(variant: VariantSpec, of: Problem, device: Gpu, rng: random.Random) -> dict[str, Any]:
    for _ in range(100_000):
        parameters = {name: rng.choice(p.values) for name, p in variant.parameters.items()}
        if not broken(variant, parameters, of, device):
            return parameters
    raise AssertionError(f"{variant.name} has next to no valid configurations")


def compiled(configuration: Configuration, of: Problem, device: Gpu) -> list[Cubin]:
    """Compile all launches, and check the limits of each."""
    results = []
    plan = make_plan(KERNEL, of, device, configuration)
    for (source, entry), launch in zip(render(KERNEL, of, device, configuration), plan.launches, strict=True):
        assert "#include" not in source
        result = compile_source(source, entry, device.arch)
        assert "warning" not in result.log, result.log
        warps = -(-launch.threads // 32)
        assert -(-result.resources.registers // 8) * 8 * 32 * warps <= device.registers_per_sm
        assert result.resources.static_shared_bytes + launch.shared_bytes <= device.shared_bytes_optin
        results.append(result)
    return results


def ptx(source: str, cc: int) -> str:
    from cuda.bindings import nvrtc

    program = nvrtc.nvrtcCreateProgram(source.encode(), b"mean_matvec.cu", 0, [], [])[1]
    options = [f"--gpu-architecture=compute_{cc}", "--std=c++17", "--device-as-default-execution-space"]
    encoded = [option.encode() for option in options]
    assert nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS
    text = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    return str(text, "ascii")


# -- what compiles


def default_cases() -> Iterator[Any]:
    # Every generation, and every kind of problem.
    kinds = (
        ("float32", "nml", "float32"),
        ("float32", "nml", "tf32"),
        ("float16", "mnl", "tf32"),
        ("bfloat16", "nml", "float32"),
    )
    for name, variant in KERNEL.variants.items():
        usable = {
            kind: [
                cc
                for cc in GENERATIONS
                if variant in KERNEL.usable_variants(problem(*kind), ARCHITECTURES[cc])[0]
            ]
            for kind in kinds
        }
        unseen = set().union(*usable.values())
        for number in itertools.count():
            kind = kinds[number % len(kinds)]
            cc = max(unseen.intersection(usable[kind]), default=90)
            if number >= len(kinds) and cc not in unseen:
                break
            unseen.discard(cc)
            yield pytest.param(name, *kind, cc, id="-".join((name, *kind, str(cc))))


@pytest.mark.parametrize(("name", "dtype", "layout", "product", "cc"), list(default_cases()))
def test_defaults_compile_without_spills(name: str, dtype: str, layout: str, product: str, cc: int) -> None:
    of, device = problem(dtype, layout, product), ARCHITECTURES[cc]
    default = Configuration.of(name, KERNEL.variants[name].defaults)
    if cc > 100 and invalid_reason(KERNEL, of, device, default):  # a block has less shared memory there
        default = SearchSpace.from_kernel(KERNEL, of, device, [name]).default
    assert not invalid_reason(KERNEL, of, device, default)
    assert not pruning_reason(KERNEL, of, device, default)
    for result in compiled(default, of, device):
        assert result.resources.spill_bytes == 0
        assert result.resources.stack_bytes == 0


@pytest.mark.parametrize(("turn", "name"), list(enumerate(KERNEL.variants)))
def test_samples_compile(name: str, turn: int) -> None:
    variant, dtype = KERNEL.variants[name], DTYPES[turn % 3]
    rng = random.Random(f"{name} {dtype}")
    layout, product = rng.choice([("nml", "float32"), ("mnl", "tf32")])
    of = problem(dtype, layout, product)
    devices = [d for d in ARCHITECTURES.values() if variant in KERNEL.usable_variants(of, d)[0]]
    device = rng.choice(devices)
    compiled(Configuration.of(name, draw(variant, of, device, rng)), of, device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_reference_compiles(dtype: str, layout: str) -> None:
    launch = KERNEL.reference.cuda
    assert launch is not None
    cc, product = (75, "float32") if layout == "nml" else (90, "tf32")
    source, entry = render_launch(
        KERNEL, launch, problem(dtype, layout, product), ARCHITECTURES[cc], Configuration.of("", {})
    )
    assert "warning" not in compile_source(source, entry, ARCHITECTURES[cc].arch).log


def test_what_each_architecture_has() -> None:
    def names(cc: int, product: str) -> set[str]:
        return {v.name for v in KERNEL.usable_variants(problem(product=product), ARCHITECTURES[cc])[0]}

    everywhere = {"first", "coalesced"}
    assert names(75, "float32") == names(80, "tf32") == everywhere | {"mean_then_product", "fused"}
    assert names(75, "tf32") == everywhere  # float32 products are allowed where tf32 ones are
    assert names(90, "tf32") == names(120, "float32") == set(KERNEL.variants)


def test_every_variant_leaves_a_space_worth_searching() -> None:
    space = SearchSpace.from_kernel(KERNEL, problem(), ARCHITECTURES[90])
    assert space.default == Configuration.of(
        "mean_then_product", KERNEL.variants["mean_then_product"].defaults
    )
    counts = {variant.name: len(variant) for variant in space.variants}
    assert counts["first"] >= 6 and counts["coalesced"] >= 25
    assert all(counts[name] >= 10_000 for name in ("mean_then_product", "fused", "fused_bulk"))


@pytest.mark.parametrize(
    ("dtype", "width"), [(d, w) for d in DTYPES[:2] for w in (1, 2, 4, 8) if w * ITEMSIZE[d] <= 16]
)
def test_vector_width_is_the_width_of_global_loads(dtype: str, width: int) -> None:
    of, device = problem(dtype), ARCHITECTURES[80]
    parameters = {**KERNEL.variants["mean_then_product"].defaults, "vector_width": width, "parts": 1}
    source, _ = render(KERNEL, of, device, Configuration.of("mean_then_product", parameters))[0]
    widths = [int(count or 1) * int(bits) // 8 for count, bits in PTX_WIDTH.findall(ptx(source, 80))]
    assert max(widths) == width * ITEMSIZE[dtype]


def test_products_are_of_the_kind_that_is_asked_for() -> None:
    for name, at in (("mean_then_product", 1), ("fused", 0), ("fused_bulk", 0)):
        for product in PRODUCTS:
            configuration = Configuration.of(name, KERNEL.variants[name].defaults)
            source, _ = render(KERNEL, problem(product=product), ARCHITECTURES[90], configuration)[at]
            text = ptx(source, 90)
            assert ("mma.sync" in text) == ("cvt.rna.tf32.f32" in text) == (product == "tf32")
            assert ("cp.async.bulk" in text) == (name == "fused_bulk")


def test_shared_memory_is_what_the_templates_use() -> None:
    rng = random.Random(3)
    device = ARCHITECTURES[90]
    for name in ("mean_then_product", "fused", "fused_bulk"):
        for dtype in DTYPES[:2]:
            of = problem(dtype)
            p = draw(KERNEL.variants[name], of, device, rng)
            tiles = 2 * (p["block_m"] + p["block_n"]) * (p["block_k"] + 4)
            needed = 4 * max(tiles, p["warps_k"] * p["block_m"] * (p["block_n"] + 4))
            if name != "mean_then_product":
                width = p.get("vector_width", 16 // ITEMSIZE[dtype])
                threads = 32 * p["stream_warps"]
                rows = threads * width // p["slice"]
                needed += 4 * rows * p["slice"] if rows > 1 else 0
            if name == "fused_bulk":
                needed += p["stages"] * p["stage_rows"] * p["slice"] * ITEMSIZE[dtype]
            launch = make_plan(KERNEL, of, device, Configuration.of(name, p)).launches[-1]
            assert needed <= launch.shared_bytes <= needed + 4 * 8 * 32 * 8


# -- what is right


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_reference(layout: str) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(3, 4, 5)), rng.normal(size=(5, 5))
    expression = KERNEL.reference.numpy["y"].settled({"layout": layout})
    value, _ = expression.evaluate({"x": x, "w": w})
    groups = x if layout == "nml" else x.transpose(1, 0, 2)
    assert np.allclose(value, [w @ group.mean(axis=0) for group in groups])


def mean_share(of: Problem) -> float:
    """Return the last argument of the reference."""
    launch = KERNEL.reference.cuda
    assert launch is not None
    value = launch.arguments[-1].value
    assert value is not None
    return float(value.evaluate(KERNEL.environment(of, ARCHITECTURES[90])))


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("sizes", [(2, 1, 1), (2, 1000, 3), (2, 3, 1000), (2, 1024, 1024), (2, 1 << 20, 7)])
def test_the_error_of_a_mean_fits_into_the_magnitude(product: str, sizes: tuple[int, int, int]) -> None:
    """The reference scales what a mean may err by so that the tuner's own bound, times it, is that error."""
    of = problem(product=product, sizes=sizes)
    share = mean_share(of)
    names = KERNEL.environment(of, ARCHITECTURES[90])
    rounding = float(KERNEL.reference.operand_rounding.evaluate(names))
    bound = tolerance(sizes[2], "float32", "float32", 1.0, rounding)
    units = share * bound.coefficient * 2**24
    assert units == pytest.approx(min(sizes[1] + 2, 16 + 2 * sizes[1] ** 0.5))


@pytest.mark.parametrize("sign", ["both", "one"])
def test_float32_means_err_by_less_than_that(sign: str) -> None:
    rng = np.random.default_rng(5)
    for vectors in (1, 2, 5, 100, 4096):
        x = rng.standard_normal((vectors, 1000), np.float32)
        x = np.abs(x) if sign == "one" else x
        total = np.zeros(x.shape[1], np.float32)
        for row in x:  # one by one, which errs the most
            total += row
        error = np.abs(total / np.float32(vectors) - x.astype(np.float64).mean(axis=0))
        allowed = min(vectors + 2, 16 + 2 * vectors**0.5) * 2.0**-24
        assert (error <= allowed * np.abs(x).astype(np.float64).mean(axis=0)).all()


# -- the order of the work


@dataclass
class Slice:
    """As slices.cuh.j2 has it."""

    begin: int
    group: int
    element: int
    width: int


@dataclass
class Work:
    """One problem as the persistent kernels cut it up."""

    groups: int
    vectors: int
    length: int
    slice: int
    parts: int
    block_m: int
    block_n: int
    by_group: bool

    @property
    def positions(self) -> int:
        return self.groups * self.length

    def slice_at(self, number: int) -> Slice:
        if self.by_group:
            of_group = (self.length - 1) // self.slice + 1
            group, element = number // of_group, number % of_group * self.slice
            return Slice(
                group * self.length + element, group, element, min(self.slice, self.length - element)
            )
        begin = number * self.slice
        quotient, rest = number // self.length, number % self.length
        bit = 1
        while bit < self.slice:
            quotient, rest = 2 * quotient, 2 * rest
            assert rest < 2**32
            if rest >= self.length:
                quotient, rest = quotient + 1, rest - self.length
            bit *= 2
        return Slice(begin, quotient, rest, min(self.slice, self.positions - begin))

    def last_group(self, piece: Slice) -> int:
        return (
            piece.group if self.by_group else piece.group + (piece.element + piece.width - 1) // self.length
        )

    def slices_of_groups(self, first: int, groups: int) -> int:
        if self.by_group:
            return groups * ((self.length - 1) // self.slice + 1)
        begin = first * self.length
        return (begin + groups * self.length - 1) // self.slice - begin // self.slice + 1

    @property
    def slices(self) -> int:
        return self.slices_of_groups(0, self.groups)

    @property
    def batches(self) -> int:
        return (self.groups - 1) // self.block_m + 1

    @property
    def tiles_n(self) -> int:
        return (self.length - 1) // self.block_n + 1

    def part(self, part: int) -> range:
        each = -(-self.vectors // self.parts)
        begin = min(part * each, self.vectors)
        return range(begin, begin + min(self.vectors - begin, each))


def some_work(rng: random.Random) -> Work:
    length = rng.choice([1, 2, 3, 5, 8, 31, 32, 33, 64, 100, 257, 1000])
    return Work(
        groups=rng.choice([1, 2, 3, 7, 16, 17, 40, 65]),
        vectors=rng.choice([1, 2, 3, 7, 40]),
        length=length,
        slice=rng.choice([32, 128, 256, 1024]),
        parts=rng.choice([1, 2, 4, 8]),
        block_m=rng.choice([16, 32, 64]),
        block_n=rng.choice([16, 32, 64]),
        by_group=rng.random() < 0.5,
    )


@pytest.mark.parametrize("seed", range(60))
def test_slices_and_parts_cover_everything_once(seed: int) -> None:
    work = some_work(random.Random(seed))
    pieces = [work.slice_at(number) for number in range(work.slices)]
    assert [p for piece in pieces for p in range(piece.begin, piece.begin + piece.width)] == list(
        range(work.positions)
    )
    for piece in pieces:
        assert (piece.group, piece.element) == divmod(piece.begin, work.length)
        assert work.last_group(piece) == (piece.begin + piece.width - 1) // work.length
    assert [m for part in range(work.parts) for m in work.part(part)] == list(range(work.vectors))
    for first in range(0, work.groups, work.block_m):
        groups = min(work.block_m, work.groups - first)
        touching = [
            piece for piece in pieces if piece.group < first + groups and work.last_group(piece) >= first
        ]
        assert work.slices_of_groups(first, groups) == len(touching)


def test_division_bit_by_bit_at_large_sizes() -> None:
    rng = random.Random(11)
    for _ in range(2000):
        length = rng.choice([1, 3, 1000, 2**20 + 7, 2**31 - 1])
        groups = min(2**31 - 1, 2**40 // length)
        work = Work(groups, 1, length, rng.choice([128, 4096]), 1, 16, 16, by_group=False)
        number = rng.randrange(min(work.slices, 2**31 - 1))
        piece = work.slice_at(number)
        assert (piece.group, piece.element) == divmod(number * work.slice, length)


def test_scratch_memory_is_as_large_as_the_work() -> None:
    rng = random.Random(7)
    device = ARCHITECTURES[90]
    for name in ("fused", "fused_bulk"):
        for layout in LAYOUTS:
            of = problem(layout=layout, sizes=(70, 33, 1000))
            p = draw(KERNEL.variants[name], of, device, rng)
            by_group = name == "fused_bulk" and layout == "nml"
            work = Work(70, 33, 1000, p["slice"], p["parts"], p["block_m"], p["block_n"], by_group)
            plan = make_plan(KERNEL, of, device, Configuration.of(name, p))
            scratch = {buffer.name: buffer.count for buffer in plan.scratch}
            assert scratch["counters"] == 3 + work.batches
            assert scratch["tickets"] == (work.slices if work.parts > 1 else 1)
            assert scratch["partial"] == (work.parts * work.positions if work.parts > 1 else 1)
            useful = max(work.slices * work.parts, work.batches * work.tiles_n)
            assert plan.launches[0].grid[0] == min(useful, p["blocks_per_sm"] * device.sm_count)


@dataclass
class Memory:
    """What the blocks share, and what has been done."""

    work: Work
    next_unit: int = 0
    next_tile: int = 0
    ended: int = 0
    ready: list[int] = field(default_factory=list)
    tickets: list[int] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)
    parts: dict[int, set[int]] = field(default_factory=dict)
    means: list[bool] = field(default_factory=list)
    tiles: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.ready = [0] * self.work.batches
        self.tickets = [0] * self.work.slices
        self.means = [False] * self.work.positions

    def take_unit(self) -> int | None:
        unit = self.next_unit
        self.next_unit += 1
        if unit >= self.work.slices * self.work.parts:
            return None
        assert unit not in self.taken
        self.taken.add(unit)
        return unit


Role = Iterator[None]
"""Runs up to the next thing that others can see or change."""


def finish_unit(memory: Memory, unit: int) -> Role:
    work = memory.work
    number, part = divmod(unit, work.parts)
    done = memory.parts.setdefault(number, set())
    done.add(part)
    yield
    memory.tickets[number] += 1
    if memory.tickets[number] < work.parts:
        return
    memory.tickets[number] = 0
    yield
    assert done == set(range(work.parts))
    piece = work.slice_at(number)
    for position in range(piece.begin, piece.begin + piece.width):
        assert not memory.means[position]
        memory.means[position] = True
    yield
    for batch in range(piece.group // work.block_m, work.last_group(piece) // work.block_m + 1):
        memory.ready[batch] += 1
        yield


def stream(memory: Memory) -> Role:
    """The streaming warps of `fused`."""
    while (unit := memory.take_unit()) is not None:
        yield
        yield from finish_unit(memory, unit)


def ask(memory: Memory, ring: deque[int | None], stages: int) -> Role:
    """The asking warp of `fused_bulk`: it runs ahead by as much as the ring holds."""
    while True:
        unit = memory.take_unit()
        while len(ring) >= stages:
            yield
        ring.append(unit)
        if unit is None:
            return
        yield


def add(memory: Memory, ring: deque[int | None]) -> Role:
    """The adding warps of `fused_bulk`."""
    while True:
        while not ring:
            yield
        unit = ring.popleft()
        if unit is None:
            return
        yield from finish_unit(memory, unit)


def multiply(memory: Memory) -> Role:
    work = memory.work
    while True:
        tile = memory.next_tile
        memory.next_tile += 1
        yield
        if tile >= work.batches * work.tiles_n:
            return
        batch = tile // work.tiles_n
        first = batch * work.block_m
        groups = min(work.block_m, work.groups - first)
        while memory.ready[batch] < work.slices_of_groups(first, groups):
            yield
        assert all(memory.means[first * work.length : (first + groups) * work.length])
        assert tile not in memory.tiles
        memory.tiles.add(tile)


def ending(memory: Memory, role: Role, blocks: int) -> Role:
    yield from role
    yield
    memory.ended += 1
    if memory.ended == 2 * blocks:
        memory.next_unit = memory.next_tile = memory.ended = 0
        memory.ready = [0] * len(memory.ready)


def block(memory: Memory, blocks: int, stages: int) -> list[Role]:
    multiplying = ending(memory, multiply(memory), blocks)
    if not stages:
        return [ending(memory, stream(memory), blocks), multiplying]
    ring: deque[int | None] = deque()
    return [ask(memory, ring, stages), ending(memory, add(memory, ring), blocks), multiplying]


@pytest.mark.parametrize("stages", [0, 1, 3])
@pytest.mark.parametrize("seed", range(40))
def test_every_unit_and_tile_is_done_once_in_any_order(seed: int, stages: int) -> None:
    """Whatever the order in which warps run, and however few blocks of the grid run at once."""
    rng = random.Random(seed)
    memory = Memory(some_work(rng))
    work = memory.work
    blocks = rng.choice([1, 2, 5, 12])
    resident = rng.randint(1, blocks)
    waiting = [block(memory, blocks, stages) for _ in range(blocks)]
    running: list[list[Role]] = []
    favoured = rng.choice([None, 0, -1])  # no role, the first (which streams), or the last (which multiplies)
    for _ in range(400 * (work.slices * work.parts + work.batches * work.tiles_n + blocks) + 10_000):
        running = [roles for roles in running if roles]
        while waiting and len(running) < resident:
            running.append(waiting.pop())
        if not running:
            break
        roles = rng.choice(running)
        role = rng.choice(roles) if favoured is None or rng.random() < 0.1 else roles[favoured]
        try:
            next(role)
        except StopIteration:
            roles.remove(role)
    assert not running and not waiting, "a warp waits for ever"
    assert memory.taken == set(range(work.slices * work.parts))
    assert memory.tiles == set(range(work.batches * work.tiles_n))
    assert all(memory.means)
    assert memory.next_unit == memory.next_tile == memory.ended == 0
    assert not any(memory.ready) and not any(memory.tickets)


# -- run on the host

needs_gpp = pytest.mark.skipif(COMPILER is None, reason="needs g++")

SMALL = {"block_m": 16, "block_n": 16, "block_k": 32, "warps_m": 1, "warps_n": 1, "warps_k": 2}
"""Few warps, since each thread is a fiber."""
HOST_CASES: list[tuple[str, tuple[int, int, int], str, str, str, dict[str, Any]]] = [
    ("first", (5, 7, 9), "bfloat16", "nml", "float32", {"block_size": 32}),
    ("coalesced", (5, 7, 37), "float32", "mnl", "float32", {"block_size": 64}),
    ("mean_then_product", (19, 17, 37), "float32", "nml", "float32",
     {**SMALL, "block_size": 128, "slice": 128, "parts": 4}),
    ("mean_then_product", (35, 9, 36), "bfloat16", "mnl", "tf32",
     {**SMALL, "block_size": 128, "slice": 1024, "vector_width": 8, "parts": 1, "block_m": 32, "warps_m": 2}),
    ("fused", (37, 9, 40), "float32", "nml", "float32",
     {**SMALL, "stream_warps": 4, "slice": 128, "unroll": 4, "parts": 2}),
    ("fused", (18, 5, 33), "float32", "mnl", "tf32",
     {**SMALL, "stream_warps": 4, "slice": 512, "vector_width": 1, "unroll": 4, "parts": 1}),
    ("fused_bulk", (21, 19, 36), "float32", "nml", "float32",
     {**SMALL, "stream_warps": 2, "slice": 256, "stage_rows": 4, "stages": 3, "parts": 2}),
    ("fused_bulk", (18, 9, 40), "bfloat16", "mnl", "tf32",
     {**SMALL, "stream_warps": 2, "slice": 256, "stage_rows": 8, "stages": 3, "parts": 4}),
    ("fused_bulk", (7, 6, 37), "float32", "nml", "tf32",
     {**SMALL, "stream_warps": 2, "slice": 256, "stage_rows": 4, "stages": 4, "parts": 1}),
]  # fmt: skip


class OnHost:
    """A configuration built for the host, and for two SMs."""

    def __init__(self, case: int, folder: Path, edit: Callable[[str], str] = str) -> None:
        name, sizes, self.dtype, layout, product, given = HOST_CASES[case]
        self.problem = problem(self.dtype, layout, product, sizes)
        device = dataclasses.replace(ARCHITECTURES[90], sm_count=2)
        parameters = {**KERNEL.variants[name].defaults, **given}
        assert not [
            r for r in broken(KERNEL.variants[name], parameters, self.problem, device) if "KiB" not in r
        ]
        configuration = Configuration.of(name, parameters)
        self.host = HostConfiguration(KERNEL, self.problem, device, configuration, folder, edit)
        rng = np.random.default_rng(case)
        self.tensors = {}
        for buffer in tensors_of(KERNEL, self.problem, device):
            self.tensors[buffer.name] = HostArray(buffer.count, buffer.dtype, 16)
            if buffer.role == "input":
                self.tensors[buffer.name].fill(rng.normal(size=buffer.count))
        groups, vectors, length = sizes
        shape = (groups, vectors, length) if layout == "nml" else (vectors, groups, length)
        x = self.tensors["x"].numbers.astype(np.float64).reshape(shape)
        w = self.tensors["w"].numbers.astype(np.float64).reshape(length, length)
        self.expected = x.mean(axis=1 if layout == "nml" else 0) @ w.T

    def run(self, schedules: list[Schedule]) -> list[npt.NDArray[np.float64]]:
        """Run it once for each schedule, on the same scratch memory."""
        scratch = self.host.scratch(self.problem.sizes)
        results = []
        for schedule in schedules:
            y = self.tensors["y"]
            y.elements.view(np.uint8)[:] = 0xFF
            self.host.run(self.problem.sizes, {**self.tensors, **scratch}, schedule)
            results.append(y.numbers.astype(np.float64).reshape(self.expected.shape))
        return results


SCHEDULES = [Schedule(1), Schedule(2, shuffled=True), Schedule(3, resident=1)]


@needs_gpp
@pytest.mark.parametrize(
    "case", range(len(HOST_CASES)), ids=[f"{c[0]}-{i}" for i, c in enumerate(HOST_CASES)]
)
def test_results_are_right_in_any_order(case: int, tmp_path: Path) -> None:
    host = OnHost(case, tmp_path)
    results = host.run(SCHEDULES)
    rounding = 2.0**-8 if host.dtype == "bfloat16" else 1e-5
    rounding += 2.0**-9 if host.problem.options["product"] == "tf32" else 0
    for result in results:
        assert np.abs(result - host.expected).max() <= rounding * 4
        assert (result == results[0]).all(), "it depends on the order"


@needs_gpp
@pytest.mark.parametrize(
    ("case", "right", "wrong"),
    [
        (2, "means_at += BLOCK_K;", ""),
        (2, "sync_group<STREAM_BARRIER, STREAM_THREADS>();\n        if (first_row)", "if (first_row)"),
        (
            3,
            "        sync_group<PRODUCT_BARRIER, PRODUCT_THREADS>();\n    }\n\n    sums.store",
            "}\n sums.store",
        ),
        (4, "while (acquire_word(counters + READY + batch) < complete)", "while (false)"),
        (6, "rows_are_one_piece(shape, slice, bulk) ? slice.width : SLICE", "SLICE"),
        (7, "rows_are_one_piece(shape, slice, bulk) ? slice.width : SLICE", "slice.width"),
    ],
    ids=["terms", "barrier of rows", "barrier of tiles", "no wait", "pitch", "no pitch"],
)
def test_the_host_finds_faults(case: int, right: str, wrong: str, tmp_path: Path) -> None:
    """What passes above would not pass with a fault in it."""

    found = []

    def edited(source: str) -> str:
        found.append(right in source)
        return source.replace(right, wrong)

    host = OnHost(case, tmp_path, edited)
    assert any(found)
    results = host.run(SCHEDULES)
    assert any(not np.abs(result - host.expected).max() <= 0.05 for result in results)


@needs_gpp
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reference_is_right(layout: str, tmp_path: Path) -> None:
    launch = KERNEL.reference.cuda
    assert launch is not None
    sizes = groups, vectors, length = 3, 11, 300
    of = problem(layout=layout, sizes=sizes)
    source, entry = render_launch(KERNEL, launch, of, ARCHITECTURES[90], Configuration.of("", {}))
    share = mean_share(of)
    kernel = HostKernel(source, entry, tmp_path)
    rng = np.random.default_rng(2)
    shape = (groups, vectors, length) if layout == "nml" else (vectors, groups, length)
    x, w = HostArray(vectors * groups * length, "float32", 4), HostArray(length * length, "float32", 4)
    y, magnitude = HostArray(groups * length, "float64", 8), HostArray(groups * length, "float32", 4)
    for memory in (x, w):
        memory.fill(rng.normal(size=memory.elements.size))
    kernel(groups, 256, 0, Schedule(), x, w, y, magnitude, *map(np.int32, sizes), np.float64(share))
    axis, wide = (1 if layout == "nml" else 0), x.numbers.reshape(shape).astype(np.float64)
    mean, size = wide.mean(axis=axis), np.abs(wide).mean(axis=axis)
    factors = w.numbers.reshape(length, length).astype(np.float64)
    found, largest = (memory.elements.reshape(groups, length) for memory in (y, magnitude))
    assert np.allclose(found, mean @ factors.T, rtol=1e-12, atol=1e-12)
    assert np.allclose(largest, (np.abs(mean) + share * size) @ np.abs(factors).T, rtol=1e-6)
