"""One walk through a kernel, the way that does its work, and how many bytes a thread has under way on it.

No loop is taken twice. Where the code may skip something (``if (i < n) ...``), the walk goes through it; of two
branches that exclude each other it takes the one that does clearly more, else the one that does it in fewer
instructions: that for whole tiles.

A load is under way from where it stands to where it is waited for. In SASS that is the first instruction that touches
its registers. In PTX the compiler has not yet arranged the instructions. Within a basic block it brings together loads
that do not depend on each other, as far as there are registers; so there a load ends where it cannot be put off any
further: where an address, a branch or a store to global memory needs what was loaded, at a barrier behind a store to
shared memory that does, and at the end of a block that has used it.

What counts is the place with most bytes under way: within loops, if these have a fair share of the accesses.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tuner.explain.instructions import GLOBAL, Code, CodeLoop, Instruction, Kind, dominators, predecessors

CLEARLY_MORE = 0.6
"""A branch that does less than this share of what another does is not the one for whole tiles. What is done element by
element at the end of an array adds up to half again to what a path for vectors does."""
DONE = {Kind.FLOAT: 4, Kind.MATRIX: 64, Kind.BULK_COPY: 1 << 20}
"""What instructions count for when branches are compared, as bytes of global memory."""


@dataclass(frozen=True)
class InFlight:
    """What one thread has under way at most."""

    loads: int = 0
    load_bytes: int = 0
    copies: int = 0
    """Asynchronous copies of one group."""
    copy_bytes: int = 0
    """Bytes of one group."""
    groups: int = 0
    """Groups of asynchronous copies under way together."""
    bulk: bool = False
    """Whether the copy engine moves data, too; how much is not in the code."""

    @property
    def bytes(self) -> int:
        """Bytes of loads, or of asynchronous copies if those are more."""
        return max(self.load_bytes, self.copy_bytes * self.groups)


@dataclass(frozen=True)
class Walk:
    """The way that does the work."""

    blocks: tuple[int, ...]
    instructions: int
    bytes: int
    """Of global memory, that one thread loads, stores and copies."""
    in_flight: InFlight


@dataclass
class _Way:
    """Where the walk has come to."""

    blocks: tuple[int, ...] = ()
    instructions: int = 0
    done: int = 0
    """Bytes and arithmetic, by :data:`DONE`."""
    bulk: bool = False
    bytes: int = 0
    best: InFlight = field(default_factory=InFlight)
    looped_bytes: int = 0
    """Of :attr:`bytes`, those in loops."""
    looped_best: InFlight = field(default_factory=InFlight)
    """The most that is under way in a loop."""
    pending: list[tuple[int, frozenset[str]]] = field(default_factory=list)
    """Bytes and registers of each load under way."""
    tainted: frozenset[str] = frozenset()
    """PTX: registers whose value needs a load that is under way."""
    pinned: bool = False
    """PTX: shared memory holds such a value."""
    used: bool = False
    """PTX: this block has computed such a value."""
    copies: tuple[int, int] = (0, 0)
    """Number and bytes of the asynchronous copies since the last commit."""

    def go_on(self) -> _Way:
        """Return a copy to go on with."""
        return replace(self, pending=list(self.pending))

    def clear(self) -> None:
        """Wait for everything."""
        self.pending, self.tainted, self.pinned, self.used = [], frozenset(), False, False


def walk(code: Code, loops: Sequence[CodeLoop]) -> Walk:
    """Go through a kernel.

    Args:
        code: of the kernel.
        loops: its loops; a wait for asynchronous copies that stands in one counts before those that do not.
    """
    above, before = dominators(code), predecessors(code)
    looped = frozenset[int]().union(*(loop.blocks for loop in loops))
    rank = {number: i for i, number in enumerate(code.order)}
    named = {bits: number for number, bits in enumerate(above)}
    ways: dict[int, _Way] = {}
    for number in code.order:
        from_above = [other for other in before[number] if rank[other] < rank[number]]
        way = _chosen(from_above, ways, above, named).go_on() if from_above else _Way()
        way.blocks += (number,)
        for instruction in code.blocks[number].instructions:
            _step(way, instruction, ordered=code.ordered, looped=number in looped)
        if way.used:
            way.clear()
        ways[number] = way
    ends = [number for number, block in enumerate(code.blocks) if not block.successors] or [code.order[-1]]
    way = _chosen(ends, ways, above, named)
    _close(way)
    steady = 2 * way.looped_bytes >= way.bytes - way.looped_bytes and way.looped_best.load_bytes > 0
    loads = way.looped_best if steady else way.best
    in_flight = replace(
        way.best,
        loads=loads.loads,
        load_bytes=loads.load_bytes,
        groups=_groups(code, looped) if way.best.copies else 0,
        bulk=way.bulk,
    )
    return Walk(way.blocks, way.instructions, way.bytes, in_flight)


def _chosen(
    candidates: Sequence[int], ways: dict[int, _Way], above: Sequence[int], named: dict[int, int]
) -> _Way:
    """Choose where to come from: not from a block whose jump skips another of them."""
    through = [
        number
        for number in candidates
        if not any(other != number and above[other] >> number & 1 for other in candidates)
    ]
    if len(through) == 1:
        return ways[through[0]]
    # What they have in common, up to the nearest block that dominates them all, decides nothing.
    before = ways[named[functools.reduce(operator.and_, (above[number] for number in through))]]
    most = max(ways[number].done - before.done for number in through)
    equal = [ways[n] for n in through if ways[n].done - before.done >= CLEARLY_MORE * most]
    return min(equal, key=lambda way: way.instructions)


def _step(way: _Way, instruction: Instruction, *, ordered: bool, looped: bool) -> None:
    way.instructions += 1
    way.bulk |= instruction.kind is Kind.BULK_COPY
    way.done += DONE.get(instruction.kind, instruction.width if instruction.kind in GLOBAL else 0)
    if instruction.kind in GLOBAL:
        way.bytes += instruction.width
        way.looped_bytes += instruction.width * looped
    if instruction.kind is Kind.ASYNC_COPY:
        way.copies = (way.copies[0] + 1, way.copies[1] + instruction.width)
    if instruction.kind is Kind.COMMIT:
        _close(way)
    if ordered:
        _wait_for(way, {*instruction.reads, *instruction.writes})
    else:
        _needs(way, instruction)
    if instruction.kind is Kind.GLOBAL_LOAD:
        way.pending.append((instruction.width, frozenset(instruction.writes)))
        way.tainted |= frozenset(instruction.writes)
        now, total = len(way.pending), sum(size for size, _ in way.pending)
        if total > way.best.load_bytes:
            way.best = replace(way.best, loads=now, load_bytes=total)
        if looped and total > way.looped_best.load_bytes:
            way.looped_best = InFlight(now, total)


def _close(way: _Way) -> None:
    """End a group of asynchronous copies."""
    number, total = way.copies
    if total > way.best.copy_bytes:
        way.best = replace(way.best, copies=number, copy_bytes=total)
    way.copies = (0, 0)


def _wait_for(way: _Way, registers: set[str]) -> None:
    """SASS: an instruction that touches what a load brings waits for it, and so for the loads before it."""
    for i in reversed(range(len(way.pending))):
        if not registers.isdisjoint(way.pending[i][1]):
            del way.pending[: i + 1]
            return


def _needs(way: _Way, instruction: Instruction) -> None:
    """PTX: see whether even the best compiler has to wait here for what is under way."""
    needs = not way.tainted.isdisjoint(instruction.reads)
    match instruction.kind:
        case Kind.SHARED_STORE | Kind.LOCAL_STORE:
            way.pinned |= needs
            way.used |= needs
        case Kind.BARRIER if way.pinned:
            way.clear()
        case Kind.CALL:
            way.clear()
        case Kind.GLOBAL_STORE | Kind.ATOMIC | Kind.GLOBAL_LOAD | Kind.ASYNC_COPY if needs:
            way.clear()
        case _ if needs and (instruction.targets or instruction.ends):
            way.clear()
        case _ if needs:
            way.tainted |= frozenset(instruction.writes)
            way.used = True
        case _:
            way.tainted -= frozenset(instruction.writes)


def _groups(code: Code, looped: frozenset[int]) -> int:
    """Return the groups of copies under way together: those that a wait leaves, and the one that comes next."""
    waits = [i.groups for i in code.instructions(looped) if i.kind is Kind.WAIT]
    waits = waits or [i.groups for i in code.instructions() if i.kind is Kind.WAIT]
    return max(waits, default=0) + 1
