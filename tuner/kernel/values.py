"""Values of a tunable parameter: how one that comes from a file or a command line is found in the parameter's list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tuner.model import Value

Typed = tuple[type, Value]
"""A value as a key: ``True == 1 == 1.0`` in Python, but only the last two are the same value of a parameter."""


def typed(value: Value) -> Typed:
    """Return a value as a key. A number may change its type on its way through a file, a boolean may not."""
    return (type(value) if isinstance(value, bool | str) else float, value)


def indices(values: Iterable[Value]) -> dict[Typed, int]:
    """Return the index of each value in a list of values."""
    return {typed(value): index for index, value in enumerate(values)}


def index_of(value: Any, values: Iterable[Value]) -> int | None:
    """Return the index of a value in a list, or None: a whole number may be a float, a boolean is not a number."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, bool | int | float | str):
        return None
    return indices(values).get(typed(value))


def index_of_text(value: Value, values: Iterable[Value]) -> int | None:
    """Return the index of a value in a list, or None; text from the command line may stand for any type."""
    values = tuple(values)
    if (index := index_of(value, values)) is not None or not isinstance(value, str):
        return index
    words = {True: ("true", "yes"), False: ("false", "no")}
    texts = [words[v] if isinstance(v, bool) else (str(v),) for v in values]
    return next((index for index, text in enumerate(texts) if value.strip().lower() in text), None)
