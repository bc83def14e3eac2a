"""Multiplies parameters out step by step, testing each constraint as soon as its names are known.

A million-point product with constraints takes a fraction of a second; a larger one is sampled evenly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.expressions.arithmetic import Expression
from tuner.kernel.variant_spec import ParameterSpec, VariantSpec

Rows = NDArray[np.int64]

MAX_ROWS = 2_000_000
"""A larger valid set is sampled down to this: finding the nearest row still takes milliseconds then."""
MAX_TESTED = 20_000_000
"""Combinations tested in one step of the enumeration; beyond it a sample of them is tested."""
CHUNK = 500_000
"""Combinations tested at a time, which bounds the memory (8 bytes each for every name in a constraint)."""


@dataclass(frozen=True)
class Valid:
    """A variant's valid rows."""

    matrix: NDArray[Any]
    sampled: bool
    excluded_by: str = ""
    """Why there is nothing left, if so: the constraint that the last combinations did not meet."""


@dataclass(frozen=True)
class _Product:
    """The combinations of some rows with every value of some more parameters, each named by one number."""

    columns: Mapping[str, NDArray[Any]]
    rows: int
    places: Mapping[str, NDArray[Any]]
    new: Sequence[str]

    def __len__(self) -> int:
        return self.rows * math.prod(len(self.places[name]) for name in self.new)

    def column(self, name: str, numbers: Rows) -> NDArray[Any]:
        """Return the places of a parameter, known before or new, in the numbered combinations."""
        if name not in self.new:
            return self.columns[name][numbers // (len(self) // self.rows)]
        stride = math.prod(len(self.places[other]) for other in self.new[self.new.index(name) + 1 :])
        return self.places[name][numbers // stride % len(self.places[name])]


def enumerate_valid(
    variant: VariantSpec,
    allowed: Mapping[str, list[int]],
    constants: Mapping[str, Any],
    rng: np.random.Generator,
) -> Valid:
    """Multiply the parameters out step by step, testing each constraint as soon as its names are known."""
    small = np.uint8 if all(len(p.values) < 256 for p in variant.parameters.values()) else np.uint16
    if variant.listed is not None:
        return _listed(variant.listed, allowed, small)
    places = {name: np.array(choices, dtype=small) for name, choices in allowed.items()}
    values = {name: _value_array(parameter) for name, parameter in variant.parameters.items()}
    columns: dict[str, NDArray[Any]] = {}
    rows, sampled = 1, False
    for new, decided in _steps(variant, allowed):
        product = _Product(columns, rows, places, new)
        total = len(product)
        tested = min(total, MAX_TESTED if decided else MAX_ROWS)
        kept, left = [], [0] * len(decided)
        for start in range(0, tested, CHUNK):
            numbers = _spread(start, min(start + CHUNK, tested), tested, total, rng)
            for i, (_, condition) in enumerate(decided):
                named = {n: values[n][product.column(n, numbers)] for n in condition.names & allowed.keys()}
                holds = condition.holds_many({**constants, **named})
                numbers = numbers[np.broadcast_to(holds, numbers.shape)]
                left[i] += len(numbers)
            kept.append(numbers)
        numbers = np.concatenate(kept)
        if not len(numbers):
            reason = next(reason for (reason, _), count in zip(decided, left, strict=True) if not count)
            tried = "of those tried " if sampled or tested < total else ""
            empty = np.empty((0, len(allowed)), dtype=small)
            return Valid(empty, False, f"no combination {tried}meets {reason!r}")
        sampled |= tested < total or len(numbers) > MAX_ROWS
        if len(numbers) > MAX_ROWS:
            numbers = numbers[_spread(0, MAX_ROWS, MAX_ROWS, len(numbers), rng)]
        columns = {name: product.column(name, numbers) for name in [*columns, *new]}
        rows = len(numbers)
    matrix = np.empty((rows, len(allowed)), dtype=small, order="F")
    for j, name in enumerate(allowed):
        matrix[:, j] = columns[name]
    return Valid(_with_default(variant, allowed, constants, matrix) if sampled else matrix, sampled)


def _listed(listed: Sequence[Sequence[int]], allowed: Mapping[str, list[int]], small: type[Any]) -> Valid:
    """Return the combinations of a list whose values are allowed."""
    matrix = np.array(listed, dtype=small, order="F").reshape(len(listed), len(allowed))
    kept = np.ones(len(matrix), dtype=bool)
    for column, places in zip(matrix.T, allowed.values(), strict=True):
        kept &= np.isin(column, places)
    return Valid(matrix[kept], False, "" if kept.any() else "none that is listed has the values asked for")


def _steps(
    variant: VariantSpec, allowed: Mapping[str, list[int]]
) -> Iterator[tuple[list[str], list[tuple[str, Expression]]]]:
    """Order the work: next is always the constraint whose unknown parameters have the fewest combinations."""
    pending, known = list(variant.search_conditions), set[str]()
    while pending:
        wanted = [[n for n in allowed if n in condition.names and n not in known] for _, condition in pending]
        new = min(wanted, key=lambda names: math.prod(len(allowed[n]) for n in names))
        while math.prod(len(allowed[n]) for n in new) > MAX_TESTED:
            known.add(new[0])
            yield [new.pop(0)], []
        known.update(new)
        decided = [c for c in pending if c[1].names & allowed.keys() <= known]
        pending = [c for c in pending if c not in decided]
        yield new, decided
    yield from (([name], []) for name in allowed if name not in known)


def _spread(start: int, stop: int, wanted: int, total: int, rng: np.random.Generator) -> Rows:
    """Return members ``start`` to ``stop`` of a sorted, even sample of ``wanted`` numbers below ``total``."""
    # One number from each of `wanted` stretches, whose edges are whole numbers: none can be drawn twice.
    whole, rest = divmod(total, wanted)
    numbers = np.arange(start, stop + 1, dtype=np.int64)
    edges = numbers * whole + numbers * rest // wanted
    return edges[:-1] + (rng.random(stop - start) * np.diff(edges)).astype(np.int64)


def _value_array(parameter: ParameterSpec) -> NDArray[Any]:
    values = np.array(parameter.values)
    # Booleans count as 0 and 1 in Python's arithmetic, but NumPy adds them with "or".
    return values.astype(np.int64) if values.dtype == bool else values


def _with_default(
    variant: VariantSpec, allowed: Mapping[str, list[int]], constants: Mapping[str, Any], matrix: NDArray[Any]
) -> NDArray[Any]:
    """Add the default configuration to a sample, if it is valid: the search starts there."""
    names = {**constants, **variant.defaults}
    row = [parameter.values.index(parameter.default) for parameter in variant.parameters.values()]
    if not all(place in places for place, places in zip(row, allowed.values(), strict=True)):
        return matrix
    if not all(condition.holds(names) for _, condition in variant.search_conditions):
        return matrix
    there = np.all([column == place for column, place in zip(matrix.T, row, strict=True)], axis=0).any()
    return matrix if there else np.vstack([matrix, np.array([row], dtype=matrix.dtype)])
