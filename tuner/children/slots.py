"""How many compilations go on at a time on one machine, whichever processes they belong to."""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.core.files import byte_lock

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
