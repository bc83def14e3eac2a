"""Files: one written in one step, and over one that is there only if that is asked for; a compressed one unpacked."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tuner.core.errors import DatabaseError, RecordingError, UsageError
from tuner.core.files import refuse_missing_parent, whole_file
from tuner.core.model import ascii_json
from tuner.core.reading import plain_file

GZIP = b"\x1f\x8b"
"""Begins a compressed file."""
READ_BYTES = 1 << 16
PIECE_BYTES = 1 << 20
MOST_MEMBERS = 10_000
"""Of a gzip file: compressors that write in blocks make one of each 64 KiB."""


class CutOffError(RecordingError):
    """A compressed file ends too early: what was yielded of it is right as far as it goes."""


def pieces(path: Path, most_bytes: int, again: str = "fetch it again") -> Iterator[bytes]:
    """Yield the content of a file in pieces of at most 1 MiB, unpacked if it is gzip; nothing of it is kept.

    Args:
        path: of a plain file.
        most_bytes: that it may hold.
        again: what to do about a damaged one.

    Raises:
        CutOffError: it is compressed, and has no end.
        UsageError: there is no such file.
        RecordingError: it cannot be read, is damaged, or holds more.
    """
    size_bytes = 0
    try:
        with plain_file(path) as file:
            for piece in _pieces(file):
                if not size_bytes and piece.startswith(GZIP):
                    raise RecordingError(f"{path}: compressed twice", "decompress it once")
                size_bytes += len(piece)
                if size_bytes > most_bytes:
                    raise RecordingError(
                        f"{path}: larger than {most_bytes >> 20} MiB", "split it, or keep fewer samples in it"
                    )
                yield piece
    except OSError as error:
        kind = UsageError if isinstance(error, FileNotFoundError) else RecordingError
        raise kind(f"cannot read {path}: {error.strerror or error}", "name a file") from None
    except EOFError:
        raise CutOffError(f"{path}: the compressed file is cut off", again) from None
    except zlib.error:
        raise RecordingError(f"{path}: damaged: it cannot be decompressed", again) from None
    except OverflowError:
        raise RecordingError(
            f"{path}: more than {MOST_MEMBERS} compressed parts", "decompress it, and name the result"
        ) from None


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield what a file holds.

    Raises:
        EOFError: compressed data is cut off.
        OverflowError: it has more than :data:`MOST_MEMBERS`.
        zlib.error: it cannot be decompressed, or something follows that is neither gzip nor zeros.
    """
    data = file.read(READ_BYTES)
    if not data.startswith(GZIP):
        while data:
            yield data
            data = file.read(READ_BYTES)
        return
    for _ in range(MOST_MEMBERS):
        unpacker = zlib.decompressobj(wbits=31)
        while not unpacker.eof:
            if not (data := data or file.read(READ_BYTES)):
                raise EOFError
            yield unpacker.decompress(data, PIECE_BYTES)
            data = unpacker.unconsumed_tail
        data = unpacker.unused_data
        if len(data) < len(GZIP):
            data += file.read(READ_BYTES)
        if not data.startswith(GZIP):
            if data.strip(b"\0"):
                raise zlib.error
            return
    raise OverflowError


@contextmanager
def new_file(path: Path, *, force: bool) -> Iterator[Path]:
    """Return a path beside the target to write to; without an error, it then has the target's name.

    Args:
        path: of the target.
        force: replace a plain file of that name; a link, a folder or a device is never replaced.

    Raises:
        UsageError: there is no folder around it.
        DatabaseError: there is something of that name, or it cannot be written.
    """
    try:
        refuse_missing_parent(path)
        if os.path.lexists(path):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise DatabaseError(f"{path} is a link, a folder or a device", "name a plain file with -o")
            if not force:
                raise DatabaseError(f"{path} exists already", "add --force, or name a new file with -o")
        with whole_file(path, replace=force) as partial:
            yield partial
    except OSError as error:
        raise DatabaseError(f"{path}: {error.strerror or error}", "name another file with -o") from error


def json_with_entries(data: Mapping[str, Any], entries: Iterable[str]) -> Iterator[str]:
    """Yield an object's JSON in pieces, one for each entry of its last value, with a line for each value.

    Args:
        data: the object; its last value is an empty list or dictionary.
        entries: JSON of each of a list's values, or of a dictionary's names and values; at least one.
    """
    text = ascii_json(data, indent=1) + "\n"
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
