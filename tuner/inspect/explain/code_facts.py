"""What a kernel's code says without being run: accesses and their widths, loops, tensor cores, bytes under way.

All counts are static: an instruction counts once, however often it runs. What the source unrolls is unrolled here, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tuner.inspect.explain.hot_path import InFlight, one_side, walk
from tuner.inspect.explain.instructions import GLOBAL, MEMORY, Code, Instruction, Kind, loops
from tuner.inspect.explain.ptx import parse_ptx
from tuner.inspect.explain.sass import parse_sass

WIDEST = 16
"""Bytes of the widest load that every GPU has: 16 for each of 32 threads are four lines of 128 bytes."""


@dataclass(frozen=True)
class Access:
    """Memory instructions of one kind and width."""

    kind: Kind
    width: int
    """Bytes of one thread; 0 where the code does not say."""
    count: int


@dataclass(frozen=True)
class Part:
    """What is in some stretch of code."""

    instructions: int
    accesses: tuple[Access, ...]
    matrix: tuple[tuple[str, int], ...]
    """Tensor core instructions with their number."""
    float: int
    """Floating-point instructions outside of tensor cores."""

    @property
    def global_bytes(self) -> int:
        """Bytes that one thread moves to and from global memory, each instruction taken once."""
        return self.moved(*GLOBAL)

    def moved(self, *kinds: Kind) -> int:
        """Return the bytes that one thread moves by accesses of some kinds."""
        return sum(a.width * a.count for a in self.accesses if a.kind in kinds)

    def widest(self, *kinds: Kind) -> int:
        """Return the bytes of the widest access of some kinds; 0 where there is none."""
        return max((a.width for a in self.accesses if a.kind in kinds), default=0)

    def count(self, *kinds: Kind) -> int:
        """Count the instructions of some memory kinds."""
        return sum(a.count for a in self.accesses if a.kind in kinds)


@dataclass(frozen=True)
class LoopPart:
    """One loop, with what is in the loops inside of it."""

    depth: int
    """1 for a loop that is in no other."""
    part: Part


@dataclass(frozen=True)
class CodeFacts:
    """What is known of one kernel."""

    language: str
    """``PTX`` or ``SASS``."""
    whole: Part
    walk: Part
    """The way that does the work, as :mod:`tuner.inspect.explain.hot_path` takes it: whole tiles, each loop once."""
    loops: tuple[LoopPart, ...]
    """Those on that way which do something; all which do, where bulk copies are among them."""
    in_flight: InFlight
    strides_over_grid: bool = False
    """Whether it asks how many blocks there are, as loops over tiles do; seen in PTX only."""

    @property
    def instructions_per_byte(self) -> float | None:
        """Instructions on the way for each byte of global memory; None where threads move none, or not all."""
        moved = self.walk.global_bytes
        return self.walk.instructions / moved if moved and not self.in_flight.bulk else None


def ptx_facts(text: str, entry: str) -> CodeFacts:
    """Read PTX.

    Raises:
        ValueError: there is no such kernel in the text.
    """
    code = parse_ptx(text, entry)
    grid = any(name.startswith("%nctaid") for i in code.instructions() for name in i.reads)
    return _facts("PTX", code, strides_over_grid=grid)


def sass_facts(text: str, entry: str) -> CodeFacts:
    """Read a listing by ``nvdisasm -c``.

    Raises:
        ValueError: there is no such kernel in the listing.
    """
    return _facts("SASS", parse_sass(text, entry))


def _facts(language: str, code: Code, *, strides_over_grid: bool = False) -> CodeFacts:
    every = loops(code)
    taken = one_side(code)
    way = walk(taken, every)
    # Where the copy engine works, warps have roles of their own, and no single way goes through all of them.
    kept = set(way.blocks)
    shown = every if way.in_flight.bulk else [loop for loop in every if loop.header in kept]
    parts = [
        LoopPart(
            loop.depth, _part(taken.instructions(loop.blocks if way.in_flight.bulk else loop.blocks & kept))
        )
        for loop in shown
    ]
    return CodeFacts(
        language,
        _part(code.instructions()),
        _part(taken.instructions(way.blocks)),
        tuple(loop for loop in parts if loop.part.accesses or loop.part.matrix or loop.part.float),
        way.in_flight,
        strides_over_grid,
    )


def _part(instructions: Iterable[Instruction]) -> Part:
    total, floats = 0, 0
    accesses: Counter[tuple[Kind, int]] = Counter()
    matrix: Counter[str] = Counter()
    for instruction in instructions:
        total += 1
        floats += instruction.kind is Kind.FLOAT
        if instruction.kind in MEMORY:
            accesses[instruction.kind, instruction.width] += 1
        elif instruction.kind is Kind.MATRIX:
            matrix[instruction.opcode] += 1
    ordered = sorted(accesses.items(), key=lambda item: (MEMORY.index(item[0][0]), -item[0][1]))
    return Part(
        total,
        tuple(Access(kind, width, count) for (kind, width), count in ordered),
        tuple(matrix.most_common()),
        floats,
    )
