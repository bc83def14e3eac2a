"""What the accesses of a kernel that runs on the CPU tell: which was outside, which read what nothing had written."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.core.messages import Record
from tuner.inspect.emulator.symbols import Symbols


class Access(ctypes.Structure):
    """As ``machine.cpp`` has it."""

    _fields_ = [
        ("at", ctypes.c_ulong), ("line", ctypes.c_ulong), ("thread", ctypes.c_uint), ("array", ctypes.c_short),
        ("bytes", ctypes.c_ushort), ("kind", ctypes.c_uint),
    ]  # fmt: skip


class _Seen(ctypes.Structure):
    """As ``machine.cpp`` has it."""

    _fields_ = [
        ("arrays", ctypes.c_void_p), ("count", ctypes.c_ulong), ("accesses", ctypes.c_void_p),
        ("most", ctypes.c_ulong), ("length", ctypes.c_ulong), ("fault", Access), ("unset", Access),
        ("base", ctypes.c_ulong), ("section", ctypes.c_ulong), ("dynamic", ctypes.c_ulong),
    ]  # fmt: skip


NOWHERE, DYNAMIC, STATIC = -3, -2, -1
"""Instead of an array's number, as in ``machine.cpp``: dynamic and static shared memory."""
ATOMIC = 2
"""From this kind on accesses are atomic."""
LANES, SECTOR = 32, 32
"""Of a warp; bytes that global memory moves at least."""


@dataclass(frozen=True)
class Row:
    """An array as the machine is told of it."""

    name: str
    start: int
    reach: tuple[int, int]
    """Addresses between which nothing else lies: what is touched there is meant for it."""
    nbytes: int
    itemsize: int
    set: int
    """Address of a byte for each of its bytes, which is 0 as long as nothing was written there."""


class Pattern(Record, frozen=True):
    """What the warps of a run ask of an array, or of shared memory, in a source line."""

    line: str
    """File and line; empty where they are not known."""
    name: str
    """Of the array."""
    shared: bool
    writes: bool
    requests: int
    cost: float
    """Sectors of 32 bytes that a request of all lanes takes, in the mean; of shared memory turns of the banks."""
    best: float
    """The same where the lanes' data lie side by side."""


class Told:
    """What a run has told.

    Args:
        rows: the arrays that it may touch.
        symbols: of its library.
        shared_bytes: dynamic shared memory that its launch asks for.
        most: accesses that are recorded.
    """

    def __init__(self, rows: Sequence[Row], symbols: Symbols, shared_bytes: int, most: int = 0) -> None:
        self.rows, self.symbols = rows, symbols
        self._shared_bytes = shared_bytes
        self._accesses = np.zeros(most, np.dtype(Access))
        self._table = np.array(
            [(row.start, *row.reach, row.nbytes, row.set) for row in rows], np.uint64
        )  # read by the machine
        self.seen = _Seen(
            arrays=self._table.ctypes.data, count=len(rows), accesses=self._accesses.ctypes.data, most=most
        )

    def fault(self, what: str) -> str:
        """Return what has ended the run: the machine's words, which element was touched, and the source line."""
        access = self.seen.fault
        first = access.at - self.seen.dynamic
        if access.array >= 0:
            row = self.rows[access.array]
            first = access.at - row.start
            first = row.nbytes if 0 <= first < row.nbytes else first
            what = f"{what} an array: {row.name}[{first // row.itemsize}] of {row.nbytes // row.itemsize}"
        elif access.array == DYNAMIC:
            first = max(first, min(self._shared_bytes, first + access.bytes - 1))
            what = f"{what} dynamic shared memory: byte {first} of the {self._shared_bytes} that the launch asks for"
        elif access.array == STATIC:
            what = f"{what} shared memory"
        return ", ".join(filter(None, (what, self._where(access))))

    def unset(self) -> tuple[str, str]:
        """Return where it has first read what nothing had written, if that is known, and an array's name."""
        access = self.seen.unset
        if access.array == NOWHERE:
            return "a lane reads what one shows that has ended, or that the mask leaves out", ""
        where = self._where(access)
        name, what = "", "shared memory"
        if access.array >= 0:
            row = self.rows[access.array]
            name, what = row.name, f"{row.name}[{(access.at - row.start) // row.itemsize}]"
        elif access.array == STATIC and (variable := self.symbols.variable(access.at - self.seen.section)):
            what = f"{variable} in shared memory"
        barrier = "" if name else ": is a barrier missing?"
        return f"{where} reads {what} before anything is written there{barrier}" if where else "", name

    def patterns(self, threads: int) -> list[Pattern]:
        """Return what warps have asked of arrays and of shared memory, by source line, the most wasteful first.

        The accesses of a warp's lanes to the same place of the code, each lane's n-th, are one request.

        Args:
            threads: of a block.
        """
        told = self._accesses[: self.seen.length]
        told = told[np.isin(told["bytes"], (1, 2, 4, 8, 16)) & (told["kind"] < ATOMIC)]
        if not len(told):
            return []
        block, lane = np.divmod(told["thread"], threads)
        warp = block * -(-threads // LANES) + lane // LANES
        _, own = _groups(told["line"], told["thread"])
        counts = np.bincount(own)
        turn, before = np.empty(len(told), np.int64), np.repeat(np.cumsum(counts) - counts, counts)
        turn[np.argsort(own, kind="stable")] = np.arange(len(told)) - before
        _, request = _groups(told["line"], warp, turn)
        shared = told["array"] < 0
        address, lanes = told["at"].astype(np.int64), np.bincount(request)
        sectors = _distinct(request, address // SECTOR)
        least = -(-_distinct(request, address) * _largest(request, told["bytes"].astype(np.int64)) // SECTOR)
        # A bank has four bytes; wider accesses take turns.
        size = np.maximum(told["bytes"], 4).astype(np.int64)
        at_once, word = LANES * 4 // size, address // size
        banks = _distinct_by(request, lane % LANES // at_once, word % at_once, word)
        first, number = _groups(told["line"], told["array"])
        lines = self.symbols.lines([int(told["line"][row]) - self.seen.base for row in first])
        found = []
        for place, row in enumerate(first):
            own = np.unique(request[number == place])
            full = own[lanes[own] == lanes[own].max()]
            of_shared, writes = bool(shared[row]), bool(told["kind"][row] & 1)
            name = "shared memory" if of_shared else self.rows[told["array"][row]].name
            cost = float((banks if of_shared else sectors)[full].mean())
            best = 1.0 if of_shared else float(least[full].mean())
            found.append(Pattern(lines[place], name, of_shared, writes, len(own), cost, best))
        return sorted(found, key=lambda one: one.best / one.cost)

    def _where(self, access: Access) -> str:
        """Return file and line of an access; empty if not known."""
        return self.symbols.lines([access.line - self.seen.base])[0] if access.line else ""


Numbers = npt.NDArray[np.int64]


def _groups(*columns: npt.NDArray[Any]) -> tuple[Numbers, Numbers]:
    """Return the first row of each group of rows that are equal in all columns, and each row's group.

    Groups are numbered in the columns' order. ``np.unique`` of records takes 20 times as long.
    """
    order = np.lexsort(columns[::-1])
    begins = np.ones(len(order), bool)
    begins[1:] = np.any([np.diff(column[order]) != 0 for column in columns], axis=0)
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(begins) - 1
    return order[begins], groups


def _distinct(group: Numbers, values: Numbers) -> Numbers:
    """Return how many distinct values each group has."""
    first, _ = _groups(group, values)
    return np.bincount(group[first])


def _largest(group: Numbers, values: Numbers) -> Numbers:
    """Return the largest value of each group."""
    largest = np.zeros(int(group.max()) + 1, np.int64)
    np.maximum.at(largest, group, values)
    return largest


def _distinct_by(group: Numbers, turn: Numbers, bank: Numbers, values: Numbers) -> npt.NDArray[np.float64]:
    """Return for each group the most distinct values of a bank, added up over its turns."""
    first, _ = _groups(group, turn, bank, values)
    ways, way = _groups(group[first], turn[first], bank[first])
    of, turns = group[first][ways], turn[first][ways]
    first, number = _groups(of, turns)
    ways_of = np.bincount(of[first], _largest(number, np.bincount(way)).astype(np.float64))
    return np.asarray(ways_of / np.bincount(of[first]), np.float64)
