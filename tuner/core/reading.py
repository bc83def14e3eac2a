"""Files of any size and kind, of which never more than a limit is read. A bundle has a copy of this module."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, TypeGuard


def may_be_path(given: object) -> TypeGuard[str | os.PathLike[str]]:
    """Return whether something is a path or text that can name a file."""
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    try:
        return isinstance(text, str) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # half of a character
        return False


def read_beginning(path: Path, size_bytes: int) -> bytes:
    """Return so many bytes of a file, or all if it has fewer.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(size_bytes)


def read_at_most(path: Path, most_bytes: int, *, pipes: bool = False) -> bytes:
    """Return what a file holds.

    Args:
        path: of the file.
        most_bytes: that it may hold; no more are ever read.
        pipes: whether it may be a pipe, such as a shell's ``<(command)``, for which is waited.

    Raises:
        OSError: it cannot be read, is larger, or is a folder, a device or a pipe.
    """
    with path.open("rb") if pipes else plain_file(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        data = file.read(most_bytes + 1) if size_bytes <= most_bytes else b""
    if size_bytes > most_bytes or len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes >> 20} MiB", str(path))
    return data


def plain_file(path: Path) -> BinaryIO:
    """Return a plain file, open for reading; a pipe, which one might wait for, is refused at once.

    Raises:
        OSError: it cannot be read, or is a folder, a device or a pipe.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return file
