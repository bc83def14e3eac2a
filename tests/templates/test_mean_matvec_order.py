"""The order in which blocks of mean_matvec work: everything is done once, in whatever order they come."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.templates.mean_matvec import KERNEL, LAYOUTS, problem
from tests.templates.sources import draw
from tuner.core.model import Configuration
from tuner.kernel.plan import make_plan
from tuner.kernel.roofline import ARCHITECTURES


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
            p = draw(KERNEL, KERNEL.variants[name], of, device, rng)
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
