"""Arithmetic with ranges: with all values that a part of an expression may have.

A range has bounds and, of whole numbers, a step: a product of which one factor is 24 is a multiple of 24, whatever the
others are. It contains every value, and perhaps more. Where a part divides by zero it has no value.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.runtime.expressions import COMPARISONS, MAX_EXPONENT

INEXACT = 2.0**53
"""Whole numbers from here on are rounded in float64."""
ROUNDING = 1e-9
"""More than the relative error of sums and products of fractions that are calculated in another order here."""
FITS = 2.0**62
"""Whole numbers beyond it are calculated as Python's, which have no limit."""


@dataclass(frozen=True)
class Range:
    """Numbers around the values of a tree: scalars, or arrays with an element for each configuration.

    Attributes:
        low, high: the smallest and the largest; the tree may be neither.
        step, offset: all are ``offset`` plus a multiple of ``step``, 0 for one value; None where fractions may be.
    """

    low: Any
    high: Any
    step: Any = None
    offset: Any = 0


ANYTHING = Range(-np.inf, np.inf)


def range_of(values: Any) -> Range:
    """Return the range of a parameter's values."""
    values = np.asarray(values)
    if values.dtype.kind not in "iufb":
        return ANYTHING
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind == "f":
        return Range(low, high)
    first, *others = map(int, values.tolist())
    return outward(low, high, math.gcd(*(other - first for other in others)), first)


def outward(low: Any, high: Any, step: Any = None, offset: Any = 0, size: Any = None) -> Range:
    """Return a range whose bounds allow for rounding: of fractions, of ``size`` or their own, and large integers."""
    if step is None:
        size = np.maximum(np.abs(low), np.abs(high)) if size is None else size
        margin = np.where(np.isfinite(size), ROUNDING * size, 0.0)
        return Range(low - margin, high + margin)
    if np.any(np.abs(low) >= INEXACT) or np.any(np.abs(high) >= INEXACT):
        low = np.where(np.abs(low) >= INEXACT, low - np.abs(low) / INEXACT * 4, low)
        high = np.where(np.abs(high) >= INEXACT, high + np.abs(high) / INEXACT * 4, high)
    return Range(low, high, step, offset)


def _whole(operation: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """Return a sum or product of whole numbers, of Python's where it may not fit."""
    if isinstance(a, int) and isinstance(b, int):
        return operation(a, b)
    if operation(float(np.max(np.abs(a))), float(np.max(np.abs(b)))) >= FITS:
        a, b = np.asarray(a, object), np.asarray(b, object)
    return operation(a, b)


def _gcd(*numbers: Any) -> Any:
    if all(isinstance(number, int) for number in numbers):
        return math.gcd(*numbers)
    return functools.reduce(np.gcd, map(np.asarray, numbers))


def added(a: Range, b: Range) -> Range:
    """Return a + b."""
    low, high = a.low + b.low, a.high + b.high
    if a.step is None or b.step is None:
        return outward(low, high, size=_size(a) + _size(b))
    return outward(low, high, _gcd(a.step, b.step), _whole(operator.add, a.offset, b.offset))


def multiplied(a: Range, b: Range) -> Range:
    """Return a * b."""
    bounds = _corners(np.multiply, a, b)
    if a.step is None or b.step is None:
        return outward(*bounds)
    step = _gcd(
        *(_whole(operator.mul, x, y) for x, y in ((a.step, b.step), (a.step, b.offset), (b.step, a.offset)))
    )
    return outward(*bounds, step, _whole(operator.mul, a.offset, b.offset))


def _size(a: Range) -> Any:
    return np.maximum(np.abs(a.low), np.abs(a.high))


def _corners(function: Callable[[Any, Any], Any], a: Range, b: Range) -> tuple[Any, Any]:
    """Return the bounds of a function that is monotone in each argument, whatever the other is."""
    values = [function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    values = [np.where(np.isnan(value), 0.0, value) for value in values]  # 0 times infinity
    return functools.reduce(np.minimum, values), functools.reduce(np.maximum, values)


def _quotient(a: Range, b: Range, *, whole: bool) -> Range:
    """Return a / b or a // b."""
    step = 1 if whole and a.step is not None and b.step is not None else None
    divisor = b if b.step is None else Range(np.where(b.low == 0, 1.0, b.low), b.high)
    low, high = _corners(np.true_divide, a, divisor)
    one_sign = (divisor.low > 0) | (b.high < 0)
    farthest = _size(a) if step else np.inf  # from a divisor of 1 or -1
    low, high = np.where(one_sign, low, -farthest), np.where(one_sign, high, farthest)
    if whole:
        margin = ROUNDING * np.where(np.isfinite(low) & np.isfinite(high), np.abs(low) + np.abs(high), 0.0)
        low, high = np.floor(low - margin), np.floor(high + margin)
    return _divided(outward(low, high, step), b)


def _remainder(a: Range, b: Range) -> Range:
    """Return a % b: if b is a multiple of m, it differs from a by a multiple of m."""
    positive = b.low >= 0  # as a divisor, above 0
    most = np.minimum(b.high, np.where(a.low >= 0, a.high, np.inf))
    unchanged = (a.low >= 0) & (a.high < b.low)
    low = np.where(positive, np.where(unchanged, a.low, 0.0), -np.inf)
    high = np.where(positive, most, np.inf)
    if a.step is None or b.step is None:
        return _divided(outward(low, high), b)
    return _divided(Range(low, high, _gcd(a.step, b.step, b.offset), a.offset), b)


def _divided(found: Range, divisor: Range) -> Range:
    """Return a range with no value where the divisor is 0."""
    zero = (divisor.low == 0) & (divisor.high == 0)
    return replace(found, low=np.where(zero, np.inf, found.low), high=np.where(zero, -np.inf, found.high))


def _ceil_div(a: Range, b: Range) -> Range:
    return _negated(_quotient(_negated(a), b, whole=True))


def _negated(a: Range) -> Range:
    return Range(-a.high, -a.low, a.step, -a.offset)


def _round_up(a: Range, b: Range) -> Range:
    positive = b.low >= 0
    low, high = np.where(positive, a.low, -np.inf), np.where(positive, a.high + b.high, np.inf)
    if a.step is None or b.step is None:
        return outward(low, high)
    return outward(low, high, _gcd(b.step, b.offset))


def _either(a: Range, b: Range, low: Any, high: Any) -> Range:
    """Return the range of what is of a or of b."""
    if a.step is None or b.step is None:
        return Range(low, high)
    return Range(low, high, _gcd(a.step, b.step, a.offset - b.offset), a.offset)


def _min(*parts: Range) -> Range:
    return functools.reduce(
        lambda a, b: _either(a, b, np.minimum(a.low, b.low), np.minimum(a.high, b.high)), parts
    )


def _max(*parts: Range) -> Range:
    return functools.reduce(
        lambda a, b: _either(a, b, np.maximum(a.low, b.low), np.maximum(a.high, b.high)), parts
    )


def _abs(a: Range) -> Range:
    return _either(a, _negated(a), np.maximum(0.0, np.maximum(a.low, -a.high)), _size(a))


def _chosen(test: Range, then: Range, otherwise: Range) -> Range:
    test = truth(test)
    low, high = np.fmin(then.low, otherwise.low), np.fmax(then.high, otherwise.high)  # one may have no value
    for decided, branch in ((test.low > 0, then), (test.high == 0, otherwise)):
        low, high = np.where(decided, branch.low, low), np.where(decided, branch.high, high)
    return _either(then, otherwise, low, high)


def _power(a: Range, b: Range) -> Range:
    """Return a ** b of positive bases, which is monotone in both."""
    if not np.all(a.low > 0):
        return ANYTHING
    found = outward(*_corners(np.power, a, b))
    if a.step is None or b.step is None or not np.all(b.low >= 0):
        return found
    one_base = isinstance(a.offset, int) and a.step == 0
    return Range(found.low, found.high, a.offset ** min(int(np.min(b.low)), MAX_EXPONENT) if one_base else 1)


def _log2(a: Range) -> Range:
    return outward(np.log2(np.maximum(a.low, 0.0)), np.log2(np.maximum(a.high, 0.0)))


def _bits(a: Range, b: Range) -> Range:
    """Return a & b, a | b or a ^ b of numbers that are not negative: at most their sum."""
    positive = (a.low >= 0) & (b.low >= 0)
    return Range(np.where(positive, 0.0, -np.inf), np.where(positive, a.high + b.high, np.inf), 1)


def truth(a: Range) -> Range:
    """Return a value as a truth value."""
    return Range(1.0 * ((a.low > 0) | (a.high < 0)), 1.0 * ((a.low != 0) | (a.high != 0)), 1)


def _not(a: Range) -> Range:
    holds = truth(a)
    return Range(1.0 - holds.high, 1.0 - holds.low, 1)


def _and(*parts: Range) -> Range:
    return _min(*map(truth, parts))


def _or(*parts: Range) -> Range:
    return _max(*map(truth, parts))


def compared(name: str, a: Range, b: Range) -> Range:
    """Return whether a comparison holds."""
    match name:
        case "!=":
            return _not(compared("==", a, b))
        case "==":
            may = (a.low <= b.high) & (b.low <= a.high)
            if a.step is not None and b.step is not None:
                step, apart = _gcd(a.step, b.step), a.offset - b.offset
                may = may & np.where(step == 0, apart == 0, apart % np.where(step == 0, 1, step) == 0)
            must = (a.low == a.high) & (b.low == b.high) & (a.low == b.low) & (np.abs(a.low) < INEXACT)
        case "<" | "<=":
            compare = COMPARISONS[name]
            may, must = compare(a.low, b.high), compare(a.high, b.low)
        case _:
            return compared({">": "<", ">=": "<="}[name], b, a)
    return Range(1.0 * must, 1.0 * may, 1)


FUNCTIONS: dict[str, Callable[..., Range]] = {
    "/": functools.partial(_quotient, whole=False),
    "//": functools.partial(_quotient, whole=True),
    "%": _remainder,
    "ceil_div": _ceil_div,
    "round_up": _round_up,
    "min": _min,
    "max": _max,
    "abs": _abs,
    "**": _power,
    "log2": _log2,
    **dict.fromkeys("&|^", _bits),
    "if": _chosen,
    "not": _not,
    "and": _and,
    "or": _or,
}
"""By operator; of all others a value may be anything."""
