"""Files that are written as a whole or not at all, files that are only locked, and folders of one's own."""

from __future__ import annotations

import csv
import ctypes
import errno
import fcntl
import glob
import io
import os
import secrets
import shutil
import stat
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.core.errors import TunerError, UsageError
from tuner.core.reading import read_beginning

TEMPORARY = "kernel-tune-of-"
"""Begins the name of a temporary folder, and of nothing else in the same place."""
FLOCK = "hhqqi4x"
"""``struct flock``: type, whence, start, length, process."""
_DATABASE = b"SQLite format 3\0"
_LONGEST = 255 - len("..12345678.partial-journal")
"""Bytes of a name that stand in that of what is being written: file systems take 255."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def whole_file(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Return a path beside the target to write to; without an error, it is on the disk and has the target's name.

    Args:
        path: of the target; its folder is created.
        replace: whether the target may exist.

    Raises:
        OSError: the target exists, also where another process was faster, or must not be replaced: it is a database, a
            folder or a device; or it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_to_replace(path)
    partial = _partial(path)
    locked = -1
    try:  # also if Ctrl-C comes when the file has just been made
        locked = open_locked(partial)
        yield partial
        sync(partial)
        if replace:
            partial.replace(path)
        else:
            os.link(partial, path)
        sync(path.parent)
    except OSError as error:
        if error.filename in (None, str(partial)):  # a full disk names no file
            error.filename = str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)
        if locked >= 0:
            os.close(locked)


def _partial(path: Path) -> Path:
    """Return a name for what is being written, which a user gives to no file; what ended writers left is removed."""
    beginning = f".{os.fsdecode(os.fsencode(path.name)[:_LONGEST])}."
    for left in path.parent.glob(f"{glob.escape(beginning)}{'[0-9a-f]' * 8}.partial"):
        remove_unlocked(left)
    return path.with_name(f"{beginning}{secrets.token_hex(4)}.partial")


def refuse_missing_parent(path: Path | None) -> None:
    """Refuse a file or folder, if a user names one for output, where the folder around it does not exist.

    Raises:
        UsageError: it does not exist.
    """
    if path is not None and not (parent := path.absolute().parent).is_dir():
        raise UsageError(f"{parent} is no folder", "make it, or name another place")


def unused(path: Path) -> Path:
    """Return a path that nothing has: this one, else with -2, -3 and so on before its suffix."""
    free, count = path, 2
    while free.exists():
        free, count = path.with_name(f"{path.stem}-{count}{path.suffix}"), count + 1
    return free


def write_csv(path: Path, names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as CSV with a heading; an existing file is replaced.

    Args:
        path: of the file.
        names: of the columns.
        rows: have values of these names alone.

    Raises:
        OSError: it cannot be written.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with whole_file(path, replace=True) as partial:
        partial.write_text(text.getvalue(), encoding="utf-8")


def refuse_to_replace(path: Path) -> None:
    """Refuse what holds more than a file that is written again: as root, even a device could be replaced.

    Raises:
        OSError: it is a database, or no plain file.
    """
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    try:
        begins = read_beginning(path, len(_DATABASE)) if path.is_file() else b""
    except OSError:  # what cannot be read, this user could still remove
        return
    if begins == _DATABASE:
        raise FileExistsError(errno.EEXIST, "it is a database, and is not replaced", str(path))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Return a new folder, removed at the end of the block; folders that killed processes left are removed first.

    Raises:
        TunerError: it cannot be made.
    """
    try:
        for left in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
            remove_unlocked(left)
        folder, locked = _locked_folder()
    except OSError as error:
        where = error.filename or "no temporary folder"
        raise TunerError(f"{where}: {error.strerror}", "set TMPDIR to a folder that can be written") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(locked)


def _locked_folder() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=TEMPORARY))
        # Before it was locked, another process may take it for one that was left.
        with suppress(FileNotFoundError):
            locked = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _locked(locked)
            if folder.exists():
                return folder, locked
            os.close(locked)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Return a new folder beside the target to fill; without an error, it is on the disk and has the target's name.

    A folder that has the name already is replaced and deleted.

    Raises:
        OSError: it cannot be written.
    """
    partial = _partial(path)
    partial.mkdir()
    locked = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _locked(locked)
        yield partial
        for written in (*partial.rglob("*"), partial):
            sync(written)
        if path.exists():
            _exchange(partial, path)
        else:
            partial.rename(path)
        sync(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(locked)


def _exchange(one: Path, other: Path) -> None:
    """Exchange the names of two folders: in one step, where the file system can."""
    names = (_AT_FDCWD, os.fsencode(one.absolute()), _AT_FDCWD, os.fsencode(other.absolute()))
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None or rename(*names, _RENAME_EXCHANGE):
        aside = one.with_suffix(".replaced")
        other.rename(aside)
        one.rename(other)
        aside.rename(one)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_locked(path: Path, mode: int = 0o666) -> int:
    """Make a file that is locked as long as its descriptor, which is returned, is open: see :func:`remove_unlocked`.

    On a file system without locks it may be taken for what a killed process left.

    Raises:
        OSError: there is something of this name, or it cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    _locked(descriptor)
    return descriptor


def remove_unlocked(path: Path) -> None:
    """Remove a file or folder that a killed process was writing: the kernel dropped its lock with the process."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            kind = os.fstat(descriptor).st_mode
            if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path) if stat.S_ISDIR(kind) else path.unlink()
        finally:
            os.close(descriptor)


def byte_lock(kind: int, start: int) -> bytes:
    """Return a lock on one byte of a file, as :data:`FLOCK`, which ``fcntl.F_OFD_SETLK`` takes."""
    return struct.pack(FLOCK, kind, os.SEEK_SET, start, 1, 0)


@contextmanager
def alone(path: Path, most_s: float = 0.0) -> Iterator[bool | None]:
    """Run a block with a file locked, which is made where it is missing, or without after waiting so many seconds.

    Yields:
        Whether it is locked; None where another process has it locked, False on a file system without locks.

    Raises:
        OSError: as :func:`open_lock_file`.
    """
    end, lock = time.monotonic() + most_s, open_lock_file(path, os.O_RDWR, 0o600)
    try:
        while (locked := _locked(lock)) is None and time.monotonic() < end:
            time.sleep(0.02)
        yield locked
    finally:
        os.close(lock)


def _locked(descriptor: int) -> bool | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError:
        return False
    return True


def open_lock_file(path: Path, access: int, mode: int) -> int:
    """Open a file that is only ever locked, made where it is missing; return its descriptor.

    Args:
        path: of the file, perhaps in a folder where anybody can put something of that name.
        access: ``os.O_RDONLY`` or ``os.O_RDWR``.
        mode: permissions of a new file, whatever the user's mask.

    Raises:
        OSError: it cannot be made or opened, or is no file: a link, or a pipe, whose opening would wait.
    """
    flags = access | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        # Without O_EXCL, Linux refuses to open another user's file in a folder for all (fs.protected_regular).
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
        os.fchmod(descriptor, mode)
    except FileExistsError:
        descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return descriptor


def refusal(path: Path) -> str:
    """Return why a folder is not trusted with what runs on the GPU: another user could change it. Empty if it is.

    A folder that is not there is trusted: :func:`make_private` makes it.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{path}: {error.strerror}"
    if stat.S_ISLNK(status.st_mode):  # of the user's own, to a larger disk perhaps
        return refusal(path.resolve()) if status.st_uid == os.geteuid() else f"{path} belongs to another user"
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is no folder"
    if not is_private(status):
        return f"{path} belongs to another user or can be written by others"
    return ""


def is_private(status: os.stat_result) -> bool:
    """Return whether only this user can write a file or folder."""
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def make_private(*folders: Path) -> None:
    """Make folders that only this user can enter, whatever the mask: from the top, and what is above the first."""
    folders[0].parent.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
