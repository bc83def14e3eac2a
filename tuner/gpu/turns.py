"""Taking turns on a GPU: a lock that keeps other tuners from using it at the same moment."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.core.errors import DeviceError
from tuner.core.files import open_lock_file

SHARED_FOLDERS = (Path("/run/lock"), Path("/tmp"))
"""Where every user's tuner looks, whatever TMPDIR says: the first that all may write, and where each file is its
maker's to delete."""
SAY_EVERY_S = 1.0
"""While it waits: the guard takes a process that is silent for longer for a dead one."""


def lock_files() -> list[Path]:
    """Return the files of the locks that there are."""
    return sorted(_folder().glob("kernel-tune-*.lock"))


class Turns:
    """The turns of the tuners on one GPU.

    Args:
        uuid: of the GPU.

    Raises:
        DeviceError: the file of the lock cannot be made or read, or is none: a link or a pipe, which another user may
            have put there.
    """

    def __init__(self, uuid: str) -> None:
        self._path = _folder() / f"kernel-tune-{uuid}.lock"
        try:
            self._descriptor = open_lock_file(self._path, os.O_RDONLY, 0o666)
        except OSError as error:
            raise DeviceError(
                f"cannot use {self._path}: {error.strerror}", "delete it, or make it a file readable for all"
            ) from None
        self._ours = False

    @contextmanager
    def turn(self, waiting: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Run a block while no other tuner uses the GPU.

        Args:
            waiting: called every :data:`SAY_EVERY_S` while another one does, from another thread, with what that is.
        """
        self._take(waiting)
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def released(self, waiting: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Run a block that does not use the GPU, for seconds perhaps: a turn is released meanwhile.

        It ends when the turn is this one's again, for as long as that takes, also where the block failed: what follows
        uses the GPU.

        Args:
            waiting: as of :meth:`turn`.
        """
        if not self._ours:
            yield
            return
        self._give()
        try:
            yield
        finally:
            self._take(waiting)

    def _take(self, waiting: Callable[[str], None]) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait(waiting)
        self._ours = True

    def _give(self) -> None:
        self._ours = False
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _wait(self, waiting: Callable[[str], None]) -> None:
        """Wait in the kernel, which wakes at once; polling would lose each turn to the tuner that has it."""
        ours = threading.Event()

        def say() -> None:
            while not ours.wait(SAY_EVERY_S):
                waiting(self._holder())

        thread = threading.Thread(target=say, daemon=True)
        thread.start()
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        finally:
            ours.set()
            thread.join()  # the pipe is for one thread at a time

    def _holder(self) -> str:
        """Return which process has the lock, as far as Linux tells."""
        inode = os.fstat(self._descriptor).st_ino
        try:
            lines = Path("/proc/locks").read_text().splitlines()
        except OSError:
            lines = []
        for line in lines:
            words = line.split()
            waits = "->" in words
            if not waits and words[1] == "FLOCK" and words[5].endswith(f":{inode}") and int(words[4]) > 0:
                return f"process {words[4]} ({_name(words[4])}) is using this GPU"
        return f"another tuner is using this GPU (it holds {self._path})"


def _name(pid: str) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "of another user"
    return " ".join(filter(None, words[:4])) or "unknown"


def _folder() -> Path:
    for folder in SHARED_FOLDERS:
        try:
            mode = folder.stat().st_mode
        except OSError:
            continue
        if mode & stat.S_ISVTX and mode & 0o002 and os.access(folder, os.W_OK | os.X_OK):
            return folder
    return Path(tempfile.gettempdir())
