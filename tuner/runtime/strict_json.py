"""JSON that is read key by key: a key that is missing, unknown or there twice, and any wrong value, is an error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from ..core.errors import BundleError
from .expressions import MAX_INTEGER, MIN_INTEGER

FILE = "manifest.json"
MAX_BYTES = 64 * 2**20
MAX_VALUES = 2_000_000
"""Of a manifest: numbers, texts, words, lists and objects, each of which takes some memory. C++ has the same limits."""
MAX_KEYS = 1000
"""Of an object."""
MAX_TEXT = 10_000
MAX_DIGITS = 20
"""Of an integer; 64 bits have 19 and a sign."""
_TEXTS, _EMPTY = re.compile(rb'"(?:[^"\\]|\\.)*+"'), re.compile(rb"\[\s*\]|\{\s*\}")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_REQUIRED: Any = object()
Item = TypeVar("Item")
Read = Callable[[Any, str], Item]
"""Takes a value and where it is, for errors; returns it checked."""


def refuse(where: str, problem: str) -> NoReturn:
    """Raise the error of a damaged file."""
    raise BundleError(
        f"{FILE}: {where}{': ' if where else ''}{problem}", "the bundle is damaged: copy or write it again"
    )


def parsed(data: bytes) -> Any:
    """Return what JSON in UTF-8 says.

    Raises:
        BundleError: it is beyond a limit, something else, nested too deeply, or has a key twice or a number beyond 64
            bits.
    """
    require_within_limits(data)
    try:
        return json.loads(
            data.decode(), object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant
        )
    except UnicodeDecodeError as error:
        refuse("", f"byte {error.start} is not UTF-8")
    except RecursionError:
        refuse("", "it is nested too deeply")
    except ValueError as error:
        refuse("", f"it is not JSON: {error}")


def require_within_limits(data: bytes) -> None:
    """Raise an error for a manifest that no launcher loads, which ``tune bundle`` therefore does not write.

    Raises:
        BundleError: it has more bytes or values than the limit.
    """
    for count, most, what in ((len(data), MAX_BYTES, "bytes"), (_values(data), MAX_VALUES, "values")):
        if count > most:
            raise BundleError(
                f"{FILE} has {count} {what}, and the limit is {most}",
                "make a smaller bundle: tune bundle --gpu, --dtype and --few take less into it",
            )


def _values(data: bytes) -> int:
    """Return how many values JSON has, 0 if clearly few: each has a comma behind it, or ends its container."""
    if 1 + sum(map(data.count, (b",", b"[", b"{"))) <= MAX_VALUES:
        return 0
    bare = _TEXTS.sub(b"", data)
    return 1 + sum(map(bare.count, (b",", b"[", b"{"))) - len(_EMPTY.findall(bare))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_KEYS:
        raise ValueError(f"an object has {len(pairs)} keys, and the limit is {MAX_KEYS}")
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError(f"the key {_twice(key for key, _ in pairs)[:80]!r} is there twice")
    return table


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS or not MIN_INTEGER <= int(digits) <= MAX_INTEGER:
        raise ValueError(f"the number {digits[:24]} is beyond 64 bits")
    return int(digits)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), "")  # type: ignore[func-returns-value]


class JsonObject:
    """An object of which every key must be taken."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            refuse(where, "it must be an object")
        self._value = dict(value)
        self.where = where

    def has(self, key: str) -> bool:
        """Return whether a key is there and was not taken."""
        return key in self._value

    def take(self, key: str, read: Read[Item], default: Any = _REQUIRED) -> Item:
        """Return a key's value, checked; the default as it is where the key is absent."""
        if key in self._value:
            return read(self._value.pop(key), f"{self.where}.{key}" if self.where else key)
        if default is _REQUIRED:
            refuse(self.where, f"{key} is missing")
        return default  # type: ignore[no-any-return]

    def done(self, item: Item) -> Item:
        """Return an item that was made of all keys; an error if one is left."""
        if self._value:
            refuse(self.where, f"the key {min(self._value)[:80]!r} is unknown")
        return item


def record_of(
    make: Callable[..., Item], defaults: Mapping[str, Any] | None = None, **fields: Read[Any]
) -> Read[Item]:
    """Return a reader of objects as records.

    Args:
        make: a record's class.
        defaults: of the fields that an object may lack.
        fields: the reader of each field.
    """

    def read_record(value: Any, where: str) -> Item:
        table = JsonObject(value, where)
        absent = defaults or {}
        taken = {name: table.take(name, read, absent.get(name, _REQUIRED)) for name, read in fields.items()}
        return table.done(make(**taken))

    return read_record


def text(value: Any, where: str) -> str:
    """Return a text of one line."""
    if not isinstance(value, str) or len(value) > MAX_TEXT or _CONTROL.search(value):
        refuse(where, f"it must be a text on one line, of at most {MAX_TEXT} characters")
    return value


def matching(pattern: str, what: str) -> Read[str]:
    """Return a reader of texts that a regular expression matches as a whole."""
    compiled = re.compile(pattern)

    def read(value: Any, where: str) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            refuse(where, f"it must be {what}")
        return value

    return read


def flag(value: Any, where: str) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        refuse(where, "it must be true or false")
    return value


def whole(low: int, high: int) -> Read[int]:
    """Return a reader of whole numbers from ``low`` to ``high``."""

    def read(value: Any, where: str) -> int:
        if type(value) is not int or not low <= value <= high:
            refuse(where, f"it must be a whole number from {low} to {high}")
        return value

    return read


def optional(read: Read[Item]) -> Read[Item | None]:
    """Return a reader of what another reads, or of null."""
    return lambda value, where: None if value is None else read(value, where)


def positive(value: Any, where: str) -> float:
    """Return a finite number above 0."""
    if type(value) not in (int, float) or not 0 < value < math.inf:
        refuse(where, "it must be a number above 0")
    return float(value)


def plain(value: Any, where: str) -> int | float | bool | str:
    """Return a finite number, a text, true or false."""
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return text(value, where)


def list_of(read: Read[Item], fewest: int = 0, most: int = MAX_BYTES) -> Read[tuple[Item, ...]]:
    """Return a reader of lists, of so many items."""

    def read_list(value: Any, where: str) -> tuple[Item, ...]:
        if not isinstance(value, list) or not fewest <= len(value) <= most:
            refuse(where, f"it must be a list{f' of {fewest} to {most} items' if most < MAX_BYTES else ''}")
        return tuple(read(item, f"{where}[{index}]") for index, item in enumerate(value))

    return read_list


def mapping_of(read_key: Read[str], read: Read[Item]) -> Read[dict[str, Item]]:
    """Return a reader of objects with keys of one kind and values of one kind."""

    def read_mapping(value: Any, where: str) -> dict[str, Item]:
        if not isinstance(value, dict):
            refuse(where, "it must be an object")
        keys = [read_key(key, where) for key in value]
        return {key: read(value[key], f"{where}.{key}") for key in keys}

    return read_mapping


def check_different(names: Iterable[str], where: str) -> None:
    """Raise an error if a name is there twice."""
    if name := _twice(names):
        refuse(where, f"{name} is there twice")
