"""Records without nesting, for CSV: a column for each size, dtype, option and parameter (``parameters.block_m``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NESTED = ("sizes", "dtypes", "options", "parameters")


def flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record in which each value of a nested one stands by itself, named ``outer.inner``."""
    result: dict[str, Any] = {}
    for name, value in record.items():
        if name in NESTED:
            result |= {f"{name}.{inner}": one for inner, one in (value or {}).items()}
        else:
            result[name] = value
    return result


def flat_names(columns: Sequence[str], nested: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the columns of such records, where ``nested`` has the names that occur in each nested one."""
    return [
        name
        for column in columns
        for name in ([f"{column}.{one}" for one in nested.get(column, ())] if column in NESTED else [column])
    ]


def nested_names(records: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the names that occur in the nested ones of some records, in the order of their first occurrence."""
    names: dict[str, dict[str, None]] = {name: {} for name in NESTED}
    for record in records:
        for name in NESTED:
            names[name].update(dict.fromkeys(record.get(name) or {}))
    return {name: list(each) for name, each in names.items()}
