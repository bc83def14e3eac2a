"""Look up values from a file or the command line in a parameter's list of values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.core.model import Value

Typed = tuple[type, Value]
"""A value as a dictionary's key: ``True == 1 == 1.0`` in Python, but as values of a parameter only 1 and 1.0 are
equal."""


def typed(value: Value) -> Typed:
    """Return a value as a key: a file may turn an integer into a float, but not a boolean into a number."""
    return (type(value) if isinstance(value, bool | str) else float, value)


def indices(values: Iterable[Value]) -> dict[Typed, int]:
    """Return the index of each value in a list of values."""
    return {typed(value): index for index, value in enumerate(values)}


def value_array(values: Sequence[Value]) -> NDArray[Any]:
    """Return values as an array to calculate with: booleans as 0 and 1, since NumPy adds them with "or"."""
    array = np.array(values)
    return array.astype(np.int64) if array.dtype == bool else array


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
