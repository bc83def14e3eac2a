"""Enumerate valid configurations parameter by parameter, checking each constraint as soon as its names have values.

A million combinations with constraints take a fraction of a second. Where a step has many more, partial configurations
that no values of the other parameters can make valid are left out (:mod:`tuner.expressions.ranges`), so that few valid
ones among 10^18 combinations are found, all of them. What is too many still is sampled evenly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.expressions.arithmetic import Expression
from tuner.expressions.outlook import Outlook, magnitude
from tuner.expressions.ranges import ANYTHING, FITS, range_of
from tuner.kernel.variant_spec import Constraints, VariantSpec, value_array

Rows = NDArray[np.int64]

MAX_ROWS = 2_000_000
"""Rows to which a larger valid set is sampled down: finding the nearest of them takes milliseconds. In a step of more
combinations it is tested what partial configurations may become."""
MAX_TESTED = 20_000_000
"""Combinations tested in one step of the enumeration; of more, a sample is tested."""
CHUNK = 50_000
"""Combinations tested at a time: 8 bytes each for every name in a constraint, which a processor's cache should hold."""
MAX_PARTIAL = 500_000
"""Rows of a sample of partial configurations: each costs more than a whole one."""
HUGE = 2e9
"""Combinations of a space of which values that cannot be valid are left out first."""
MARGIN = 1.1
"""Combinations tested for a row that is kept, over those that an estimate says: the others are drawn from them."""
TRIED = 16
"""Rows, and values, by which is decided which of several parameters is added next."""


@dataclass(frozen=True)
class Valid:
    """A variant's valid rows."""

    matrix: NDArray[Any]
    sampled: bool
    about: float
    """How many valid rows there are: their number, or an estimate of it from a sample."""
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

    @property
    def total(self) -> int:
        """The number of combinations."""
        return self.rows * math.prod(len(self.choices[name]) for name in self.new)

    def column(self, name: str, numbers: Rows) -> NDArray[Any]:
        """Return the indices of a parameter's values in the numbered combinations."""
        if name not in self.new:
            return self.columns[name][numbers // (self.total // self.rows)]
        stride = math.prod(len(self.choices[other]) for other in self.new[self.new.index(name) + 1 :])
        digits, choices = numbers // stride, self.choices[name]
        digits -= digits // len(choices) * len(choices)  # NumPy's % takes five times as long
        return choices[digits]


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
    # As wide as needed for one more than the last index: a search by bisection looks for the next value.
    small = np.min_scalar_type(max((len(p.values) for p in variant.parameters.values()), default=0))
    if variant.listed is not None:
        return _listed(variant.listed, allowed, small)
    return _Enumeration(variant, allowed, constants, rng, small).run()


def _listed(listed: Sequence[Sequence[int]], allowed: Mapping[str, list[int]], small: np.dtype[Any]) -> Valid:
    """Return the listed combinations whose values are all allowed."""
    matrix = np.array(listed, dtype=small, order="F").reshape(len(listed), len(allowed))
    kept = np.ones(len(matrix), dtype=bool)
    for column, indices in zip(matrix.T, allowed.values(), strict=True):
        kept &= np.isin(column, indices)
    matrix = matrix[kept]
    return Valid(
        matrix, False, len(matrix), "" if len(matrix) else "no listed configuration has the required values"
    )


class _Enumeration:
    """Partial configurations, to which parameters are added until they are whole."""

    def __init__(
        self,
        variant: VariantSpec,
        allowed: Mapping[str, list[int]],
        constants: Mapping[str, Any],
        rng: np.random.Generator,
        small: np.dtype[Any],
    ) -> None:
        self._choices = {name: np.array(indices, dtype=small) for name, indices in allowed.items()}
        self._values = {name: value_array(parameter.values) for name, parameter in variant.parameters.items()}
        self._constants, self._rng = constants, rng
        self._pending: Constraints = variant.search_conditions
        self._columns: dict[str, NDArray[Any]] = {}
        self._rows, self._about, self._sampled, self._spent = 1, 1.0, False, 0
        self._bound()

    def _bound(self) -> None:
        """Find the ranges of the parameters, and the conditions of which a part may be beyond 64 bits."""
        ranges = {name: range_of(self._values[name][of]) for name, of in self._choices.items()}
        self._outlook = Outlook(self._constants, ranges)
        largest = {n: max(-of.low, of.high) for n, of in ranges.items() if of is not ANYTHING}
        names = {**self._constants, **largest}
        self._wide = {c for _, c in self._pending if magnitude(c, names) >= FITS}

    def run(self) -> Valid:
        """Return the valid rows, or an even sample of them."""
        excluded_by = self._narrow() if math.prod(map(len, self._choices.values())) > HUGE else ""
        while not excluded_by and (self._pending or len(self._columns) < len(self._choices)):
            excluded_by = self._step(*self._next())
        rows = 0 if excluded_by else self._rows
        dtype = np.result_type(np.uint8, *self._choices.values())
        matrix = np.empty((rows, len(self._choices)), dtype, order="F")
        for j, name in enumerate(self._choices if rows else ()):
            matrix[:, j] = self._columns[name]
        return Valid(matrix, self._sampled, self._about if rows else 0.0, excluded_by)

    def _narrow(self) -> str:
        """Leave out values that none of the others make valid; return why none is left of a parameter, or nothing."""
        before = 0.0
        while (now := math.prod(map(len, self._choices.values()))) != before:
            before = now
            for name in self._choices:
                product = self._product([name])
                kept, left = self._meeting(
                    product, np.arange(product.total), tests := self._tests([name], partly=True)
                )
                if not len(kept):
                    return f"no combination meets {_first_unmet(tests, left)!r}"
                self._choices[name] = self._choices[name][kept]
            self._bound()
        return ""

    def _next(self) -> tuple[list[str], bool]:
        """Return the parameters to add: what the condition lacks whose missing ones have the fewest combinations.

        Of too many combinations it is one of them, the one that leaves the fewest rows; and whether it is so.
        """
        left = [name for name in self._choices if name not in self._columns]
        missing = [[name for name in left if name in condition.names] for _, condition in self._pending]
        new = min(missing, key=lambda names: self._product(names).total, default=left[:1])
        if self._product(new).total <= MAX_ROWS:
            return new, False
        if len(new) == 1:
            return new, True
        condition = self._pending[missing.index(new)][1]
        return [min(new, key=lambda name: self._promise(name, condition))], True

    def _promise(self, name: str, condition: Expression) -> tuple[float, float]:
        """Return how many rows a parameter makes of one, by some of them, and how open it leaves a condition."""
        product, count = self._product([name]), len(self._choices[name])
        rows = np.linspace(0, self._rows - 1, min(self._rows, TRIED), dtype=np.int64)
        values = np.linspace(0, count - 1, min(count, TRIED), dtype=np.int64)
        numbers = np.add.outer(rows * count, values).ravel()
        kept, _ = self._meeting(product, numbers, self._tests([name], partly=True))
        left = self._outlook.doubt(condition, self._named(product, kept, condition, {})) if len(kept) else 0.0
        return len(kept) / len(numbers) * count, left

    def _product(self, new: Sequence[str]) -> _Product:
        return _Product(self._columns, self._rows, self._choices, new)

    def _tests(self, new: Sequence[str], *, partly: bool) -> Constraints:
        """Return the conditions that new parameters decide, and then, if wanted, those that they decide in part."""
        added = self._columns.keys() | set(new)
        left = self._choices.keys() - added
        decided = tuple(c for c in self._pending if c[1].names.isdisjoint(left))
        if not partly:
            return decided
        return decided + tuple(c for c in self._pending if c not in decided and c[1].names & added)

    def _step(self, new: Sequence[str], partly: bool) -> str:
        """Add parameters; return the condition that no row meets any more, in a sentence, or nothing."""
        product, tests = self._product(new), self._tests(new, partly=partly)
        total, tested = product.total, self._enough(product, tests)
        kept, left = [], np.zeros(len(tests), dtype=np.int64)
        for start in range(0, tested, CHUNK):
            numbers = _spread(start, min(start + CHUNK, tested), tested, total, self._rng)
            numbers, left_here = self._meeting(product, numbers, tests)
            kept.append(numbers)
            left += left_here
        numbers = np.concatenate(kept)
        self._spent += tested
        self._sampled |= tested < total or len(numbers) > MAX_ROWS
        if not len(numbers):
            none = f"none of {tested} combinations tried meets" if self._sampled else "no combination meets"
            return f"{none} {_first_unmet(tests, left)!r}"
        self._about *= total / self._rows * len(numbers) / tested
        if len(numbers) > MAX_ROWS:
            numbers = numbers[_spread(0, MAX_ROWS, MAX_ROWS, len(numbers), self._rng)]
        self._columns = {name: product.column(name, numbers) for name in [*self._columns, *new]}
        self._rows = len(numbers)
        decided = self._tests((), partly=False)
        self._pending = tuple(c for c in self._pending if c not in decided)
        return ""

    def _enough(self, product: _Product, tests: Constraints) -> int:
        """Return how many combinations to test: all, or as many as leave enough of them."""
        total = product.total
        if total <= max(MAX_ROWS, CHUNK):
            return total
        some, _ = self._meeting(product, _spread(0, CHUNK, CHUNK, total, self._rng), tests)
        share = max(len(some), 1) / CHUNK
        wanted = MAX_ROWS
        if len(tests) > len(self._tests(product.new, partly=False)):
            wanted = MAX_PARTIAL if self._spent < MAX_TESTED else CHUNK
        enough = math.ceil(MARGIN * wanted / share) if share * total > 2 * MAX_ROWS else total
        return min(total, enough, MAX_TESTED)

    def _meeting(
        self, product: _Product, numbers: Rows, tests: Constraints
    ) -> tuple[Rows, NDArray[np.int64]]:
        """Return which of the numbered combinations meet all conditions, and how many each condition leaves.

        Of a condition of which not all names have a value, it is whether it may hold.
        """
        left = np.zeros(len(tests), dtype=np.int64)
        columns: dict[str, NDArray[Any]] = {}  # of the numbered combinations
        for i, (_, condition) in enumerate(tests):
            values = self._named(product, numbers, condition, columns)
            if condition.names & self._choices.keys() <= values.keys():
                holds = condition.holds_many({**self._constants, **values})
            else:
                holds = self._outlook.possible(condition, values)
            holds = np.broadcast_to(holds, numbers.shape)
            if not holds.all():
                # Indices, and of full width: with a mask, or narrow ones, it takes five times as long.
                kept = np.flatnonzero(holds)
                numbers = numbers[kept]
                columns = {n: column[kept] for n, column in columns.items()}
            left[i] = len(numbers)
            if not len(numbers):
                break
        return numbers, left

    def _named(
        self, product: _Product, numbers: Rows, condition: Expression, columns: dict[str, NDArray[Any]]
    ) -> dict[str, Any]:
        """Return the values that numbered combinations give the names of a condition, as far as they do.

        Args:
            product: of which they are.
            numbers: theirs.
            condition: whose names.
            columns: indices of their values, as far as they are known; it gets the others.
        """
        names = [name for name in condition.names if name in product.new or name in product.columns]
        columns |= {name: product.column(name, numbers) for name in names if name not in columns}
        values = {name: self._values[name][columns[name].astype(np.intp)] for name in names}
        if condition in self._wide and np.any(magnitude(condition, {**self._constants, **values}) >= FITS):
            return {n: of.astype(object) if of.dtype.kind == "i" else of for n, of in values.items()}
        return values


def _first_unmet(tests: Constraints, left: NDArray[np.int64]) -> str:
    return tests[int(np.flatnonzero(left == 0)[0])][0]


def _spread(start: int, stop: int, size: int, total: int, rng: np.random.Generator) -> Rows:
    """Return members ``start`` to ``stop`` of a sorted, even sample of ``size`` numbers below ``total``."""
    if size == total:
        rng.random(stop - start)  # as many as a sample takes: what is drawn later stays the same
        return np.arange(start, stop, dtype=np.int64)
    # One number from each of `size` disjoint intervals with integer bounds: none can be drawn twice.
    whole, rest = divmod(total, size)
    numbers = np.arange(start, stop + 1, dtype=np.int64)
    bounds = numbers * whole + numbers * rest // size
    return bounds[:-1] + (rng.random(stop - start) * np.diff(bounds)).astype(np.int64)
