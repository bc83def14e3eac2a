"""What a child prints: the end of it says why it died."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import threading
import time

LAST_BYTES, PIECE_BYTES = 4096, 1 << 20
"""What is kept of what a child prints, and what it may print before it is read."""
GATHER_S = 0.01
"""A line a system call would keep the reader as busy as the writer."""


class Printed:
    """What a child, and those that it starts, print: read in large pieces, of which the end is kept."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        with contextlib.suppress(OSError):  # the user has too many pipes
            fcntl.fcntl(self._reading, fcntl.F_SETPIPE_SZ, PIECE_BYTES)
        os.set_blocking(self._reading, False)
        self._end, self._lock = b"", threading.Lock()
        try:
            threading.Thread(target=self._read, daemon=True).start()
        except RuntimeError as error:  # as after ulimit -u
            os.close(self._reading)
            os.close(self.writing)
            raise OSError(errno.EAGAIN, str(error)) from None

    def _read(self) -> None:
        most = fcntl.fcntl(self._reading, fcntl.F_GETPIPE_SZ)
        there, size = select.poll(), -1
        there.register(self._reading, select.POLLIN)
        while size:
            there.poll()
            size = self._take()
            if size < most // 2:
                time.sleep(GATHER_S)
        with self._lock:
            os.close(self._reading)
            self._reading = -1

    def _take(self) -> int:
        """Return how many bytes were read, which is all that a pipe holds: 0 at its end, -1 if there are none now."""
        with self._lock:
            try:
                piece = os.read(self._reading, PIECE_BYTES)
            except OSError:
                return -1
            self._end = (self._end + piece)[-LAST_BYTES:]
            return len(piece)

    def last_line(self) -> str:
        """Return the last line, behind a colon; empty if nothing was printed."""
        self._take()  # the thread that reads may not have had its turn
        lines = self._end.decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""
