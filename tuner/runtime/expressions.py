"""The expressions of a bundle's manifest: JSON, checked by a whitelist, evaluated with 64-bit integers and doubles.

``["ceil_div", "m", 64]`` divides the size m by 64 and rounds up. The C++ launcher evaluates the same expressions, so
every operation is defined to the bit; ``tests/expressions.json`` has cases for both.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping

Expression = int | float | str | tuple["Expression", ...]
"""A number, a name, or an operator with its operands."""
Number = int | float

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
MAX_DEPTH = 100
MAX_PARTS = 10_000
"""Most numbers, names and operations of one expression."""
MAX_EXPONENT = 64


class NoValueError(ArithmeticError):
    """An expression has no value for these names, such as a quotient by zero."""


def check(tree: object, names: Collection[str]) -> Expression:
    """Return JSON as an expression.

    Args:
        tree: what a JSON reader made of it.
        names: those that will have a value.

    Raises:
        ValueError: it is none: an operator, a name or a number of operands that does not exist, or it is too large.
    """
    parts = 0

    def checked(part: object, depth: int) -> Expression:
        nonlocal parts
        parts += 1
        if parts > MAX_PARTS:
            raise ValueError(f"an expression has more than {MAX_PARTS} parts")
        if depth > MAX_DEPTH:
            raise ValueError(f"an expression is nested deeper than {MAX_DEPTH} levels")
        match part:
            case bool():
                return int(part)
            case int() if MIN_INTEGER <= part <= MAX_INTEGER:
                return part
            case float() if math.isfinite(part):
                return part
            case str() if part in names:
                return part
            case str():
                raise ValueError(f"an expression has the unknown name {part[:80]!r}")
            case [str() as name, *operands] if name in _OPERANDS:
                fewest, most = _OPERANDS[name]
                if not fewest <= len(operands) <= most:
                    raise ValueError(f"an expression has {len(operands)} operands for {name!r}")
                return (name, *(checked(operand, depth + 1) for operand in operands))
        raise ValueError(f"an expression has {_shown(part)}")

    return checked(tree, 1)


def evaluate(expression: Expression, names: Mapping[str, int]) -> Number:
    """Return the value of a checked expression.

    Args:
        expression: from :func:`check`.
        names: a 64-bit integer for each of its names.

    Raises:
        NoValueError: it has none.
    """
    if isinstance(expression, str):
        return names[expression]
    if not isinstance(expression, tuple):
        return expression
    name, *operands = expression
    match name:
        case "and":
            return int(all(evaluate(operand, names) for operand in operands))
        case "or":
            return int(any(evaluate(operand, names) for operand in operands))
        case "if":
            condition, then, otherwise = operands
            return evaluate(then if evaluate(condition, names) else otherwise, names)
    assert isinstance(name, str)
    return _FUNCTIONS[name](*(evaluate(operand, names) for operand in operands))


def told_by(dimension: Expression) -> tuple[str, int] | None:
    """Return the name that a dimension tells, and how much more than it the dimension is; None if it tells none.

    ``n + 2`` tells n: a dimension of 1002 means 1000.
    """
    match dimension:
        case str():
            return dimension, 0
        case ("+", part, int() as more) | ("+", int() as more, part):
            inner = told_by(part)
        case ("-", part, int() as less):
            inner, more = told_by(part), -less
        case _:
            return None
    return inner and (inner[0], inner[1] + more)


def holds(expression: Expression, names: Mapping[str, int]) -> bool:
    """Return whether a condition is true; False if it has no value."""
    try:
        return bool(evaluate(expression, names))
    except NoValueError:
        return False


def _shown(part: object) -> str:
    match part:
        case [str() as name, *_]:
            return f"the unknown operator {name[:80]!r}"
        case list():
            return "a list without an operator"
        case int() | float():
            return "a number beyond 64 bits"
    return f"a {type(part).__name__}" if part is not None else "a null"


def _number(value: Number) -> Number:
    """Return a result that its kind can hold."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NoValueError("a number beyond what a double holds")
    elif not MIN_INTEGER <= value <= MAX_INTEGER:
        raise NoValueError("an integer beyond 64 bits")
    return value


def _alike(a: Number, b: Number) -> tuple[Number, Number]:
    """Return both as doubles if one is: Python would compare them exactly, and C++ does not."""
    return (float(a), float(b)) if isinstance(a, float) or isinstance(b, float) else (a, b)


def _arithmetic(operation: Callable[[Number, Number], Number]) -> Callable[[Number, Number], Number]:
    def run(a: Number, b: Number) -> Number:
        try:
            return _number(operation(*_alike(a, b)))
        except ZeroDivisionError:
            raise NoValueError("a division by zero") from None

    return run


def _comparison(operation: Callable[[Number, Number], bool]) -> Callable[[Number, Number], Number]:
    return lambda a, b: int(operation(*_alike(a, b)))


def _bits(operation: Callable[[int, int], int]) -> Callable[[Number, Number], Number]:
    return lambda a, b: operation(_integer(a), _integer(b))


def _integer(value: Number) -> int:
    if isinstance(value, float):
        raise NoValueError("bits of a fraction")
    return value


def _power(base: Number, exponent: Number) -> Number:
    if abs(exponent) > MAX_EXPONENT:
        raise NoValueError(f"an exponent above {MAX_EXPONENT}")
    try:
        if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
            return _number(base**exponent)
        return _number(math.pow(base, exponent))
    except (ValueError, OverflowError):  # zero to a negative power, a root of a negative number, too large
        raise NoValueError("a power that does not exist, or is too large") from None


def _log2(a: Number) -> float:
    if a <= 0:
        raise NoValueError("a logarithm of zero or less")
    return math.log2(float(a))


def _is_pow2(a: Number) -> int:
    a = _integer(a)
    return int(a > 0 and a & (a - 1) == 0)


def _negative(a: Number) -> Number:
    return _number(-a)


_floor_divide = _arithmetic(operator.floordiv)
_multiply = _arithmetic(operator.mul)


def _ceil_div(a: Number, b: Number) -> Number:
    return _negative(_floor_divide(_negative(a), b))


def _extreme(better: Callable[[Number, Number], bool]) -> Callable[..., Number]:
    def run(first: Number, *others: Number) -> Number:
        for other in others:
            if better(*_alike(other, first)):
                first = other
        return first

    return run


_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "+": _arithmetic(operator.add),
    "-": _arithmetic(operator.sub),
    "*": _multiply,
    "/": _arithmetic(lambda a, b: float(a) / float(b)),
    "//": _floor_divide,
    "%": _arithmetic(operator.mod),
    "**": _power,
    "&": _bits(operator.and_),
    "|": _bits(operator.or_),
    "^": _bits(operator.xor),
    "neg": _negative,
    "not": lambda a: int(not a),
    "==": _comparison(operator.eq),
    "!=": _comparison(operator.ne),
    "<": _comparison(operator.lt),
    "<=": _comparison(operator.le),
    ">": _comparison(operator.gt),
    ">=": _comparison(operator.ge),
    "min": _extreme(operator.lt),
    "max": _extreme(operator.gt),
    "abs": lambda a: _number(abs(a)),
    "is_pow2": _is_pow2,
    "log2": _log2,
    "ceil_div": _ceil_div,
    "round_up": lambda a, b: _multiply(_ceil_div(a, b), b),
}
_UNARY = ("neg", "not", "abs", "is_pow2", "log2")
_OPERANDS: dict[str, tuple[int, int]] = {
    **{name: (1, 1) if name in _UNARY else (2, 2) for name in _FUNCTIONS},
    "min": (1, MAX_PARTS),
    "max": (1, MAX_PARTS),
    "and": (0, MAX_PARTS),
    "or": (0, MAX_PARTS),
    "if": (3, 3),
}
"""The whitelist: each operator with its fewest and most operands."""
