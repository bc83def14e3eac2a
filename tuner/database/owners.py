"""The process that works on a run, and whether it is still alive.

A lock that the kernel holds says so: it counts in every container that shares the file, whatever its host name and its
process numbers, and it is gone with the process, however that ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
from pathlib import Path

from tuner.core.files import FLOCK, byte_lock, open_lock_file


class RunLocks:
    """The locks on the runs of one database: for each run one byte of a file beside it, which is never written to.

    The database itself cannot serve: SQLite's own locks on a file end when a process closes it a second time.

    Args:
        database: path of the file.
    """

    def __init__(self, database: Path) -> None:
        target = database.resolve()  # by whatever link it was opened
        self._database = target
        self._path = target.with_name(f"{target.name}-lock")
        self._descriptor: int | None = None

    def take(self, run_id: str) -> bool:
        """Lock a run until :meth:`release` or :meth:`close`; return False if another process holds the lock.

        Raises:
            OSError: the file of the locks cannot be opened, or is no file.
        """
        if self._descriptor is None:
            mode = self._database.stat().st_mode & 0o666
            self._descriptor = open_lock_file(self._path, os.O_RDWR, mode)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _byte_of(run_id, fcntl.F_WRLCK))
        except OSError as error:
            # A filesystem without locks leaves only the process's name to go by.
            return error.errno not in (errno.EAGAIN, errno.EACCES)
        return True

    def taken(self, run_id: str) -> bool:
        """Return whether another process holds a run's lock."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            answer = fcntl.fcntl(
                self._descriptor or descriptor, fcntl.F_OFD_GETLK, _byte_of(run_id, fcntl.F_WRLCK)
            )
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return int(struct.unpack(FLOCK, answer)[0]) != fcntl.F_UNLCK

    def release(self, run_id: str) -> None:
        """Let other processes lock a run."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _byte_of(run_id, fcntl.F_UNLCK))

    def close(self) -> None:
        """Release every lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _byte_of(run_id: str, kind: int) -> bytes:
    """Return a lock on the byte that stands for a run: one of 2^56, so that two runs never meet."""
    start = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:7], "big")
    return byte_lock(kind, start)


def this_process() -> str:
    """Return the name of this process: host, number, and when it began."""
    return f"{os.uname().nodename}:{os.getpid()}:{_started(os.getpid())}"


def alive(owner: str) -> bool:
    """Return whether a process that :func:`this_process` named is alive, as far as its name can tell.

    One of another host counts as dead: only the lock knows. Earlier versions took none.
    """
    host, _, process = owner.partition(":")
    pid, _, started = process.partition(":")
    return host == os.uname().nodename and pid.isdigit() and started != "" and _started(int(pid)) == started


def described(owner: str) -> str:
    """Return how to find a process by its name."""
    host, _, process = owner.partition(":")
    number = f"process {process.partition(':')[0]}"
    return number if host == os.uname().nodename else f"{number} of host {host}"


def _started(pid: int) -> str:
    """Return when a process began, in clock ticks: a pid is used again, this pair is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
