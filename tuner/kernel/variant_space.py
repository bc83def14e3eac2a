"""The valid configurations of one variant, as rows of small integers: found, compared and drawn by a search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.core.model import Configuration, Value
from tuner.kernel.enumeration import Rows
from tuner.kernel.variant_spec import ParameterSpec, indices, typed

Vector = NDArray[np.int64]
Mask = NDArray[np.bool_]


class VariantSpace:
    """The valid configurations of one variant.

    Args:
        name: the variant's.
        parameters: in the order of the kernel's file.
        matrix: a row for each configuration, a column for each parameter: the index in its list of values.
    """

    def __init__(self, name: str, parameters: Sequence[ParameterSpec], matrix: NDArray[Any]) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        if self.parameters:
            matrix = matrix[np.lexsort(matrix.T[::-1])]
        # Column-major, because every search below scans columns.
        self.matrix: NDArray[Any] = np.asfortranarray(matrix)
        self.choices: tuple[tuple[int, ...], ...] = tuple(
            tuple(np.flatnonzero(np.bincount(column)).tolist()) for column in self.matrix.T
        )
        """For each parameter the indices that occur in any row."""
        self._indices = [indices(parameter.values) for parameter in self.parameters]

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def configuration(self, row: int) -> Configuration:
        """Return a row as a configuration, with values of the kernel file's types."""
        indices = zip(self.parameters, self.matrix[row].tolist(), strict=True)
        return Configuration.of(self.name, {p.name: p.values[index] for p, index in indices})

    def encode(self, values: Mapping[str, Value]) -> Vector | None:
        """Return the indices of some values; None if a name or a value is not this variant's."""
        if values.keys() != {parameter.name for parameter in self.parameters}:
            return None
        vector = [
            table.get(typed(values[parameter.name]))
            for parameter, table in zip(self.parameters, self._indices, strict=True)
        ]
        return None if None in vector else np.array(vector, dtype=np.int64)

    def find(self, vector: Vector) -> int | None:
        """Return the row equal to a vector, or None; by bisection, as the rows are in lexicographic order."""
        low, high = 0, len(self)
        for column, index in zip(self.matrix.T, vector, strict=True):
            value = column.dtype.type(index)
            ends = column[low:high].searchsorted([value, value + 1])
            low, high = low + int(ends[0]), low + int(ends[1])
        return low if low < high else None

    def distances(self, vector: Vector) -> NDArray[np.int16]:
        """Return each row's Hamming distance from a vector: the number of parameters in which they differ."""
        total = np.zeros(len(self), dtype=np.int16)
        for column, index in zip(self.matrix.T, vector, strict=True):
            total += column != index
        return total

    def nearest(
        self, vector: Vector, excluded: Mask | None = None, rng: np.random.Generator | None = None
    ) -> int | None:
        """Return the row nearest to a vector, which need not be valid; None if all rows are excluded.

        Rows are compared by Hamming distance, then by the sum of differences of indices; among equals ``rng`` chooses,
        or the first is taken.
        """
        if (row := self.find(vector)) is not None and (excluded is None or not excluded[row]):
            return row
        distances = self.distances(vector)
        if excluded is not None:
            distances[excluded] = np.iinfo(np.int16).max
        rows = np.flatnonzero(distances == distances.min())
        if excluded is not None and excluded[rows[0]]:
            return None
        steps = np.abs(self.matrix[rows].astype(np.int64) - vector).sum(axis=1)
        rows = rows[steps == steps.min()]
        return int(rows[0] if rng is None else rng.choice(rows))

    def nearest_to(self, wanted: Mapping[str, Value]) -> int:
        """Return the row nearest to some values, which need not be in the lists.

        The first parameter keeps the rows whose value is nearest to the given one, of these the second, and so on; then
        parameters without a given value keep the rows nearest to their defaults. Positive numbers are compared by
        their ratio.

        Raises:
            KeyError: there is no such parameter.
        """
        columns = {parameter.name: j for j, parameter in enumerate(self.parameters)}
        defaults = {p.name: p.default for p in self.parameters if p.name not in wanted}
        rows = np.arange(len(self))
        for name, value in {**wanted, **defaults}.items():
            column = columns[name]
            apart = np.array([_apart(value, other) for other in self.parameters[column].values])
            distances = apart[self.matrix[rows, column]]
            rows = rows[distances == distances.min()]
        return int(rows[0])

    def subset(self, rows: Rows) -> VariantSpace:
        """Return the space of some of the rows."""
        return VariantSpace(self.name, self.parameters, self.matrix[np.unique(rows)])

    def including(self, configurations: Iterable[Configuration]) -> VariantSpace:
        """Return the space with those configurations of this variant that it lacks."""
        own = (self.encode(one.values) for one in configurations if one.variant == self.name)
        lacking = [vector for vector in own if vector is not None and self.find(vector) is None]
        if not lacking:
            return self
        return VariantSpace(self.name, self.parameters, np.vstack([self.matrix, np.unique(lacking, axis=0)]))

    @property
    def default(self) -> Vector:
        """The indices of the default values, which need not be a valid combination."""
        indices = (parameter.values.index(parameter.default) for parameter in self.parameters)
        return np.fromiter(indices, dtype=np.int64)

    @property
    def plain(self) -> Configuration:
        """The default values, or the valid configuration nearest to them."""
        row = self.nearest(self.default)
        assert row is not None
        return self.configuration(row)


def _apart(value: Value, other: Value) -> float:
    """Return the distance between two values."""
    if isinstance(value, bool | str) or isinstance(other, bool | str):
        return float(typed(value) != typed(other))
    return abs(math.log2(value / other)) if value > 0 and other > 0 else 64.0 + abs(value - other)
