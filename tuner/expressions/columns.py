"""Trees of expressions on NumPy arrays: for many configurations at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tuner.runtime.expressions import (
    ARITHMETIC,
    COMPARISONS,
    MAX_EXPONENT,
    Arithmetic,
    NoValueError,
    Tree,
    ceil_div,
    round_up,
)

_DIVISIONS = ("/", "//", "%", "ceil_div", "round_up")
"""Operators that divide by their second operand."""
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: function for name, function in ARITHMETIC.items() if name in ("+", "-", "*", "//", "%")},
    "/": np.true_divide,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "neg": lambda a: -a,
    "not": np.logical_not,
    "abs": np.abs,
    "is_pow2": lambda a: (a > 0) & ((a & (a - 1)) == 0),
    "ceil_div": ceil_div,
    "round_up": round_up,
    "min": lambda *xs: functools.reduce(np.minimum, xs),
    "max": lambda *xs: functools.reduce(np.maximum, xs),
}


class Columns:
    """The values of names for many configurations.

    Args:
        names: arrays of one length, and values that are the same for all.
        arithmetic: of values that are the same for all.

    Attributes:
        divided_by_zero: for each configuration, whether what was evaluated divides by zero there.
    """

    def __init__(self, names: Mapping[str, Any], arithmetic: Arithmetic) -> None:
        self._names, self._arithmetic = names, arithmetic
        self.divided_by_zero: Any = np.False_

    def evaluate(self, tree: Tree) -> Any:
        """Return a tree's values; those where it divides by zero mean nothing.

        Raises:
            NoValueError, TypeError: there are none.
        """
        if isinstance(tree, str):
            return self._names[tree]
        if not isinstance(tree, tuple):
            return tree
        name, operands = tree[0], tree[1:]
        match name:
            case "text":
                return operands[0]
            case "and" | "or":
                return self._junction(operands, stops=name == "or")
            case "if":
                return self._conditional(*operands)
        assert isinstance(name, str)
        values = [self.evaluate(operand) for operand in operands]
        if not any(isinstance(value, np.ndarray) for value in values):
            return self._single(name, values)
        if name in COMPARISONS:
            return np.asarray(COMPARISONS[name](*values))
        if any(isinstance(value, str) or _is_text(value) for value in values):
            self._arithmetic.apply("+", "", "")
        if name != "not":
            values = [_as_number(value) for value in values]
        if name in _DIVISIONS:
            values[1] = self._divisor(values[1], values[1] == 0)
        if name == "**":
            return self._power(*values)
        if name == "log2":
            return np.log2(self._divisor(values[0], values[0] <= 0).astype(np.float64))
        return _FUNCTIONS[name](*values)

    def _single(self, name: str, values: list[Any]) -> Any:
        try:
            return self._arithmetic.apply(
                name, *(v.item() if isinstance(v, np.generic) else v for v in values)
            )
        except ZeroDivisionError:
            self.divided_by_zero = np.logical_or(self.divided_by_zero, True)
            return 1

    def _power(self, base: Any, exponent: Any) -> Any:
        if np.any(np.abs(exponent) > MAX_EXPONENT):
            raise NoValueError(f"exponent above {MAX_EXPONENT}", "use a smaller one")
        return self._divisor(base, (base == 0) & (exponent < 0)) ** exponent

    def _divisor(self, values: Any, wrong: Any) -> Any:
        """Note where a divisor is invalid, and return divisors with 1 there; those results are not used."""
        if not np.any(wrong):
            return values
        self.divided_by_zero = self.divided_by_zero | wrong
        return np.where(wrong, 1, values)

    def _inner(self, tree: Tree) -> tuple[Any, Any]:
        """Return a part's values, and where it divides by zero."""
        inner = Columns(self._names, self._arithmetic)
        return inner.evaluate(tree), inner.divided_by_zero

    def _junction(self, operands: tuple[Tree, ...], *, stops: bool) -> Any:
        """Return ``and`` or ``or``; a division by zero counts only where its operand is reached."""
        result: Any = np.bool_(not stops)
        for operand in operands:
            value, zero = self._inner(operand)
            self.divided_by_zero = self.divided_by_zero | (zero & (result != stops))
            result = np.logical_or(result, value) if stops else np.logical_and(result, value)
        return result

    def _conditional(self, test: Tree, then: Tree, otherwise: Tree) -> Any:
        """Return ``a if c else b``; a division by zero counts only where its branch is taken."""
        taken = self.evaluate(test)
        (yes, zero_yes), (no, zero_no) = self._inner(then), self._inner(otherwise)
        self.divided_by_zero = self.divided_by_zero | np.where(taken, zero_yes, zero_no)
        return np.where(taken, yes, no)


def _is_text(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "US"


def _as_number(value: Any) -> Any:
    """Return truth values as 0 and 1: NumPy adds them with "or", and subtracts none."""
    return value.astype(np.int64) if isinstance(value, np.ndarray) and value.dtype == bool else value
