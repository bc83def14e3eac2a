"""Keys of kernel files that were renamed, and are read under their old names until the next release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.core.errors import KernelError

_ARGUMENT = ("launches", "*", "arguments", "*")
RENAMED: tuple[tuple[tuple[str, ...], str, str], ...] = (
    ((), "seeds", "initial"),
    ((), "terms", "definitions"),
    (("initial", "*"), "least", "minimize"),
    (("variants", "*"), "worthwhile", "pruning"),
    (("variants", "*", *_ARGUMENT), "places", "cluster_order"),
    (("variants", "*", *_ARGUMENT), "promotion", "l2_promotion"),
    (("reference", "cuda", "arguments", "*"), "promotion", "l2_promotion"),
)
"""The tables that have a key, its old name, and today's; ``*`` stands for every key or number."""


def today(key: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return the keys down to a value as they are called today."""
    for tables, old, new in RENAMED:
        end = len(tables)
        if key[end : end + 1] == (old,) and _matches(key[:end], tables):
            key = (*key[:end], new, *key[end + 1 :])
    return key


def rename_old_keys(data: dict[str, Any], file: str) -> tuple[str, ...]:
    """Return a sentence for each key of a file's data that had an old name; all have those of today after it.

    Args:
        data: what the file holds.
        file: its name, for errors.

    Raises:
        KernelError: a table has a key under both names.
    """
    notes: dict[str, None] = {}
    for tables, old, new in RENAMED:
        for where, table in _tables(data, tables):
            if old not in table:
                continue
            if new in table:
                at = "".join(f"{part}: " for part in where)
                raise KernelError(
                    f"{file}: {at}{old} and {new} are one key", f"leave out {old}, its old name"
                )
            items = [(new if key == old else key, value) for key, value in table.items()]
            table.clear()  # the order of keys is that of parameters
            table.update(items)
            notes[
                f"the key {old!r} of kernel files is called {new!r} now: rename it before the next release"
            ] = None
    return tuple(notes)


def _tables(
    value: Any, path: tuple[str, ...], where: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the tables that a path leads to, each with the keys down to it as errors name them."""
    if not path:
        if isinstance(value, dict):
            yield where, value
        return
    if path[0] != "*":
        if isinstance(value, dict) and path[0] in value:
            yield from _tables(value[path[0]], path[1:], (*where, path[0]))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tables(item, path[1:], (*where, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _tables(item, path[1:], (*where[:-1], f"{where[-1]}[{number}]"))


def _matches(key: tuple[str | int, ...], tables: tuple[str, ...]) -> bool:
    return all(expected in ("*", part) for part, expected in zip(key, tables, strict=True))
