"""Parameters and constraints -> the configurations that are valid, which are all that a search may try.

The space is the union of a kernel's variants. A configuration of a variant is held as a row of small
integers, each the place of a value in its parameter's list; a search works on those rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import SpaceError, UsageError
from tuner.expressions import Expression
from tuner.kernel import KernelSpec, ParameterSpec, VariantSpec, suggestion
from tuner.model import Configuration, Gpu, Problem, Value

Vector = NDArray[np.int64]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

MAX_ROWS = 2_000_000
"""A larger valid set is sampled down to this: finding the nearest row still takes milliseconds then."""
MAX_TESTED = 20_000_000
"""Combinations tested in one step of the enumeration; beyond it a sample of them is tested."""
CHUNK = 500_000
"""Combinations tested at a time, which bounds the memory (8 bytes each for every name in a constraint)."""


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
        self._places = [_places(parameter.values) for parameter in self.parameters]

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def configuration(self, row: int) -> Configuration:
        """Give a row as a configuration, with the values as the kernel's file types them."""
        places = zip(self.parameters, self.matrix[row].tolist(), strict=True)
        return Configuration.of(self.name, {p.name: p.values[place] for p, place in places})

    def encode(self, values: Mapping[str, Value]) -> Vector | None:
        """Give the places of some values; None when a name or a value is not this variant's."""
        if values.keys() != {parameter.name for parameter in self.parameters}:
            return None
        places = [
            table.get(_typed(values[parameter.name]))
            for parameter, table in zip(self.parameters, self._places, strict=True)
        ]
        return None if None in places else np.array(places, dtype=np.int64)

    def find(self, vector: Vector) -> int | None:
        """Give the row that holds exactly this vector, by bisection: the rows are in lexicographic order."""
        low, high = 0, len(self)
        for column, place in zip(self.matrix.T, vector, strict=True):
            wanted = column.dtype.type(place)
            ends = column[low:high].searchsorted([wanted, wanted + 1])
            low, high = low + int(ends[0]), low + int(ends[1])
        return low if low < high else None

    def distances(self, vector: Vector) -> NDArray[np.int16]:
        """Give each row's Hamming distance: the number of parameters in which it differs."""
        total = np.zeros(len(self), dtype=np.int16)
        for column, place in zip(self.matrix.T, vector, strict=True):
            total += column != place
        return total

    def nearest(
        self, vector: Vector, excluded: Mask | None = None, rng: np.random.Generator | None = None
    ) -> int | None:
        """Give the row nearest to a vector that need not be valid, or None when all are excluded.

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

    def subset(self, rows: Rows) -> VariantSpace:
        """Give the space of some of the rows."""
        return VariantSpace(self.name, self.parameters, self.matrix[np.unique(rows)])

    @property
    def default(self) -> Vector:
        """The places of the default values, which need not be a valid combination."""
        places = (parameter.values.index(parameter.default) for parameter in self.parameters)
        return np.fromiter(places, dtype=np.int64)


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
        """Enumerate what is valid for a problem on a GPU.

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
        for name in (variants := tuple(variants)):
            if name not in kernel.variants:
                raise UsageError(f"{kernel.name} has no variant {name!r}", suggestion(name, kernel.variants))
        usable, left_out = kernel.usable_variants(problem, gpu)
        chosen = [v for v in kernel.variants.values() if not variants or v.name in variants]
        left_out = {name: reason for name, reason in left_out.items() if not variants or name in variants}
        narrowed = _narrow(kernel.name, chosen, {n: tuple(values) for n, values in (fixed or {}).items()})
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
            valid = _enumerate(variant, allowed, constants, rng)
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
            raise SpaceError(f"no configuration is valid for {problem} on {gpu.name} ({reasons})", remedy)
        return cls(found, size_before, sampled, left_out)

    def __len__(self) -> int:
        return sum(len(variant) for variant in self.variants)

    def configurations(self) -> Iterator[Configuration]:
        """Give every configuration, variant after variant, each in the order of its parameters' values."""
        for variant in self.variants:
            for row in range(len(variant)):
                yield variant.configuration(row)

    def encode(self, configuration: Configuration) -> tuple[int, Vector] | None:
        """Give the variant's number and the places of the values, or None for unknown names or values."""
        number = self._numbers.get(configuration.variant)
        vector = None if number is None else self.variants[number].encode(configuration.values)
        return None if number is None or vector is None else (number, vector)

    def locate(self, configuration: Configuration) -> tuple[int, int] | None:
        """Give the variant's number and the row in it, or None for what is not in the space."""
        if (code := self.encode(configuration)) is None:
            return None
        row = self.variants[code[0]].find(code[1])
        return None if row is None else (code[0], row)

    def contains(self, configuration: Configuration) -> bool:
        """Say whether a search may try this configuration."""
        return self.locate(configuration) is not None

    def neighbours(self, configuration: Configuration) -> list[Configuration]:
        """Give the valid configurations of the same variant that differ in exactly one parameter."""
        if (code := self.encode(configuration)) is None:
            return []
        variant = self.variants[code[0]]
        return [variant.configuration(int(row)) for row in np.flatnonzero(variant.distances(code[1]) == 1)]

    def restricted(self, configurations: Iterable[Configuration]) -> SearchSpace:
        """Give the part of the space that is in a recording; what is not valid here is ignored.

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


def _typed(value: Value) -> tuple[type, Value]:
    # True == 1 == 1.0 in Python. A number may change its type on its way through a file, a boolean not.
    return (type(value) if isinstance(value, bool | str) else float, value)


def _places(values: Iterable[Value]) -> dict[tuple[type, Value], int]:
    return {_typed(value): place for place, value in enumerate(values)}


def _place(value: Value, parameter: ParameterSpec) -> int | None:
    """Find a value in a parameter's list; text from the command line may stand for any type."""
    if (place := _places(parameter.values).get(_typed(value))) is not None or not isinstance(value, str):
        return place
    words = {True: ("true", "yes"), False: ("false", "no")}
    texts = [words[v] if isinstance(v, bool) else (str(v),) for v in parameter.values]
    return next((place for place, text in enumerate(texts) if value.strip().lower() in text), None)


def _narrow(
    kernel: str, variants: Sequence[VariantSpec], fixed: Mapping[str, tuple[Value, ...]]
) -> dict[str, dict[str, list[int]] | str]:
    """Give for each variant the places that each parameter may take, or the reason why there are none."""
    for name, values in fixed.items():
        having = [variant.parameters[name] for variant in variants if name in variant.parameters]
        if not having:
            names = dict.fromkeys(name for variant in variants for name in variant.parameters)
            raise UsageError(f"{kernel} has no parameter {name!r}", suggestion(name, names))
        for value in values:
            if all(_place(value, parameter) is None for parameter in having):
                known = dict.fromkeys(str(v) for parameter in having for v in parameter.values)
                raise UsageError(f"{name} is never {value!r} in {kernel}", suggestion(str(value), known))
    narrowed: dict[str, dict[str, list[int]] | str] = {}
    for variant in variants:
        allowed = {name: list(range(len(p.values))) for name, p in variant.parameters.items()}
        reason = ""
        for name, values in fixed.items():
            if name not in allowed:
                reason = f"has no parameter {name}"
                continue
            found = {_place(value, variant.parameters[name]) for value in values}
            allowed[name] = sorted(place for place in found if place is not None)
            if not allowed[name]:
                reason = f"{name} has none of the values asked for"
        narrowed[variant.name] = reason or allowed
    return narrowed


@dataclass(frozen=True)
class _Valid:
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
        """Give the places of a parameter, known before or new, in the numbered combinations."""
        if name not in self.new:
            return self.columns[name][numbers // (len(self) // self.rows)]
        stride = math.prod(len(self.places[other]) for other in self.new[self.new.index(name) + 1 :])
        return self.places[name][numbers // stride % len(self.places[name])]


def _enumerate(
    variant: VariantSpec,
    allowed: Mapping[str, list[int]],
    constants: Mapping[str, Any],
    rng: np.random.Generator,
) -> _Valid:
    """Multiply the parameters out step by step, testing each constraint as soon as its names are known."""
    small = np.uint8 if all(len(p.values) < 256 for p in variant.parameters.values()) else np.uint16
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
                holds = np.asarray(condition.evaluate_many({**constants, **named}), dtype=bool)
                numbers = numbers[np.broadcast_to(holds, numbers.shape)]
                left[i] += len(numbers)
            kept.append(numbers)
        numbers = np.concatenate(kept)
        if not len(numbers):
            reason = next(reason for (reason, _), count in zip(decided, left, strict=True) if not count)
            tried = "of those tried " if sampled or tested < total else ""
            empty = np.empty((0, len(allowed)), dtype=small)
            return _Valid(empty, False, f"no combination {tried}meets {reason!r}")
        sampled |= tested < total or len(numbers) > MAX_ROWS
        if len(numbers) > MAX_ROWS:
            numbers = numbers[_spread(0, MAX_ROWS, MAX_ROWS, len(numbers), rng)]
        columns = {name: product.column(name, numbers) for name in [*columns, *new]}
        rows = len(numbers)
    matrix = np.empty((rows, len(allowed)), dtype=small, order="F")
    for j, name in enumerate(allowed):
        matrix[:, j] = columns[name]
    return _Valid(_with_default(variant, allowed, constants, matrix) if sampled else matrix, sampled)


def _steps(
    variant: VariantSpec, allowed: Mapping[str, list[int]]
) -> Iterator[tuple[list[str], list[tuple[str, Expression]]]]:
    """Order the work: next is always the constraint whose unknown parameters have the fewest combinations."""
    pending, known = list(variant.constraints_before), set[str]()
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
    """Give members ``start`` to ``stop`` of a sorted, even sample of ``wanted`` numbers below ``total``."""
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
    if not all(condition.evaluate(names) for _, condition in variant.constraints_before):
        return matrix
    there = np.all([column == place for column, place in zip(matrix.T, row, strict=True)], axis=0).any()
    return matrix if there else np.vstack([matrix, np.array([row], dtype=matrix.dtype)])
