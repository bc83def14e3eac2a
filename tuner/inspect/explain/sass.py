"""SASS, the GPU's own instructions, as ``nvdisasm`` prints them -> basic blocks and loops.

NVIDIA documents the names of the instructions ("CUDA Binary Utilities") and little else: what is not known here counts
as "other".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What an instruction does, as far as this tuner cares."""

    GLOBAL_LOAD = "global load"
    GLOBAL_STORE = "global store"
    ATOMIC = "atomic"
    ASYNC_COPY = "asynchronous copy"
    """Global to shared memory, a few bytes for each thread: ``LDGSTS``, which is ``cp.async``."""
    BULK_COPY = "bulk copy"
    """Global to shared memory by the copy engine: ``cp.async.bulk`` and its tensor form, TMA."""
    BULK_STORE = "bulk store"
    SHARED_LOAD = "shared load"
    SHARED_STORE = "shared store"
    SHARED_ATOMIC = "shared atomic"
    LOCAL_LOAD = "local load"
    """Of a thread's stack: spilled registers, and arrays whose index is not known when compiling."""
    LOCAL_STORE = "local store"
    MATRIX = "matrix"
    """Tensor cores."""
    FLOAT = "float"
    """Floating-point arithmetic outside of tensor cores."""
    COMMIT = "commit"
    """Asynchronous copies so far are one group."""
    WAIT = "wait"
    """Until at most :attr:`Instruction.groups` groups are under way."""
    OTHER = "other"


MEMORY = (
    Kind.GLOBAL_LOAD, Kind.GLOBAL_STORE, Kind.ATOMIC, Kind.ASYNC_COPY, Kind.BULK_COPY, Kind.BULK_STORE,
    Kind.SHARED_LOAD, Kind.SHARED_STORE, Kind.SHARED_ATOMIC, Kind.LOCAL_LOAD, Kind.LOCAL_STORE,
)  # fmt: skip
"""Kinds that move bytes."""
BULK = (Kind.BULK_COPY, Kind.BULK_STORE)
"""Kinds of which the code does not say how many bytes they move."""
GLOBAL = (Kind.GLOBAL_LOAD, Kind.GLOBAL_STORE, Kind.ATOMIC, Kind.ASYNC_COPY)
"""Kinds that move bytes between a thread and global memory, and say how many."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction."""

    opcode: str
    kind: Kind = Kind.OTHER
    width: int = 0
    """Bytes that one thread moves with it; 0 where the code does not say."""
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    """Registers, those of an address and of the predicate before the instruction included."""
    targets: tuple[str, ...] = ()
    """Labels to which it may jump."""
    ends: bool = False
    """Whether what follows is reached only by a jump."""
    groups: int = 0
    """Of a wait: groups of asynchronous copies that may be under way after it."""
    guard: str = ""
    """The predicate before it, with a ``!`` if it runs where that is false."""


@dataclass(frozen=True)
class Block:
    """Instructions that run one after the other; only the last one jumps."""

    instructions: tuple[Instruction, ...]
    successors: tuple[int, ...]


@dataclass(frozen=True)
class CodeLoop:
    """A natural loop: blocks from which its header is reached again without leaving it."""

    header: int
    blocks: frozenset[int]
    depth: int
    """1 for a loop that is in no other."""


@dataclass(frozen=True)
class Code:
    """The reachable blocks of one kernel; the first is where it starts."""

    blocks: tuple[Block, ...]
    order: tuple[int, ...] = field(default=(), compare=False)
    """The blocks, each after all that lead to it without a jump back."""

    def instructions(self, blocks: Iterable[int] | None = None) -> Iterator[Instruction]:
        """Return the instructions of some blocks, or of all."""
        for number in sorted(blocks) if blocks is not None else range(len(self.blocks)):
            yield from self.blocks[number].instructions


_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
_LABEL = re.compile(r"^(\.L[\w.$]*):", re.MULTILINE)
_TARGET = re.compile(r"\((\.L[\w.$]*)\)")
_REGISTER = re.compile(r"(?<![\w.])U?(?:R|P)\d+")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}

_KINDS = {
    "LDG": Kind.GLOBAL_LOAD, "LD": Kind.GLOBAL_LOAD, "STG": Kind.GLOBAL_STORE, "ST": Kind.GLOBAL_STORE,
    "ATOMG": Kind.ATOMIC, "ATOM": Kind.ATOMIC, "RED": Kind.ATOMIC, "REDG": Kind.ATOMIC,
    "LDGSTS": Kind.ASYNC_COPY, "UBLKCP": Kind.BULK_COPY, "UTMALDG": Kind.BULK_COPY,
    "UTMASTG": Kind.BULK_STORE, "UTMAREDG": Kind.BULK_STORE, "UBLKRED": Kind.BULK_STORE,
    "LDS": Kind.SHARED_LOAD, "LDSM": Kind.SHARED_LOAD, "STS": Kind.SHARED_STORE, "STSM": Kind.SHARED_STORE,
    "ATOMS": Kind.SHARED_ATOMIC, "LDL": Kind.LOCAL_LOAD, "STL": Kind.LOCAL_STORE,
    "LDGDEPBAR": Kind.COMMIT, "DEPBAR": Kind.WAIT, "MUFU": Kind.FLOAT,
}  # fmt: skip
_MATRIX = re.compile(r"(?:[HIDBQO]|IG|HG|QG|BG|UTC[HIQOM]?\w*)MMA$")
_FLOAT = re.compile(r"(?:[FDH](?:ADD|MUL|FMA|MNMX)2?)$")
_NO_RESULT = ("BRA", "BRX", "BSSY", "BSYNC", "EXIT", "RET", "NOP", "WARPSYNC", "YIELD", "NANOSLEEP")


def parse_sass(text: str, entry: str) -> Code:
    """Read one kernel of a listing by ``nvdisasm -c``.

    Raises:
        ValueError: the listing has no such kernel.
    """
    start = text.find(f".text.{entry}:")
    if start < 0:
        raise ValueError(f"no kernel {entry} in the listing")
    end = text.find("//-----", start)
    items: list[str | Instruction] = []
    for line in text[start : end if end > 0 else len(text)].splitlines():
        if label := _LABEL.match(line):
            items.append(label[1])
        elif match := _LINE.search(line):
            items.append(_instruction(match[1] or "", match[2], match[3]))
    return build(items)


def _instruction(predicate: str, opcode: str, rest: str) -> Instruction:
    word, *words = opcode.split(".")
    operands = [part.strip() for part in rest.split(",")] if rest.strip() else []
    guard = tuple(_REGISTER.findall(predicate))
    kind = _kind(word, words)
    width = _width(word, words) if kind in MEMORY and kind not in BULK else 0
    first = 1 if operands and "[" not in operands[0] and word not in _NO_RESULT else 0
    writes = tuple(name for text in operands[:first] for name in _REGISTER.findall(text))
    if kind in (Kind.GLOBAL_LOAD, Kind.SHARED_LOAD, Kind.LOCAL_LOAD) and writes:
        writes = _range(writes[0], width)
    reads = guard + tuple(name for text in operands[first:] for name in _REGISTER.findall(text))
    jumps = word.startswith(("BRA", "BRX", "JMP"))  # and CALL, where a target is too far for BRA
    return Instruction(
        opcode, kind, width, writes, reads,
        targets=tuple(_TARGET.findall(rest)) if jumps or word == "CALL" else (),
        ends=(jumps or word in ("EXIT", "RET")) and not guard and not (jumps and reads),
        groups=_groups(rest) if kind is Kind.WAIT else 0,
        guard=predicate,
    )  # fmt: skip


def _kind(word: str, words: list[str]) -> Kind:
    if word == "UBLKCP" and words[:1] == ["G"]:  # the space that is written is named first
        return Kind.BULK_STORE
    if word in _KINDS:
        return _KINDS[word]
    if _MATRIX.match(word):
        return Kind.MATRIX
    return Kind.FLOAT if _FLOAT.match(word) else Kind.OTHER


def _width(word: str, words: list[str]) -> int:
    """Return the bytes of a thread; four where the instruction names no width."""
    if word in ("LDSM", "STSM"):  # matrices of 8 x 8 elements of 16 bits: 4 bytes for each thread
        return 4 * int(words[-1]) if words and words[-1] in ("2", "4") else 4
    return next((_WIDTHS[name] for name in reversed(words) if name in _WIDTHS), 4)


def _range(first: str, width: int) -> tuple[str, ...]:
    """Return the registers that a load fills, from the first on."""
    name, number = re.fullmatch(r"(U?R)(\d+)", first), max(1, width // 4)
    return tuple(f"{name[1]}{int(name[2]) + i}" for i in range(number)) if name else (first,)


def _groups(operands: str) -> int:
    """Return what ``DEPBAR.LE SB0, 0x1`` leaves under way."""
    number = re.search(r"0x([0-9a-f]+)", operands)
    return int(number[1], 16) if number else 0


def build(items: Sequence[str | Instruction]) -> Code:
    """Make blocks of a listing: instructions and, as text, the labels between them.

    A jump to a label that is not there ends the kernel.
    """
    groups: list[list[Instruction]] = [[]]
    labels: dict[str, int] = {}
    for item in items:
        if isinstance(item, str):
            if groups[-1]:
                groups.append([])
            labels[item] = len(groups) - 1
            continue
        groups[-1].append(item)
        if item.targets or item.ends:
            groups.append([])
    jumps: list[list[int]] = []
    for number, group in enumerate(groups):
        last = group[-1] if group else None
        following = [labels[name] for name in last.targets if name in labels] if last else []
        if not (last and last.ends) and number + 1 < len(groups):
            following.append(number + 1)
        jumps.append(list(dict.fromkeys(following)))
    order = _order(jumps)
    kept = sorted(order)
    names = {old: new for new, old in enumerate(kept)}
    blocks = tuple(Block(tuple(groups[n]), tuple(names[t] for t in jumps[n])) for n in kept)
    return Code(blocks, tuple(names[number] for number in order))


def _order(jumps: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the groups that are reached, in the reverse postorder of a depth-first walk."""
    done: list[int] = []
    seen = {0}
    stack = [(0, iter(jumps[0]))]
    while stack:
        node, rest = stack[-1]
        following = next((target for target in rest if target not in seen), None)
        if following is None:
            done.append(node)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(jumps[following])))
    return tuple(reversed(done))


def loops(code: Code) -> tuple[CodeLoop, ...]:
    """Find the natural loops, outer ones before those in them; jumps back to one header make one loop."""
    above, before = dominators(code), predecessors(code)
    bodies: dict[int, set[int]] = {}
    for number, block in enumerate(code.blocks):
        for header in block.successors:
            if above[number] >> header & 1:
                body = bodies.setdefault(header, {header})
                pending = [number]
                while pending:
                    inside = pending.pop()
                    if inside not in body:
                        body.add(inside)
                        pending += before[inside]
    natural = [
        CodeLoop(header, frozenset(body), sum(header in other for other in bodies.values()))
        for header, body in bodies.items()
    ]
    rank = {number: i for i, number in enumerate(code.order)}
    return tuple(sorted(natural, key=lambda loop: (rank[loop.header], loop.depth)))


def dominators(code: Code) -> list[int]:
    """Return for each block, as bits, the blocks that are on every way to it, itself included (a fixed point)."""
    before = predecessors(code)
    everything = (1 << len(code.blocks)) - 1
    above = [everything for _ in code.blocks]
    above[0] = 1
    changed = True
    while changed:
        changed = False
        for number in code.order[1:]:
            new = everything
            for other in before[number]:
                new &= above[other]
            new |= 1 << number
            if new != above[number]:
                above[number], changed = new, True
    return above


def predecessors(code: Code) -> list[list[int]]:
    """Return for each block those that lead to it."""
    before: list[list[int]] = [[] for _ in code.blocks]
    for number, block in enumerate(code.blocks):
        for target in block.successors:
            before[target].append(number)
    return before
