"""The features of a configuration for a model: each has levels, and a distance between any two of them.

All variants share the features. A parameter's feature is shared by the variants that have a parameter of that
name; in the others it has the level "absent". The variant itself is a feature, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.core.model import Value
from tuner.kernel.space import SearchSpace
from tuner.kernel.variant_spec import Typed, indices, typed

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]

GEOMETRIC = 4
"""Positive values whose largest is this many times the smallest are compared by their ratio."""
ABSENT_DISTANCE = 0.5
"""How far "absent" lies beside the middle of the values."""


@dataclass(frozen=True)
class Feature:
    """One coordinate of a configuration.

    Args:
        name: of the parameter that it comes from.
        distances: between any two levels; at most about 1.
        levels: for each variant the level of each index into the parameter's values, or one level for all of it.
        columns: for each variant the parameter's column, or -1 where the level does not depend on the row.
    """

    name: str
    distances: Floats
    levels: tuple[Codes, ...]
    columns: tuple[int, ...]


class Features:
    """The features of a space; those that are the same for all of its configurations are left out."""

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        self.features: list[Feature] = []
        if (count := len(space.variants)) > 1:
            levels = tuple(np.array([number]) for number in range(count))
            self.features.append(Feature("variant", 1.0 - np.eye(count), levels, (-1,) * count))
        names = dict.fromkeys(p.name for variant in space.variants for p in variant.parameters)
        for name in names:
            self.features += self._of_parameter(name)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def distances(self) -> list[Floats]:
        """For each feature the distances between its levels."""
        return [feature.distances for feature in self.features]

    def encode(self, number: int, rows: NDArray[np.int64]) -> Codes:
        """Return the levels of some rows of a variant: one row each, one column a feature."""
        matrix = self.space.variants[number].matrix
        codes = np.empty((len(rows), len(self.features)), dtype=np.int64)
        for j, feature in enumerate(self.features):
            column = feature.columns[number]
            codes[:, j] = feature.levels[number][0 if column < 0 else matrix[rows, column]]
        return codes

    def _of_parameter(self, name: str) -> list[Feature]:
        columns, occurring = [], dict[Typed, Value]()
        for variant in self.space.variants:
            names = [parameter.name for parameter in variant.parameters]
            column = names.index(name) if name in names else -1
            columns.append(column)
            if column >= 0:
                values = variant.parameters[column].values
                occurring |= {typed(values[i]): values[i] for i in variant.choices[column]}
        distinct = list(occurring.values())
        absent = -1 in columns
        if len(distinct) + absent < 2:
            return []
        number_of = indices(distinct)
        levels = []
        for variant, column in zip(self.space.variants, columns, strict=True):
            if column < 0:
                levels.append(np.array([len(distinct)]))
            else:
                # A value that never occurs is never looked up.
                table = [number_of.get(typed(value), 0) for value in variant.parameters[column].values]
                levels.append(np.array(table))
        return [
            Feature(name, _with_absent(distances) if absent else distances, tuple(levels), tuple(columns))
            for distances in _distances(distinct)
        ]


def _distances(values: Sequence[Value]) -> list[Floats]:
    """Return the ways in which a parameter's values can be near each other."""
    if any(isinstance(value, str) for value in values) or _enumeration(values):
        return [1.0 - np.eye(len(values))]
    numbers = np.array([float(value) for value in values])
    geometric = bool(numbers.min() > 0 and numbers.max() >= GEOMETRIC * numbers.min())
    lines = [_line(np.log2(numbers) if geometric else numbers)]
    if (powers := _powers_of_two(numbers)) is not None:
        lines.append(_line(powers))
    return lines


def _enumeration(values: Sequence[Value]) -> bool:
    """Return whether these number methods (0, 1, 2 and so on), and are no amounts."""
    return len(values) > 2 and sorted(float(value) for value in values) == list(range(len(values)))


def _powers_of_two(numbers: Floats) -> Floats | None:
    """Return how often 2 divides each number, which matters to warps, banks and vectors; None where size says it."""
    if len(numbers) < 4 or numbers.min() <= 0 or (numbers != np.round(numbers)).any():
        return None
    whole = numbers.astype(np.int64)
    lowest = whole & -whole
    if (lowest == whole).all() or (lowest == lowest[0]).all():
        return None
    return np.asarray(np.log2(lowest.astype(float)))


def _line(coordinates: Floats) -> Floats:
    span = np.ptp(coordinates) or 1.0
    return np.asarray(np.abs(coordinates[:, None] - coordinates) / span)


def _with_absent(distances: Floats) -> Floats:
    """Add a level for "absent", at a point of the plane beside the line, so that these are still distances."""
    count = len(distances)
    wide = np.zeros((count + 1, count + 1))
    wide[:count, :count] = distances
    # Beside the middle: for values on a line that is where both ends are equally far.
    middle = distances.max(axis=1) - distances.max() / 2 if count > 1 else np.zeros(1)
    wide[count, :count] = wide[:count, count] = np.hypot(middle, ABSENT_DISTANCE)
    return wide
