"""A file written in one step, and never over one that is there."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner.errors import DatabaseError
from tuner.files import whole_file
from tuner.model import ascii_json


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Return a path beside the target to write to; without an error, it is linked to the target's name.

    Raises:
        DatabaseError: there is something of that name, or it cannot be written.
    """
    try:
        if os.path.lexists(path):
            raise DatabaseError(f"{path} exists already", "remove it, or name a new file with -o")
        with whole_file(path) as partial:
            yield partial
    except OSError as error:
        raise DatabaseError(f"{path}: {error.strerror or error}", "name another file with -o") from error


def json_text(data: Any) -> str:
    """Return JSON with a line for each result, so that text tools can work with it."""
    return ascii_json(data, indent=1) + "\n"


def write_json(path: Path, data: Any) -> None:
    """Write JSON, compressed if the name ends in ``.gz``.

    Raises:
        DatabaseError: there is something of that name, or it cannot be written.
    """
    text = json_text(data).encode()
    with new_file(path) as partial:
        partial.write_bytes(gzip.compress(text, 9, mtime=0) if path.suffix == ".gz" else text)
