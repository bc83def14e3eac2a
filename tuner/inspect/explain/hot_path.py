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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tuner.inspect.explain.instructions import (
    GLOBAL,
    Block,
    Code,
    CodeLoop,
    Instruction,
    Kind,
    dominators,
    predecessors,
)

CLEARLY_MORE = 0.6
"""A branch that does less than this share of what another does is not the one for whole tiles. What is done element by
element at the end of an array adds up to half again to what a path for vectors does."""
FEWER, MORE = 4, 2
"""How many times fewer or more loads SASS may have under way than the PTX where loads are in loops or several blocks:
over 120 configurations of the built-in kernels for 8.0 and 9.0 it was 0.4 to 3.5 times, and the same for 92 %."""
DONE = {Kind.FLOAT: 4, Kind.MATRIX: 64, Kind.BULK_COPY: 1 << 20}
"""What instructions count for when branches are compared, as bytes of global memory."""


@dataclass(frozen=True)
class InFlight:
    """What one thread has under way at most."""

    loads: int = 0
    load_bytes: int = 0
    least_load_bytes: int = 0
    most_load_bytes: int = 0
    """PTX: how few and how many of these bytes the compiler may leave or bring together; else the same as they are."""
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
    done: float = 0.0
    """Bytes and arithmetic, by :data:`DONE`; what may be skipped counts half."""
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
    above = dominators(code)
    looped = frozenset[int]().union(*(loop.blocks for loop in loops))
    named = {bits: number for number, bits in enumerate(above)}
    ways: dict[int, _Way] = {}
    for number, leading in _in_turn(code, loops):
        from_above = [other for other in leading if other in ways]
        way = _chosen(from_above, ways, above, named).go_on() if from_above else _Way()
        way.blocks += (number,)
        for instruction in code.blocks[number].instructions:
            _step(way, instruction, ordered=code.ordered, looped=number in looped)
        if way.used:
            way.clear()
        ways[number] = way
    ends = [number for number, block in enumerate(code.blocks) if not block.successors] or [code.order[-1]]
    ends = [number for number in ends if not _fails(code.blocks[number])] or ends
    way = _chosen(ends, ways, above, named)
    _close(way)
    steady = 2 * way.looped_bytes >= way.bytes - way.looped_bytes and way.looped_best.load_bytes > 0
    loads = way.looped_best if steady else way.best
    least_bytes, most_bytes = _once_compiled(code, way, loads, loops, above)
    in_flight = replace(
        way.best,
        loads=loads.loads,
        load_bytes=loads.load_bytes,
        least_load_bytes=least_bytes,
        most_load_bytes=most_bytes,
        groups=_groups(code, looped) if way.best.copies else 0,
        bulk=way.bulk,
    )
    return Walk(way.blocks, way.instructions, way.bytes, in_flight)


def _once_compiled(
    code: Code, way: _Way, best: InFlight, loops: Sequence[CodeLoop], above: Sequence[int]
) -> tuple[int, int]:
    """Return the least and the most bytes of loads that may be under way when the compiler has arranged the code.

    Where all loads stand together, as in element-wise kernels, that is what is under way as written. Loops it unrolls
    by itself, or keeps apart what they load. Loads under conditions it may put under predicates in one block, with
    those before and after: of these it may be all.
    """
    total = sum(i.width for i in code.instructions(way.blocks) if i.kind is Kind.GLOBAL_LOAD)
    if code.ordered or (total == best.load_bytes and not way.looped_bytes):
        return best.load_bytes, best.load_bytes
    together = {number for number in way.blocks if above[way.blocks[-1]] >> number & 1}
    for loop in loops:
        ends = [number for number in loop.blocks if loop.header in code.blocks[number].successors]
        together |= {number for number in loop.blocks if all(above[end] >> number & 1 for end in ends)}
    apart = [i for i in code.instructions(set(way.blocks) - together) if i.kind is Kind.GLOBAL_LOAD]
    return best.load_bytes // FEWER, max(MORE * best.load_bytes, total if apart else 0)


def one_side(code: Code) -> Code:
    """Return code without what excludes something that does more, within a block and under the same predicate.

    Where a branch is short the compiler joins both sides in one block, each instruction of them under ``@P0`` or
    ``@!P0``.
    """
    return replace(code, blocks=tuple(_one_side_of(block) for block in code.blocks))


def _one_side_of(block: Block) -> Block:
    written: Counter[str] = Counter()
    sides: list[tuple[tuple[str, int], bool]] = []
    does: Counter[tuple[tuple[str, int], bool]] = Counter()
    for instruction in block.instructions:
        register = instruction.guard.removeprefix("!")
        side = (register, written[register]), register == instruction.guard
        sides.append(side)
        does[side] += _done_by(instruction) if register else 0
        written.update(instruction.writes)
    left_out = {
        (predicate, holds)
        for (predicate, holds), done in does.items()
        if done > 0 and (done, not holds) < (does[predicate, not holds], holds)
    }
    kept = (i for i, side in zip(block.instructions, sides, strict=True) if side not in left_out)
    return replace(block, instructions=tuple(kept)) if left_out else block


def _done_by(instruction: Instruction) -> int:
    return DONE.get(instruction.kind, instruction.width if instruction.kind in GLOBAL else 0)


def _in_turn(code: Code, loops: Sequence[CodeLoop]) -> Iterator[tuple[int, Sequence[int]]]:
    """Return the blocks with those that lead to each, a loop's before what comes after the loop.

    What a loop is left for is also led to by the loop's ends: a loop that is left at its top or in its middle is gone
    through first, like one that is left at its end.
    """
    rank = {number: i for i, number in enumerate(code.order)}
    leading = [
        {other for other in others if rank[other] < rank[number]}
        for number, others in enumerate(predecessors(code))
    ]
    for loop in loops:
        ends = {number for number in loop.blocks if loop.header in code.blocks[number].successors}
        for number in loop.blocks:
            for after in code.blocks[number].successors:
                if after not in loop.blocks:
                    leading[after] |= ends | {number}
    left, done = list(code.order), set[int]()
    while left:
        # Where control flow is no nest of loops there may be none whose leaders are all done.
        number = next((number for number in left if leading[number] <= done), left[0])
        left.remove(number)
        done.add(number)
        yield number, sorted(leading[number] & done - {number})


def _fails(block: Block) -> bool:
    return bool(block.instructions) and block.instructions[-1].opcode.split(".")[0] in ("trap", "BPT")


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
        skipped = [number for number in candidates if number != through[0]]
        return _perhaps(ways[through[0]], ways[skipped[0]]) if skipped else ways[through[0]]
    # What they have in common, up to the nearest block that dominates them all, decides nothing.
    before = ways[named[functools.reduce(operator.and_, (above[number] for number in through))]]
    most = max(ways[number].done - before.done for number in through)
    equal = [ways[n] for n in through if ways[n].done - before.done >= CLEARLY_MORE * most]
    return min(equal, key=lambda way: way.instructions)


def _perhaps(way: _Way, skipping: _Way) -> _Way:
    """Return a way whose steps since another way may be skipped: rather the end of an array than its middle."""
    return replace(way, done=skipping.done + (way.done - skipping.done) / 2)


def _step(way: _Way, instruction: Instruction, *, ordered: bool, looped: bool) -> None:
    way.instructions += 1
    way.bulk |= instruction.kind is Kind.BULK_COPY
    way.done += _done_by(instruction)
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
