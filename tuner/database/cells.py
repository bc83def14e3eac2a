"""Values as cells of the database and back, and the digest that seals a row."""

from __future__ import annotations

import array
import json
import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any

import msgspec

from tuner.core.errors import DatabaseError
from tuner.core.model import Configuration, Verification, canonical_json, digest
from tuner.core.stats import outlier_count

MAX_TEXT = 1 << 20
"""Characters kept of an error or a compiler log: more than anyone reads, and no danger to the disk."""
MAX_SAMPLES = 1 << 16
"""More than any timing takes: a search takes 100, a benchmark some thousands. A hostile row holds no more."""
MAX_CELL = 1 << 18
"""Characters of any other cell, and bytes: a configuration takes 1 KB, a GPU's limits 2 KB."""
TOO_LONG = "store less"
_LONG = {
    **dict.fromkeys(("error", "compile_log", "reason", "text"), MAX_TEXT),
    "samples": 4 * MAX_SAMPLES + 1024,  # what zlib makes of noise
}
_NOT_CONTENT = {"id", "digest"}
"""Columns that may change without the row becoming another one."""
_NOT_CONTENT_OF_RUNS = {"digest", "state", "ended_at", "stats", "owner"}
"""The same; a run's id is content."""
ADDED = frozenset(("computation", "implementation"))
"""Columns of schema 3, which count in a digest where they hold something: the rows of before keep theirs. A later one
must be text that is empty in older rows, and stand here."""


_Parameter = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | float | bool | str


UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError, zlib.error)
"""What a damaged cell raises where it is decoded."""


class Damaged(Exception):  # noqa: N818 - a finding; the reader decides what becomes of it
    """A row whose content is not what was written."""


def now() -> str:
    """Return the time in UTC, in a form that sorts as text."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def row_digest(table: str, row: Mapping[str, Any]) -> str:
    """Hash a row's content; row numbers are not content, so that a merged row keeps its digest."""
    return content_digest(row, _NOT_CONTENT_OF_RUNS if table == "runs" else _NOT_CONTENT)


def content_digest(row: Mapping[str, Any], ignored: Collection[str]) -> str:
    """Hash the names and values of a row but for those of some columns.

    Raises:
        ValueError: an infinity or a NaN, or text that UTF-8 cannot hold.
    """
    content = {n: v for n, v in row.items() if n not in ignored and not (v == "" and n in ADDED)}
    return digest({n: v.hex() if isinstance(v, bytes) else v for n, v in content.items()})


def sealed(table: str, /, **row: Any) -> dict[str, Any]:
    """Return the row with its digest.

    Raises:
        DatabaseError: a cell is longer than a reader accepts.
    """
    if name := too_long(row):
        raise DatabaseError(f"{len(row[name])} characters are too many for the column {name}", TOO_LONG)
    return {**row, "digest": row_digest(table, row)}


def too_long(row: Mapping[str, Any]) -> str:
    """Return the name of a cell that is longer than what is written; empty if there is none."""
    for name, value in row.items():
        if isinstance(value, (str, bytes)) and len(value) > MAX_CELL and len(value) > _LONG.get(name, 0):
            return name
    return ""


def intact(table: str, row: Mapping[str, Any]) -> bool:
    """Return whether a row is what was written."""
    try:
        return bool(row_digest(table, row) == row["digest"])
    except (LookupError, ValueError, TypeError):  # also a column whose name is damaged
        return False


def storable(text: str) -> str:
    """Return what UTF-8 can hold of a text, up to :data:`MAX_TEXT` characters."""
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()


def real(value: float | None) -> float | None:
    """Return a plain number, or nothing for an infinity or a NaN."""
    return float(value) if value is not None and math.isfinite(value) else None


def plain(value: Any) -> Any:
    """Turn NumPy's numbers and other mappings and sequences into what JSON can hold."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return storable(value)
    if hasattr(value, "item"):
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def to_json(value: Any) -> str:
    """Return JSON text that keeps the order of names; infinities and NaN become text."""
    return json.dumps(plain(value), separators=(",", ":"), allow_nan=False)


@cache
def _decoder(kind: Any, *, strict: bool) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=strict)


def from_json(text: str, kind: Any = Any, *, strict: bool = True) -> Any:
    """Read JSON text.

    Args:
        text: JSON.
        kind: the type that it should have, as msgspec takes it.
        strict: whether text is no number.

    Raises:
        ValueError: it is no JSON, or of another type.
    """
    return _decoder(kind, strict=strict).decode(text)


def encode_samples(samples: Sequence[float]) -> bytes:
    """Return zlib of little-endian float32.

    Raises:
        DatabaseError: more than :data:`MAX_SAMPLES`.
    """
    if len(samples) > MAX_SAMPLES:
        raise DatabaseError(f"{len(samples)} samples are too many", TOO_LONG)
    return zlib.compress(array.array("f", samples).tobytes())


def decode_samples(blob: bytes, count: int) -> tuple[float, ...]:
    """Return the samples that were encoded.

    Raises:
        ValueError: not this many.
        zlib.error: the bytes are damaged.
    """
    if not 0 <= count <= MAX_SAMPLES:
        raise ValueError(f"{count} samples")
    data = zlib.decompressobj().decompress(blob, 4 * count + 1)
    if len(data) != 4 * count:
        raise ValueError("samples are missing")
    return tuple(array.array("f", data))


def outliers_in(blob: bytes, count: int) -> int:
    """Count the outliers of stored samples, with the errors of :func:`decode_samples`."""
    samples = decode_samples(blob, count)
    return outlier_count(samples) if samples else 0


def encode_parameters(configuration: Configuration) -> str:
    """Return the parameters as JSON, in their order."""
    return to_json(configuration.values)


def decode_configuration(row: Mapping[str, Any]) -> Configuration:
    """Rebuild a configuration from the columns ``variant`` and ``configuration``."""
    return Configuration.of(row["variant"], from_json(row["configuration"], dict[str, _Parameter]))


def encode_verification(verification: Verification) -> str:
    """Return a verification as JSON text."""
    return canonical_json(plain(vars(verification)))


def decode_verification(text: str) -> Verification:
    """Rebuild a verification from JSON text, in which an infinity or a NaN is text."""
    verification: Verification = from_json(text, Verification, strict=False)
    return verification
