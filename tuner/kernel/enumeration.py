"""Enumerate valid configurations parameter by parameter, checking each constraint as soon as its names have values.

A million combinations with constraints take a fraction of a second; more of them are sampled evenly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.expressions.arithmetic import Expression
from tuner.kernel.variant_spec import VariantSpec, first_unmet, value_array

Rows = NDArray[np.int64]

MAX_ROWS = 2_000_000
"""Rows to which a larger valid set is sampled down: finding the nearest of them takes milliseconds."""
MAX_TESTED = 20_000_000
"""Combinations tested in one step of the enumeration; of more, a sample is tested."""
CHUNK = 50_000
"""Combinations tested at a time: 8 bytes each for every name in a constraint, which a processor's cache should hold."""


@dataclass(frozen=True)
class Valid:
    """A variant's valid rows."""

    matrix: NDArray[Any]
    sampled: bool
    excluded_by: str = ""
    """Why no row is left: the constraint that the last combinations did not meet; empty otherwise."""


@dataclass(frozen=True)
class _Product:
    """The combinations of some rows with all values of new parameters, each identified by one number.

    Attributes:
        columns: for each earlier parameter, the index of its value in each row.
        rows: number of rows.
        choices: for each parameter, the indices of its allowed values.
        new: the new parameters.
    """

    columns: Mapping[str, NDArray[Any]]
    rows: int
    choices: Mapping[str, NDArray[Any]]
    new: Sequence[str]

    def __len__(self) -> int:
        return self.rows * math.prod(len(self.choices[name]) for name in self.new)

    def column(self, name: str, numbers: Rows) -> NDArray[Any]:
        """Return the indices of a parameter's values in the numbered combinations."""
        if name not in self.new:
            return self.columns[name][numbers // (len(self) // self.rows)]
        stride = math.prod(len(self.choices[other]) for other in self.new[self.new.index(name) + 1 :])
        return self.choices[name][numbers // stride % len(self.choices[name])]


def enumerate_valid(
    variant: VariantSpec,
    allowed: Mapping[str, list[int]],
    constants: Mapping[str, Any],
    rng: np.random.Generator,
) -> Valid:
    """Return a variant's valid rows.

    Args:
        variant: its constraints and pruning rules are applied.
        allowed: for each parameter, the indices of the values that it may have.
        constants: values of all other names in the constraints.
        rng: chooses the sample of a space too large to enumerate.
    """
    small = np.uint8 if all(len(p.values) < 256 for p in variant.parameters.values()) else np.uint16
    if variant.listed is not None:
        return _listed(variant.listed, allowed, small)
    choices = {name: np.array(indices, dtype=small) for name, indices in allowed.items()}
    values = {name: value_array(parameter.values) for name, parameter in variant.parameters.items()}
    columns: dict[str, NDArray[Any]] = {}
    rows, sampled = 1, False
    for new, decided in _steps(variant, allowed):
        product = _Product(columns, rows, choices, new)
        total = len(product)
        tested = min(total, MAX_TESTED if decided else MAX_ROWS)
        numbers, left = _meeting(product, tested, decided, values, constants, rng)
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


def _meeting(
    product: _Product,
    tested: int,
    conditions: Sequence[tuple[str, Expression]],
    values: Mapping[str, NDArray[Any]],
    constants: Mapping[str, Any],
    rng: np.random.Generator,
) -> tuple[Rows, list[int]]:
    """Return the numbers of the tested combinations that meet all conditions, and how many each condition leaves."""
    kept, left = [], [0] * len(conditions)
    for start in range(0, tested, CHUNK):
        numbers = _spread(start, min(start + CHUNK, tested), tested, len(product), rng)
        columns: dict[str, NDArray[Any]] = {}  # of the numbered combinations
        for i, (_, condition) in enumerate(conditions):
            wanted = condition.names & values.keys()
            columns |= {n: product.column(n, numbers) for n in wanted - columns.keys()}
            named = {n: values[n][columns[n].astype(np.intp)] for n in wanted}
            holds = np.broadcast_to(condition.holds_many({**constants, **named}), numbers.shape)
            if not holds.all():
                # Indices, and of full width: with a mask, or narrow ones, it takes five times as long.
                kept_here = np.flatnonzero(holds)
                numbers = numbers[kept_here]
                columns = {n: column[kept_here] for n, column in columns.items()}
            left[i] += len(numbers)
        kept.append(numbers)
    return np.concatenate(kept), left


def _listed(listed: Sequence[Sequence[int]], allowed: Mapping[str, list[int]], small: type[Any]) -> Valid:
    """Return the listed combinations whose values are all allowed."""
    matrix = np.array(listed, dtype=small, order="F").reshape(len(listed), len(allowed))
    kept = np.ones(len(matrix), dtype=bool)
    for column, indices in zip(matrix.T, allowed.values(), strict=True):
        kept &= np.isin(column, indices)
    return Valid(matrix[kept], False, "" if kept.any() else "no listed configuration has the required values")


def _steps(
    variant: VariantSpec, allowed: Mapping[str, list[int]]
) -> Iterator[tuple[list[str], list[tuple[str, Expression]]]]:
    """Return the steps of the enumeration: the parameters to add, and the conditions that can be tested then.

    Next is always the condition whose missing parameters have the fewest combinations.
    """
    pending, added = list(variant.search_conditions), set[str]()
    while pending:
        missing = [
            [n for n in allowed if n in condition.names and n not in added] for _, condition in pending
        ]
        new = min(missing, key=lambda names: math.prod(len(allowed[n]) for n in names))
        while math.prod(len(allowed[n]) for n in new) > MAX_TESTED:
            added.add(new[0])
            yield [new.pop(0)], []
        added.update(new)
        decided = [c for c in pending if c[1].names & allowed.keys() <= added]
        pending = [c for c in pending if c not in decided]
        yield new, decided
    yield from (([name], []) for name in allowed if name not in added)


def _spread(start: int, stop: int, size: int, total: int, rng: np.random.Generator) -> Rows:
    """Return members ``start`` to ``stop`` of a sorted, even sample of ``size`` numbers below ``total``."""
    # One number from each of `size` disjoint intervals with integer bounds: none can be drawn twice.
    whole, rest = divmod(total, size)
    numbers = np.arange(start, stop + 1, dtype=np.int64)
    bounds = numbers * whole + numbers * rest // size
    return bounds[:-1] + (rng.random(stop - start) * np.diff(bounds)).astype(np.int64)


def _with_default(
    variant: VariantSpec, allowed: Mapping[str, list[int]], constants: Mapping[str, Any], matrix: NDArray[Any]
) -> NDArray[Any]:
    """Return a sample with the default configuration, where a search starts, added if it is valid."""
    names = {**constants, **variant.defaults}
    row = [parameter.values.index(parameter.default) for parameter in variant.parameters.values()]
    if not all(index in indices for index, indices in zip(row, allowed.values(), strict=True)):
        return matrix
    if first_unmet(variant.search_conditions, names) is not None:
        return matrix
    sampled = np.all([column == index for column, index in zip(matrix.T, row, strict=True)], axis=0).any()
    return matrix if sampled else np.vstack([matrix, np.array([row], dtype=matrix.dtype)])
