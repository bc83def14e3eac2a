"""The search space of a problem: the configurations that a search may try.

It is the union of the valid sets of a kernel's variants. A configuration of a variant is a row of small integers, each
the index of a value in its parameter's list; a search works on these rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.core.errors import SpaceError, UsageError, suggestion
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.kernel.enumeration import Rows, enumerate_valid
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import ParameterSpec, VariantSpec, index_of_text, indices, typed

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

    @property
    def default(self) -> Vector:
        """The indices of the default values, which need not be a valid combination."""
        indices = (parameter.values.index(parameter.default) for parameter in self.parameters)
        return np.fromiter(indices, dtype=np.int64)


def demanded_of(variants: Iterable[VariantSpec]) -> str:
    """Return what a search requires of their configurations, for messages."""
    return (
        "valid and passes the pruning rules"
        if any(variant.pruning_rules for variant in variants)
        else "valid"
    )


class SearchSpace:
    """The configurations that a search may try: the union of its variants' valid sets.

    Args:
        variants: at least one, none of them empty.
        size_before: combinations of values, without the constraints.
        sampled: whether it is an even sample of a set that is too large.
        left_out: the reasons why variants are not part of it, by variant.
        kind: which configurations they are, in a word: all valid ones, or the recorded ones of them.
    """

    def __init__(
        self,
        variants: Sequence[VariantSpace],
        size_before: int,
        sampled: bool = False,
        left_out: Mapping[str, str] | None = None,
        kind: str = "valid",
    ) -> None:
        self.variants = tuple(variants)
        self.size_before = size_before
        self.sampled = sampled
        self.left_out = dict(left_out or {})
        self.kind = kind
        self._numbers = {variant.name: number for number, variant in enumerate(self.variants)}
        row = self.variants[0].nearest(self.variants[0].default)
        assert row is not None
        self.default: Configuration = self.variants[0].configuration(row)
        """The first variant's defaults, or the valid configuration nearest to them."""

    @classmethod
    def from_kernel(
        cls,
        kernel: KernelSpec,
        problem: Problem,
        gpu: Gpu,
        variants: Iterable[str] = (),
        fixed: Mapping[str, Iterable[Value]] | None = None,
        seed: int = 0,
    ) -> SearchSpace:
        """Return the search space of a problem on a GPU.

        Args:
            kernel: with the variants, parameters and constraints.
            problem: its sizes, dtypes and options are constants in the constraints.
            gpu: its limits are constants, too.
            variants: names of the variants to search; all if empty.
            fixed: the allowed values of parameters by name, typed or as text. A variant that lacks the parameter, or
                all of the values, is left out.
            seed: chooses the sample of a space too large to enumerate.

        Raises:
            UsageError: no such variant, parameter or value.
            SpaceError: no configuration is left; the message says what excluded each variant.
        """
        narrowed = narrow(kernel, variants := tuple(variants), fixed or {})
        chosen = [kernel.variants[name] for name in narrowed]
        usable, left_out = kernel.usable_variants(problem, gpu)
        left_out = {name: reason for name, reason in left_out.items() if name in narrowed}
        constants, rng = kernel.environment(problem, gpu), np.random.default_rng(seed)
        spaces, size_before, sampled = [], 0, False
        for variant in chosen:
            allowed = narrowed[variant.name]
            if variant not in usable:
                continue
            if isinstance(allowed, str):
                left_out[variant.name] = allowed
                continue
            size_before += math.prod(map(len, allowed.values()))
            valid = enumerate_valid(variant, allowed, constants, rng)
            if len(valid.matrix):
                spaces.append(VariantSpace(variant.name, tuple(variant.parameters.values()), valid.matrix))
                sampled |= valid.sampled
            else:
                left_out[variant.name] = valid.excluded_by
        if not spaces:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
            remedy = (
                "allow more values or variants"
                if fixed or variants
                else "change the problem or the constraints"
            )
            raise SpaceError(
                f"no configuration is {demanded_of(chosen)} for {problem} on {gpu.name} ({reasons})", remedy
            )
        return cls(spaces, size_before, sampled, left_out)

    def __len__(self) -> int:
        return sum(len(variant) for variant in self.variants)

    def configurations(self) -> Iterator[Configuration]:
        """Return every configuration, variant after variant, each in the order of its parameters' values."""
        for variant in self.variants:
            for row in range(len(variant)):
                yield variant.configuration(row)

    def encode(self, configuration: Configuration) -> tuple[int, Vector] | None:
        """Return the variant's number and the indices of the values; None for an unknown name or value."""
        number = self._numbers.get(configuration.variant)
        vector = None if number is None else self.variants[number].encode(configuration.values)
        return None if number is None or vector is None else (number, vector)

    def locate(self, configuration: Configuration) -> tuple[int, int] | None:
        """Return the variant's number and the row in it; None if the configuration is not in the space."""
        if (code := self.encode(configuration)) is None:
            return None
        row = self.variants[code[0]].find(code[1])
        return None if row is None else (code[0], row)

    def contains(self, configuration: Configuration) -> bool:
        """Return whether a search may try this configuration."""
        return self.locate(configuration) is not None

    def neighbours(self, configuration: Configuration) -> list[Configuration]:
        """Return the valid configurations of the same variant that differ in exactly one parameter."""
        if (code := self.encode(configuration)) is None:
            return []
        variant = self.variants[code[0]]
        return [variant.configuration(int(row)) for row in np.flatnonzero(variant.distances(code[1]) == 1)]

    def restricted(self, configurations: Iterable[Configuration]) -> SearchSpace:
        """Return the part of the space that is in a recording.

        Raises:
            SpaceError: none of the recorded configurations is in the space.
        """
        rows: dict[int, list[int]] = {}
        for number, row in filter(None, map(self.locate, configurations)):
            rows.setdefault(number, []).append(row)
        if not rows:
            raise SpaceError(
                "the recording has no configuration of this space", "narrow it less, or record again"
            )
        kept = [self.variants[number].subset(np.array(chosen)) for number, chosen in sorted(rows.items())]
        return SearchSpace(kept, self.size_before, self.sampled, self.left_out, "recorded")


def _apart(value: Value, other: Value) -> float:
    """Return the distance between two values."""
    if isinstance(value, bool | str) or isinstance(other, bool | str):
        return float(typed(value) != typed(other))
    return abs(math.log2(value / other)) if value > 0 and other > 0 else 64.0 + abs(value - other)


def narrow(
    kernel: KernelSpec, names: Iterable[str], fixed: Mapping[str, Iterable[Value]]
) -> dict[str, dict[str, list[int]] | str]:
    """Return, by variant, the indices of the values allowed of each parameter, or the reason why there are none.

    Args:
        kernel: with the variants.
        names: of variants; all if empty.
        fixed: the allowed values of parameters by name, typed or as text.

    Raises:
        UsageError: no such variant, parameter or value.
    """
    names, choices = tuple(names), {name: tuple(values) for name, values in fixed.items()}
    for name in names:
        if name not in kernel.variants:
            raise UsageError(f"{kernel.name} has no variant {name!r}", suggestion(name, kernel.variants))
    variants = [variant for variant in kernel.variants.values() if not names or variant.name in names]
    for name, values in choices.items():
        parameters = [variant.parameters[name] for variant in variants if name in variant.parameters]
        if not parameters:
            existing = dict.fromkeys(name for variant in variants for name in variant.parameters)
            of = f"variant {names[0]} of {kernel.name}" if len(names) == 1 else kernel.name
            raise UsageError(f"{of} has no parameter {name!r}", suggestion(name, existing))
        for value in values:
            if all(index_of_text(value, parameter.values) is None for parameter in parameters):
                values_of_any = {value for parameter in parameters for value in parameter.values}
                ordered = sorted(values_of_any, key=lambda item: (isinstance(item, str), item))
                remedy = suggestion(str(value), dict.fromkeys(map(str, ordered)))
                raise UsageError(f"{name} is never {value!r} in {kernel.name}", remedy)
    return {variant.name: _narrowed(variant, choices) for variant in variants}


def _narrowed(variant: VariantSpec, fixed: Mapping[str, tuple[Value, ...]]) -> dict[str, list[int]] | str:
    allowed = {name: list(range(len(parameter.values))) for name, parameter in variant.parameters.items()}
    reason = ""
    for name, values in fixed.items():
        if name not in allowed:
            reason = f"has no parameter {name}"
            continue
        indices = {index_of_text(value, variant.parameters[name].values) for value in values}
        allowed[name] = sorted(index for index in indices if index is not None)
        if not allowed[name]:
            reason = f"{name} has none of the values asked for"
    return reason or allowed
