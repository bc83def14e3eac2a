"""Parameters and constraints -> the configurations that are valid, which are all that a search may try.

The space is the union of a kernel's variants. A configuration of a variant is held as a row of small
integers, each the place of a value in its parameter's list; a search works on those rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import SpaceError, UsageError, suggestion
from tuner.kernel.spec import KernelSpec
from tuner.kernel.values import index_of_text, indices, typed
from tuner.kernel.variant_spec import ParameterSpec, VariantSpec
from tuner.model import Configuration, Gpu, Problem, Value
from tuner.space.enumeration import Rows, enumerate_valid

Vector = NDArray[np.int64]
Mask = NDArray[np.bool_]


class VariantSpace:
    """The valid configurations of one variant.

    Args:
        name: the variant's.
        parameters: in the order of the kernel's file.
        matrix: one row a configuration, one column a parameter: the place in that parameter's list of values.
    """

    def __init__(self, name: str, parameters: Sequence[ParameterSpec], matrix: NDArray[Any]) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        if self.parameters:
            matrix = matrix[np.lexsort(matrix.T[::-1])]
        # Column after column in memory, because every search below runs down the columns.
        self.matrix: NDArray[Any] = np.asfortranarray(matrix)
        self.choices: tuple[tuple[int, ...], ...] = tuple(
            tuple(np.flatnonzero(np.bincount(column)).tolist()) for column in self.matrix.T
        )
        """For each parameter the places that occur at all, which is what is worth proposing."""
        self._places = [indices(parameter.values) for parameter in self.parameters]

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def configuration(self, row: int) -> Configuration:
        """Return a row as a configuration, with the values as the kernel's file types them."""
        places = zip(self.parameters, self.matrix[row].tolist(), strict=True)
        return Configuration.of(self.name, {p.name: p.values[place] for p, place in places})

    def encode(self, values: Mapping[str, Value]) -> Vector | None:
        """Return the places of some values; None when a name or a value is not this variant's."""
        if values.keys() != {parameter.name for parameter in self.parameters}:
            return None
        places = [
            table.get(typed(values[parameter.name]))
            for parameter, table in zip(self.parameters, self._places, strict=True)
        ]
        return None if None in places else np.array(places, dtype=np.int64)

    def find(self, vector: Vector) -> int | None:
        """Return the row that holds exactly this vector, by bisection: the rows are in lexicographic order."""
        low, high = 0, len(self)
        for column, place in zip(self.matrix.T, vector, strict=True):
            wanted = column.dtype.type(place)
            ends = column[low:high].searchsorted([wanted, wanted + 1])
            low, high = low + int(ends[0]), low + int(ends[1])
        return low if low < high else None

    def distances(self, vector: Vector) -> NDArray[np.int16]:
        """Return each row's Hamming distance: the number of parameters in which it differs."""
        total = np.zeros(len(self), dtype=np.int16)
        for column, place in zip(self.matrix.T, vector, strict=True):
            total += column != place
        return total

    def nearest(
        self, vector: Vector, excluded: Mask | None = None, rng: np.random.Generator | None = None
    ) -> int | None:
        """Return the row nearest to a vector that need not be valid, or None when all are excluded.

        Nearest by Hamming distance, then by the steps between the values in their lists; then ``rng``
        chooses, or the first is taken.
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
        """Return the row nearest to some values, which need not be in the lists, one parameter after the other.

        Of the rows that are left the first parameter keeps those whose value is nearest to the one wanted, then the
        second, and so on: the last ones give way. Numbers above 0 are compared by their ratio. Whatever is not named
        is as near to its default as it can be.

        Raises:
            KeyError: there is no such parameter.
        """
        columns = {parameter.name: j for j, parameter in enumerate(self.parameters)}
        defaults = {p.name: p.default for p in self.parameters if p.name not in wanted}
        rows = np.arange(len(self))
        for name, value in {**wanted, **defaults}.items():
            column = columns[name]
            apart = np.array([_apart(value, other) for other in self.parameters[column].values])
            found = apart[self.matrix[rows, column]]
            rows = rows[found == found.min()]
        return int(rows[0])

    def subset(self, rows: Rows) -> VariantSpace:
        """Return the space of some of the rows."""
        return VariantSpace(self.name, self.parameters, self.matrix[np.unique(rows)])

    @property
    def default(self) -> Vector:
        """The places of the default values, which need not be a valid combination."""
        places = (parameter.values.index(parameter.default) for parameter in self.parameters)
        return np.fromiter(places, dtype=np.int64)


def demanded_of(variants: Iterable[VariantSpec]) -> str:
    """Say what a search asks of a configuration of theirs."""
    return "valid and worth trying" if any(variant.pruning_rules for variant in variants) else "valid"


class SearchSpace:
    """The configurations that a search may try: the union of its variants' valid sets.

    Args:
        variants: at least one, none of them empty.
        size_before: combinations before the constraints.
        sampled: whether the set is a uniform sample, because the whole was too large.
        left_out: the variants that are not part of it, and why.
    """

    def __init__(
        self,
        variants: Sequence[VariantSpace],
        size_before: int,
        sampled: bool = False,
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        self.variants = tuple(variants)
        self.size_before = size_before
        self.sampled = sampled
        self.left_out = dict(left_out or {})
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
        """Enumerate what is valid, and worth trying, for a problem on a GPU.

        Args:
            kernel: what the parameters and constraints belong to.
            problem: its sizes, dtypes and options are constants in the constraints.
            gpu: its limits are, too.
            variants: names of the variants to search; all when empty.
            fixed: parameters by name, each with the values it may take, typed or as text. A variant that
                lacks the parameter, or has none of the values, is left out of the space.
            seed: chooses the sample of a space too large to enumerate.

        Raises:
            UsageError: no such variant, parameter or value.
            SpaceError: nothing is left; the message says what excluded each variant.
        """
        narrowed = narrow(kernel, variants := tuple(variants), fixed or {})
        chosen = [kernel.variants[name] for name in narrowed]
        usable, left_out = kernel.usable_variants(problem, gpu)
        left_out = {name: reason for name, reason in left_out.items() if name in narrowed}
        constants, rng = kernel.environment(problem, gpu), np.random.default_rng(seed)
        found, size_before, sampled = [], 0, False
        for variant in chosen:
            allowed = narrowed[variant.name]
            if variant not in usable:
                continue
            if isinstance(allowed, str):
                left_out[variant.name] = allowed
                continue
            size_before += math.prod(len(places) for places in allowed.values())
            valid = enumerate_valid(variant, allowed, constants, rng)
            if len(valid.matrix):
                found.append(VariantSpace(variant.name, tuple(variant.parameters.values()), valid.matrix))
                sampled |= valid.sampled
            else:
                left_out[variant.name] = valid.excluded_by
        if not found:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
            remedy = (
                "allow more values or variants"
                if fixed or variants
                else "change the problem or the constraints"
            )
            raise SpaceError(
                f"no configuration is {demanded_of(chosen)} for {problem} on {gpu.name} ({reasons})", remedy
            )
        return cls(found, size_before, sampled, left_out)

    def __len__(self) -> int:
        return sum(len(variant) for variant in self.variants)

    def configurations(self) -> Iterator[Configuration]:
        """Return every configuration, variant after variant, each in the order of its parameters' values."""
        for variant in self.variants:
            for row in range(len(variant)):
                yield variant.configuration(row)

    def encode(self, configuration: Configuration) -> tuple[int, Vector] | None:
        """Return the variant's number and the places of the values, or None for unknown names or values."""
        number = self._numbers.get(configuration.variant)
        vector = None if number is None else self.variants[number].encode(configuration.values)
        return None if number is None or vector is None else (number, vector)

    def locate(self, configuration: Configuration) -> tuple[int, int] | None:
        """Return the variant's number and the row in it, or None for what is not in the space."""
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
        """Return the part of the space that is in a recording; what is not valid here is ignored.

        Raises:
            SpaceError: nothing of it is in the space.
        """
        rows: dict[int, list[int]] = {}
        for place in filter(None, map(self.locate, configurations)):
            rows.setdefault(place[0], []).append(place[1])
        if not rows:
            raise SpaceError(
                "the recording has no configuration of this space", "narrow it less, or record again"
            )
        kept = [self.variants[number].subset(np.array(found)) for number, found in sorted(rows.items())]
        return SearchSpace(kept, self.size_before, self.sampled, self.left_out)


def _apart(value: Value, other: Value) -> float:
    """Say how far a value is from another one."""
    if isinstance(value, bool | str) or isinstance(other, bool | str):
        return float(typed(value) != typed(other))
    return abs(math.log2(value / other)) if value > 0 and other > 0 else 64.0 + abs(value - other)


def narrow(
    kernel: KernelSpec, names: Iterable[str], fixed: Mapping[str, Iterable[Value]]
) -> dict[str, dict[str, list[int]] | str]:
    """Return the places that each parameter of each variant asked for (or of all) may take, or why there are none.

    Raises:
        UsageError: no such variant, parameter or value.
    """
    names, fixed = tuple(names), {name: tuple(values) for name, values in fixed.items()}
    for name in names:
        if name not in kernel.variants:
            raise UsageError(f"{kernel.name} has no variant {name!r}", suggestion(name, kernel.variants))
    variants = [variant for variant in kernel.variants.values() if not names or variant.name in names]
    for name, values in fixed.items():
        having = [variant.parameters[name] for variant in variants if name in variant.parameters]
        if not having:
            known = dict.fromkeys(name for variant in variants for name in variant.parameters)
            of = f"variant {names[0]} of {kernel.name}" if len(names) == 1 else kernel.name
            raise UsageError(f"{of} has no parameter {name!r}", suggestion(name, known))
        for value in values:
            if all(index_of_text(value, parameter.values) is None for parameter in having):
                there = {value for parameter in having for value in parameter.values}
                known = dict.fromkeys(map(str, sorted(there, key=lambda one: (isinstance(one, str), one))))
                raise UsageError(f"{name} is never {value!r} in {kernel.name}", suggestion(str(value), known))
    narrowed: dict[str, dict[str, list[int]] | str] = {}
    for variant in variants:
        allowed = {name: list(range(len(p.values))) for name, p in variant.parameters.items()}
        reason = ""
        for name, values in fixed.items():
            if name not in allowed:
                reason = f"has no parameter {name}"
                continue
            found = {index_of_text(value, variant.parameters[name].values) for value in values}
            allowed[name] = sorted(place for place in found if place is not None)
            if not allowed[name]:
                reason = f"{name} has none of the values asked for"
        narrowed[variant.name] = reason or allowed
    return narrowed
