"""Files: one written in one step, and over one that is there only if that is asked for; a compressed one unpacked."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner.core.errors import DatabaseError, RecordingError
from tuner.core.files import whole_file
from tuner.core.model import ascii_json

GZIP = b"\x1f\x8b"
"""Begins a compressed file."""
PIECE_BYTES = 1 << 22


def unpacked(path: Path, packed: bytes, most_bytes: int, again: str = "fetch it again") -> bytes:
    """Return the content of a gzip file with any number of members; what is too large is never kept.

    Args:
        path: of the file, for messages.
        packed: its bytes.
        most_bytes: that it may hold.
        again: what to do about a damaged one.

    Raises:
        RecordingError: it is damaged, or holds more.
    """
    try:
        if _unpacks_beyond(packed, most_bytes):
            raise too_large(path, most_bytes)
        content = b""
        while packed.startswith(GZIP):
            unpacker = zlib.decompressobj(wbits=31)
            content += unpacker.decompress(packed)
            if not unpacker.eof:
                raise RecordingError(f"{path}: the compressed file is cut off", again)
            packed = unpacker.unused_data
    except zlib.error:
        raise RecordingError(f"{path}: damaged: it cannot be decompressed", again) from None
    return content


def too_large(path: Path, most_bytes: int) -> RecordingError:
    """Return the error for a file that holds more than so much."""
    return RecordingError(
        f"{path}: larger than {most_bytes >> 20} MiB", "split it, or keep fewer samples in it"
    )


def _unpacks_beyond(packed: bytes, most_bytes: int) -> bool:
    """Return whether a gzip file holds more than so much, with never more than a piece of it in memory."""
    size_bytes = 0
    while packed.startswith(GZIP):
        unpacker = zlib.decompressobj(wbits=31)
        while packed:
            size_bytes += len(unpacker.decompress(packed, PIECE_BYTES))
            if size_bytes > most_bytes:
                return True
            packed = unpacker.unconsumed_tail
        packed = unpacker.unused_data
    return False


@contextmanager
def new_file(path: Path, *, force: bool) -> Iterator[Path]:
    """Return a path beside the target to write to; without an error, it then has the target's name.

    Args:
        path: of the target, in a folder that exists.
        force: replace a plain file of that name; a link, a folder or a device is never replaced.

    Raises:
        DatabaseError: there is something of that name, or it cannot be written.
    """
    try:
        if not path.parent.is_dir():
            raise DatabaseError(f"{path.parent} is no folder", "make it, or name another file with -o")
        if os.path.lexists(path):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise DatabaseError(f"{path} is a link, a folder or a device", "name a plain file with -o")
            if not force:
                raise DatabaseError(f"{path} exists already", "add --force, or name a new file with -o")
        with whole_file(path, replace=force) as partial:
            yield partial
    except OSError as error:
        raise DatabaseError(f"{path}: {error.strerror or error}", "name another file with -o") from error


def json_text(data: Any) -> str:
    """Return JSON with a line for each value, so that text tools can work with it."""
    return ascii_json(data, indent=1) + "\n"


def json_with_entries(data: Mapping[str, Any], entries: Iterable[str]) -> Iterator[str]:
    """Yield :func:`json_text` of an object in pieces, one for each entry of its last value.

    Args:
        data: the object; its last value is an empty list or dictionary.
        entries: JSON of each of a list's values, or of a dictionary's names and values; at least one.
    """
    text = json_text(data)
    end = len("]\n}\n")
    yield text[:-end]
    before = "\n  "
    for entry in entries:
        yield before + entry.replace("\n", "\n  ")
        before = ",\n  "
    yield "\n " + text[-end:]


def write_text(path: Path, pieces: Iterable[str], *, force: bool) -> None:
    """Write text, compressed if the name ends in ``.gz``; ``force`` replaces a file that is there.

    Raises:
        DatabaseError: there is something of that name, or it cannot be written.
    """
    data = (piece.encode() for piece in pieces)
    with new_file(path, force=force) as partial, partial.open("wb") as file:
        file.writelines(_packed(data) if path.suffix == ".gz" else data)


def _packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(9, wbits=31)
    yield from map(packer.compress, pieces)
    yield packer.flush()
