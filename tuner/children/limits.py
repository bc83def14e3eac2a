"""What compiling children may take of a machine: memory for each, and a turn, whichever processes they belong to."""

from __future__ import annotations

import fcntl
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.core.files import byte_lock

MOST_BYTES = 8 << 30
"""Address space that a child on a large machine may take beside what it has at its start: a template or an
instantiation that grows without end stops there."""
LEAST_BYTES = 1 << 30
"""The same on a small one: compiling the built-in kernels takes 430 MiB of it, NVRTC 13.5 included."""
SHARE = 0.75
"""Of the memory that is available, for all children together."""
NICE = 10
"""By so much children come after what measures and chooses, which uses a core for a millisecond and waits: beside
compilers on all of two cores it took 2.9 times as long without, and 1.0 times with it."""

_MEMORY = Path("/proc/meminfo")
_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_limit(children: int) -> int:
    """Return by how many bytes the address space of each of so many children at a time may grow."""
    return max(LEAST_BYTES, min(MOST_BYTES, int(SHARE * _available_bytes() / children)))


def most_children() -> int:
    """Return how many children the memory that is available now is enough for."""
    return max(1, int(SHARE * _available_bytes() / LEAST_BYTES))


def _available_bytes() -> int:
    """Return the memory that this machine or container has now."""
    (machine,) = re.findall(r"^MemAvailable:\s+(\d+) kB", _MEMORY.read_text(), re.MULTILINE)
    amounts = [1024 * int(machine)]
    for file in _CONTAINER:
        with suppress(OSError, ValueError):  # no such file, or "max"
            amounts.append(int(file.read_text()))
    return min(amounts)


POLL_S = 0.01
"""While all slots are taken: a compilation takes some tenths of a second."""


class Slots:
    """As many locks as there may be compilations: one byte of a file each. A process that dies frees its own.

    Args:
        path: of the file, which is never written to.
        count: of the slots.
    """

    def __init__(self, path: Path, count: int) -> None:
        self._path, self._count = path, count
        self._looking = threading.Lock()
        """Held by the thread of this process that looks for a slot: the others wait their turn."""

    @contextmanager
    def one(self, give_up: Callable[[], bool]) -> Iterator[None]:
        """Run a block in a slot of its own.

        Args:
            give_up: says that no slot is worth waiting for any more; the block is run without one.

        Raises:
            OSError: the file cannot be opened.
        """
        # A lock belongs to the descriptor, so that two threads of one process cannot have the same.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with self._looking:
                while not self._take_any(descriptor) and not give_up():
                    time.sleep(POLL_S)
            yield
        finally:
            os.close(descriptor)

    def _take_any(self, descriptor: int) -> bool:
        first = random.randrange(self._count)
        for number in range(self._count):
            slot = (first + number) % self._count
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, byte_lock(fcntl.F_WRLCK, slot))
            except (BlockingIOError, PermissionError):
                continue
            except OSError:  # a filesystem without locks: the number of threads is the only bound
                return True
            return True
        return False
