"""One walk through a kernel, the way that does its work, and how many bytes a thread has under way on it.

No loop is taken twice. Where the code may skip something (``if (i < n) ...``), the walk goes through it; of two
branches that exclude each other it takes the one that does clearly more, else the one that does it in fewer
instructions: that for whole tiles.

A load is under way from where it stands to the first instruction that touches its registers.

What counts is the place with most bytes under way: within loops, if these have a fair share of the accesses.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tuner.inspect.explain import sass

CLEARLY_MORE = 0.6
"""A branch that does less than this share of what another does is not the one for whole tiles. What is done element by
element at the end of an array adds up to half again to what a path for vectors does."""
DONE = {sass.Kind.FLOAT: 4, sass.Kind.MATRIX: 64, sass.Kind.BULK_COPY: 1 << 20}
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
    copies: tuple[int, int] = (0, 0)
    """Number and bytes of the asynchronous copies since the last commit."""


def walk(code: sass.Code, loops: Sequence[sass.CodeLoop]) -> tuple[tuple[int, ...], InFlight]:
    """Return the blocks of the way that does the work, and what a thread has under way on it.

    Args:
        code: of the kernel.
        loops: its loops; a wait for asynchronous copies that stands in one counts before those that do not.
    """
    above = sass.dominators(code)
    looped = frozenset[int]().union(*(loop.blocks for loop in loops))
    named = {bits: number for number, bits in enumerate(above)}
    ways: dict[int, _Way] = {}
    for number, leading in _in_turn(code, loops):
        from_above = [other for other in leading if other in ways]
        way = _chosen(from_above, ways, above, named) if from_above else _Way()
        way = replace(way, blocks=(*way.blocks, number), pending=list(way.pending))
        for instruction in code.blocks[number].instructions:
            _step(way, instruction, looped=number in looped)
        ways[number] = way
    ends = [number for number, block in enumerate(code.blocks) if not block.successors] or [code.order[-1]]
    ends = [number for number in ends if not _fails(code.blocks[number])] or ends
    way = _chosen(ends, ways, above, named)
    _close(way)
    steady = 2 * way.looped_bytes >= way.bytes - way.looped_bytes and way.looped_best.load_bytes > 0
    loads = way.looped_best if steady else way.best
    groups = _groups(code, looped) if way.best.copies else 0
    in_flight = replace(
        way.best, loads=loads.loads, load_bytes=loads.load_bytes, groups=groups, bulk=way.bulk
    )
    return way.blocks, in_flight


def one_side(code: sass.Code) -> sass.Code:
    """Return code without what excludes something that does more, within a block and under the same predicate.

    Where a branch is short the compiler joins both sides in one block, each instruction of them under ``@P0`` or
    ``@!P0``.
    """
    return replace(code, blocks=tuple(_one_side_of(block) for block in code.blocks))


def _one_side_of(block: sass.Block) -> sass.Block:
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


def _done_by(instruction: sass.Instruction) -> int:
    return DONE.get(instruction.kind, instruction.width if instruction.kind in sass.GLOBAL else 0)


def _in_turn(code: sass.Code, loops: Sequence[sass.CodeLoop]) -> Iterator[tuple[int, Sequence[int]]]:
    """Return the blocks with those that lead to each, a loop's before what comes after the loop.

    What a loop is left for is also led to by the loop's ends: a loop that is left at its top or in its middle is gone
    through first, like one that is left at its end.
    """
    rank = {number: i for i, number in enumerate(code.order)}
    leading = [
        {other for other in others if rank[other] < rank[number]}
        for number, others in enumerate(sass.predecessors(code))
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


def _fails(block: sass.Block) -> bool:
    return bool(block.instructions) and block.instructions[-1].opcode.split(".")[0] == "BPT"


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
        way, skipped = ways[through[0]], [number for number in candidates if number != through[0]]
        if not skipped:
            return way
        # What may be skipped counts half: it is rather the end of an array than its middle.
        done = ways[skipped[0]].done
        return replace(way, done=done + (way.done - done) / 2)
    # What they have in common, up to the nearest block that dominates them all, decides nothing.
    before = ways[named[functools.reduce(operator.and_, (above[number] for number in through))]]
    most = max(ways[number].done - before.done for number in through)
    equal = [ways[n] for n in through if ways[n].done - before.done >= CLEARLY_MORE * most]
    return min(equal, key=lambda way: way.instructions)


def _step(way: _Way, instruction: sass.Instruction, *, looped: bool) -> None:
    way.instructions += 1
    way.bulk |= instruction.kind is sass.Kind.BULK_COPY
    way.done += _done_by(instruction)
    if instruction.kind in sass.GLOBAL:
        way.bytes += instruction.width
        way.looped_bytes += instruction.width * looped
    if instruction.kind is sass.Kind.ASYNC_COPY:
        way.copies = (way.copies[0] + 1, way.copies[1] + instruction.width)
    if instruction.kind is sass.Kind.COMMIT:
        _close(way)
    _wait_for(way, {*instruction.reads, *instruction.writes})
    if instruction.kind is sass.Kind.GLOBAL_LOAD:
        way.pending.append((instruction.width, frozenset(instruction.writes)))
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
    """An instruction that touches what a load brings waits for it, and so for the loads before it."""
    for i in reversed(range(len(way.pending))):
        if not registers.isdisjoint(way.pending[i][1]):
            del way.pending[: i + 1]
            return


def _groups(code: sass.Code, looped: frozenset[int]) -> int:
    """Return the groups of copies under way together: those that a wait leaves, and the one that comes next."""
    waits = [i.groups for i in code.instructions(looped) if i.kind is sass.Kind.WAIT]
    waits = waits or [i.groups for i in code.instructions() if i.kind is sass.Kind.WAIT]
    return max(waits, default=0) + 1
