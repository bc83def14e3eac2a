"""Device memory by name, with zones around it that show what is written or read beside it."""

from __future__ import annotations

import itertools

from cuda.bindings import driver as cu

from tuner.gpu.driver import fill_bytes
from tuner.kernel.contents import NAN
from tuner.runtime.driver import check
from tuner.runtime.expressions import round_up

GUARD_BYTES = 4096
"""Bytes of a poison on both sides of each tensor: a kernel that reads past an edge gets a wrong result instead of its
neighbour's numbers, and one that writes there is seen."""


class Memory:
    """Allocations by name, freed together.

    Args:
        guarded: whether there are guard zones at all. Without them every allocation is as long as was asked, so that
            a tool that watches allocations (Compute Sanitizer) sees an access that is one byte beyond.
    """

    def __init__(self, *, guarded: bool = True) -> None:
        self.guarded = guarded
        self.addresses: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._guarded: dict[str, int] = {}
        self._poison = NAN

    def allocate(self, name: str, size_bytes: int) -> int:
        """Return memory under a name; asking again for no more than before gives the same."""
        if self._sizes.get(name, -1) < size_bytes:
            self.free(name)
            self.addresses[name] = int(check(cu.cuMemAlloc(max(size_bytes, 16))))
            self._sizes[name] = size_bytes
        return self.addresses[name]

    def allocate_guarded(self, name: str, size_bytes: int) -> int:
        """Return new memory between two guard zones, where there are any."""
        if not self.guarded:
            self.addresses[name] = int(check(cu.cuMemAlloc(size_bytes)))
            return self.addresses[name]
        padded = round_up(size_bytes, 16)
        base = int(check(cu.cuMemAlloc(padded + 2 * GUARD_BYTES)))
        self._guarded[name] = size_bytes
        self.addresses[name] = base + GUARD_BYTES
        fill_bytes(base + GUARD_BYTES + size_bytes, NAN, padded - size_bytes + GUARD_BYTES)
        self._fill_zones(name)
        return base + GUARD_BYTES

    def _zones(self, name: str) -> tuple[int, int]:
        """Return where the zones of an allocation begin; checksums of inputs reach to the second, by words."""
        address = self.addresses[name]
        return address - GUARD_BYTES, address + round_up(self._guarded[name], 4)

    def _fill_zones(self, name: str) -> None:
        for zone in self._zones(name):
            fill_bytes(zone, self._poison, GUARD_BYTES)

    def poison(self, byte: int) -> None:
        """Fill all guard zones with another byte."""
        if byte != self._poison:
            self._poison = byte
            for name in self._guarded:
                self._fill_zones(name)

    def take(self, other: Memory, name: str, prefix: str) -> int:
        """Move an allocation here from another owner, under its name with a prefix; return its address."""
        address = other.addresses.pop(name)
        self.addresses[prefix + name], self._sizes[prefix + name] = address, other._sizes.pop(name)
        return address

    def unused(self, name: str) -> str:
        """Return a name that is free: this one, or this one with a number."""
        numbers = itertools.count(2)
        unused = name
        while unused in self.addresses:
            unused = f"{name} ({next(numbers)})"
        return unused

    def trespass(self) -> str:
        """Name the tensor beside which something was written; empty if there is none."""
        zone = bytearray(GUARD_BYTES)
        for name, size_bytes in self._guarded.items():
            before, behind = self._zones(name)
            rest = behind - self.addresses[name] - size_bytes  # of a word
            for start, nan in ((before, 0), (behind - rest, rest)):
                check(cu.cuMemcpyDtoH(zone, start, GUARD_BYTES))
                if zone != bytes([NAN]) * nan + bytes([self._poison]) * (GUARD_BYTES - nan):
                    return name
        return ""

    def free(self, name: str) -> None:
        """Free one allocation."""
        address = self.addresses.pop(name, None)
        self._sizes.pop(name, None)
        if address is not None:
            cu.cuMemFree(address - (GUARD_BYTES if self._guarded.pop(name, None) is not None else 0))

    def close(self) -> None:
        """Free all of it."""
        for name in list(self.addresses):
            self.free(name)
