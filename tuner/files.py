"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Return a path beside the target to write to; without an error, it is on the disk and has the target's name.

    Args:
        path: of the target; its folder is created.
        replace: whether the target may exist.

    Raises:
        OSError: the target exists, also where another process was faster, or it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
        _sync(partial)
        if replace:
            partial.replace(path)
        else:
            os.link(partial, path)
        _sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
