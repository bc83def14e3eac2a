"""What conditions may be where only some parameters have a value: partial configurations that no values of the others
make valid are known without trying those.

Parts whose names are all known are calculated exactly, the others as ranges (:mod:`tuner.expressions.ranges`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tuner.expressions.arithmetic import FAILURES, WIDE
from tuner.expressions.columns import Columns
from tuner.expressions.ranges import ANYTHING, FUNCTIONS, Range, added, compared, multiplied, outward, truth
from tuner.runtime.expressions import COMPARISONS, MAX_EXPONENT, Expression, Tree


class Outlook:
    """Says what conditions may be where only some parameters have a value.

    Args:
        constants: values of names that are no parameters.
        ranges: of all parameters.
    """

    def __init__(self, constants: Mapping[str, Any], ranges: Mapping[str, Range]) -> None:
        self._constants, self._ranges = constants, ranges
        self._open: dict[Tree, Range] = {}  # of parts without a parameter that has a value

    def possible(self, condition: Expression, columns: Mapping[str, Any]) -> Any:
        """Return for each of many configurations whether a condition may hold, whatever the other parameters are.

        Args:
            condition: a constraint; it does not hold where it divides by zero.
            columns: values of some parameters, as of :meth:`tuner.expressions.arithmetic.Expression.holds_many`.
        """
        with np.errstate(all="ignore"):
            return truth(self._evaluate(condition.tree, columns)).high > 0

    def doubt(self, condition: Expression, columns: Mapping[str, Any]) -> float:
        """Return how far apart the two sides of a comparison may be, on average; arguments as of :meth:`possible`.

        Not a number where it is no comparison of numbers.
        """
        if not (isinstance(condition.tree, tuple) and condition.tree[0] in COMPARISONS):
            return math.nan
        with np.errstate(all="ignore"):
            apart = self._evaluate(("-", *condition.tree[1:]), columns)
            return float(np.mean(apart.high - apart.low))

    def _evaluate(self, tree: Tree, columns: Mapping[str, Any]) -> Range:
        names = _names(tree)
        if not names & columns.keys():
            if tree not in self._open:
                self._open[tree] = self._unfolded(tree, {})
            return self._open[tree]
        return self._unfolded(tree, columns)

    def _unfolded(self, tree: Tree, columns: Mapping[str, Any]) -> Range:
        if self._known(tree, columns):
            return _exactly(tree, {**self._constants, **columns})
        if isinstance(tree, str):
            return self._ranges[tree]
        assert isinstance(tree, tuple)
        name, operands = str(tree[0]), tree[1:]
        match name:
            case "+" | "-" | "neg":
                return self._chain(list(_summands(tree)), "+", added, columns)
            case "*":
                return self._chain(list(_factors(tree)), "*", multiplied, columns)
        parts = [self._evaluate(operand, columns) for operand in operands]
        if name == "**" and isinstance(operands[1], int) and 1 <= operands[1] <= MAX_EXPONENT:
            return functools.reduce(multiplied, [parts[0]] * operands[1])
        if name in COMPARISONS:
            return compared(name, *parts)
        return FUNCTIONS[name](*parts) if name in FUNCTIONS else ANYTHING

    def _known(self, tree: Tree, columns: Mapping[str, Any]) -> bool:
        return all(name in columns or name not in self._ranges for name in _names(tree))

    def _chain(
        self,
        operands: list[Tree],
        sign: str,
        combined: Callable[[Range, Range], Range],
        columns: Mapping[str, Any],
    ) -> Range:
        """Return a sum or a product: what is known of it, wherever it stands, is calculated first."""
        known = [one for one in operands if self._known(one, columns)]
        parts = [self._evaluate(one, columns) for one in operands if not self._known(one, columns)]
        if known:
            parts.append(self._evaluate(functools.reduce(lambda a, b: (sign, a, b), known), columns))
        return functools.reduce(combined, parts)


def _exactly(tree: Tree, names: Mapping[str, Any]) -> Range:
    """Return the values of a tree whose names are all known."""
    columns = Columns(names, WIDE)
    try:
        values = columns.evaluate(tree)
    except FAILURES:  # what is wrong is said where all names have a value
        return ANYTHING
    kind = np.asarray(values).dtype.kind
    if kind not in "iufbO" or (kind == "O" and not _is_whole(values)):
        return ANYTHING
    if kind == "b":
        values = values * 1
    as_float = np.asarray(values, np.float64) if isinstance(values, np.ndarray) else float(values)
    undefined = columns.divided_by_zero
    low, high = as_float, as_float
    if np.any(undefined):
        low, high = np.where(undefined, np.inf, as_float), np.where(undefined, -np.inf, as_float)
    return Range(low, high) if kind == "f" else outward(low, high, 0, values)


def _is_whole(values: Any) -> bool:
    return all(isinstance(value, int) for value in np.ravel(values))


def _summands(tree: Tree, negative: bool = False) -> Iterator[Tree]:
    match tree:
        case ("+" | "-" as name, left, right):
            yield from _summands(left, negative)
            yield from _summands(right, negative is not (name == "-"))
        case ("neg", operand):
            yield from _summands(operand, not negative)
        case _:
            yield ("*", -1, tree) if negative else tree


def _factors(tree: Tree) -> Iterator[Tree]:
    if isinstance(tree, tuple) and tree[0] == "*":
        yield from _factors(tree[1])
        yield from _factors(tree[2])
    else:
        yield tree


def magnitude(condition: Expression, names: Mapping[str, Any]) -> Any:
    """Return a number that no part of a condition is beyond, nor a product of some of its factors.

    Args:
        condition: a constraint.
        names: values of some names, or arrays of them; parts without a value are left out.
    """
    return _magnitude(condition.tree, names)


def _magnitude(tree: Tree, names: Mapping[str, Any]) -> Any:
    if not isinstance(tree, tuple):
        value = names.get(tree, 1.0) if isinstance(tree, str) else tree
        return 1.0 if np.asarray(value).dtype.kind in "US" else np.maximum(1.0, np.abs(value))
    if tree[0] == "text":
        return 1.0
    parts = [_magnitude(part, names) for part in tree[1:]]
    match tree[0]:
        case "*":
            return functools.reduce(np.multiply, parts)
        case "**":
            return np.power(parts[0], np.minimum(parts[1], MAX_EXPONENT))
        case "+" | "-" | "round_up" | "&" | "|" | "^":
            return sum(parts)
    return functools.reduce(np.maximum, parts)


@functools.lru_cache(maxsize=4096)
def _names(tree: Tree) -> frozenset[str]:
    return Expression(tree).names
