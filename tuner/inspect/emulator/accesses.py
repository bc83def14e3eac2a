"""What the accesses of a kernel that runs on the CPU tell: which was outside, which read what nothing had written."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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


DYNAMIC, STATIC = -2, -1
"""Instead of an array's number, as in ``machine.cpp``: dynamic and static shared memory."""
ACCESS = np.dtype(
    [
        ("at", "u8"),
        ("line", "u8"),
        ("thread", "u4"),
        ("array", "i2"),
        ("bytes", "u2"),
        ("kind", "u4"),
        ("", "u4"),
    ]
)
"""The same as NumPy has it."""


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
        self._accesses = np.zeros(most, ACCESS)
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

    @property
    def reads_unset(self) -> bool:
        """Whether it has read what nothing had written."""
        return bool(self.seen.unset.line)

    def unset(self) -> tuple[str, str]:
        """Return where it has first read what nothing had written, if that is known, and an array's name."""
        access = self.seen.unset
        where = self._where(access)
        name, what = "", "shared memory"
        if access.array >= 0:
            row = self.rows[access.array]
            name, what = row.name, f"{row.name}[{(access.at - row.start) // row.itemsize}]"
        elif access.array == STATIC and (variable := self.symbols.variable(access.at - self.seen.section)):
            what = f"{variable} in shared memory"
        return f"{where} reads {what} before anything is written there" if where else "", name

    def _where(self, access: Access) -> str:
        """Return file and line of an access; empty if not known."""
        return self.symbols.lines([access.line - self.seen.base])[0] if access.line else ""
