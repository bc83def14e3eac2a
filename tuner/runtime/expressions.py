"""The expressions of kernel files and bundles as trees, and what they are for one set of names.

``("ceil_div", "m", 64)`` divides the size m by 64 and rounds up. A bundle's manifest has the same trees as JSON,
checked by a whitelist; its integers have 64 bits. The C++ launcher evaluates them, too, so every operation is defined
to the bit; ``tests/expressions.json`` has cases for both.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar

Tree = int | float | str | tuple["Tree", ...]
"""A number, a name, or an operator with its operands; of kernel files also ``("text", "abc")``."""
Number = int | float
Names = Mapping[str, Any]
Evaluator = Callable[[Names], Any]

BITS = 64
"""Of a manifest's integers, with their sign."""
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
MAX_DEPTH = 100
MAX_PARTS = 10_000
"""Most numbers, names and operations of one expression."""
MAX_EXPONENT = 64


class NoValueError(ArithmeticError):
    """An expression has no value for these names, such as a quotient by zero.

    Args:
        problem: why.
        remedy: what the author of a kernel's file does about it.
    """

    def __init__(self, problem: str, remedy: str = "use smaller numbers, or positive ones") -> None:
        super().__init__(problem)
        self.remedy = remedy


def ceil_div(a: Any, b: Any) -> Any:
    """Return ``a / b``, rounded up."""
    return -(-a // b)


def round_up(a: Any, b: Any) -> Any:
    """Return the smallest multiple of ``b`` that is at least ``a``."""
    return -(-a // b) * b


class Arithmetic:
    """What operators do with numbers, and with text where it is compared.

    Args:
        bits: of the largest integers; what does not fit has no value.
        more: functions beside :data:`OPERANDS`, by name.
    """

    def __init__(self, bits: int, more: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self._bits = bits
        self._low, self._high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        number = self._number

        def bounded_ceil_div(a: Any, b: Any) -> Any:
            return number(-number(number(-a) // b))

        self._functions: dict[str, Callable[..., Any]] = {
            "neg": lambda a: number(-a),
            "not": operator.not_,
            "min": functools.partial(_extreme, operator.lt),
            "max": functools.partial(_extreme, operator.gt),
            "abs": lambda a: number(abs(a)),
            "is_pow2": _is_pow2,
            "log2": _log2,
            "ceil_div": bounded_ceil_div,
            "round_up": lambda a, b: number(bounded_ceil_div(a, b) * b),
            **(more or {}),
        }

    def apply(self, name: str, *operands: Any) -> Any:
        """Return what an operator that is not lazy makes of values.

        Raises:
            ArithmeticError, TypeError: it makes nothing of them.
        """
        if name in COMPARISONS:
            return _compared(COMPARISONS[name], *operands)
        if name in ARITHMETIC:
            return self._calculated(ARITHMETIC[name], *operands)
        return self._functions[name](*operands)

    def evaluator(self, tree: Tree) -> Evaluator:
        """Return a function that evaluates a tree: walked once, it takes a third of the time of each walk."""
        if isinstance(tree, str):
            return operator.itemgetter(tree)
        if not isinstance(tree, tuple) or tree[0] == "text":
            value = tree[1] if isinstance(tree, tuple) else tree
            return lambda _names: value
        name, operands = str(tree[0]), [self.evaluator(operand) for operand in tree[1:]]
        if name in ("and", "or"):
            return _junction(operands, stops=name == "or")
        match operands:
            case [left, right] if name in ARITHMETIC:
                return self._binary(ARITHMETIC[name], left, right)
            case [left, right] if name in COMPARISONS:
                return _comparison(COMPARISONS[name], left, right)
            case [test, then, otherwise] if name == "if":
                return lambda names: then(names) if test(names) else otherwise(names)
        function = self._functions[name]
        return lambda names: function(*[operand(names) for operand in operands])

    def _binary(self, operation: Callable[[Any, Any], Any], left: Evaluator, right: Evaluator) -> Evaluator:
        low, high, otherwise = self._low, self._high, self._calculated

        def run(names: Names) -> Any:
            a, b = left(names), right(names)
            # Nearly always so, and all that is checked of other values takes twice as long.
            if type(a) is int and type(b) is int:
                value = operation(a, b)
                if low <= value <= high:
                    return value
            return otherwise(operation, a, b)

        return run

    def _calculated(self, operation: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        if isinstance(a, str) or isinstance(b, str):
            raise NoValueError(
                "text cannot be added, repeated or formatted",
                "compare it with ==, or write itemsize(dtype)",
            )
        return self._number(operation(*_alike(a, b)))

    def _number(self, value: Any) -> Any:
        """Return a result that its kind can hold."""
        if isinstance(value, float):
            if not math.isfinite(value):
                raise NoValueError("a number beyond what a double holds")
        elif isinstance(value, int) and not self._low <= value <= self._high:
            raise NoValueError(f"an integer beyond {self._bits} bits", "use smaller numbers")
        return value


def _junction(operands: list[Evaluator], *, stops: bool) -> Evaluator:
    def run(names: Names) -> bool:
        for operand in operands:
            if bool(operand(names)) is stops:
                return stops
        return not stops

    return run


def _comparison(compare: Callable[[Any, Any], bool], left: Evaluator, right: Evaluator) -> Evaluator:
    def run(names: Names) -> bool:
        a, b = left(names), right(names)
        return compare(a, b) if type(a) is type(b) else _compared(compare, a, b)

    return run


def _compared(compare: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    return compare(a, b) if isinstance(a, str) or isinstance(b, str) else compare(*_alike(a, b))


def _alike(a: Number, b: Number) -> tuple[Number, Number]:
    """Return both as doubles if one is: Python would compare them exactly, and C++ does not."""
    return (float(a), float(b)) if isinstance(a, float) or isinstance(b, float) else (a, b)


def _bits(operation: Callable[[int, int], int]) -> Callable[[Number, Number], Number]:
    return lambda a, b: operation(_integer(a), _integer(b))


def _integer(value: Number) -> int:
    if isinstance(value, float):
        raise NoValueError("bits of a fraction", "calculate with whole numbers: write // for /")
    return value


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > MAX_EXPONENT:
        raise NoValueError(f"exponent above {MAX_EXPONENT}", "use a smaller one")
    if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
        return base**exponent
    if base < 0 and exponent != int(exponent):
        raise NoValueError("a root of a negative number", "take it of positive ones")
    if base == 0 and exponent < 0:
        raise ZeroDivisionError("zero to a negative power")
    try:
        return math.pow(base, exponent)
    except OverflowError:
        raise NoValueError("a power that is too large") from None


def _log2(a: Number) -> float:
    if a <= 0:
        raise ZeroDivisionError("a logarithm of zero or less")
    return math.log2(float(a))


def _is_pow2(a: Number) -> bool:
    a = _integer(a)
    return a > 0 and a & (a - 1) == 0


def _extreme(better: Callable[[Any, Any], bool], first: Any, *others: Any) -> Any:
    for other in others:
        if _compared(better, other, first):
            first = other
    return first


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: float(a) / float(b),
    "//": operator.floordiv,
    "%": operator.mod,
    "**": _power,
    "&": _bits(operator.and_),
    "|": _bits(operator.or_),
    "^": _bits(operator.xor),
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPERANDS: dict[str, tuple[int, int]] = {
    **dict.fromkeys((*ARITHMETIC, *COMPARISONS, "ceil_div", "round_up"), (2, 2)),
    **dict.fromkeys(("neg", "not", "abs", "is_pow2", "log2"), (1, 1)),
    **dict.fromkeys(("min", "max"), (1, MAX_PARTS)),
    **dict.fromkeys(("and", "or"), (0, MAX_PARTS)),
    "if": (3, 3),
}
"""The whitelist of a manifest: each operator with its fewest and most operands."""


class Expression:
    """An expression, and where it comes from.

    Args:
        tree: with names that get a value when it is evaluated.
        text: as it is written in a kernel's file, for messages; a manifest has none.
        where: its file and key, likewise.
    """

    arithmetic: ClassVar[Arithmetic] = Arithmetic(BITS)

    def __init__(self, tree: Tree, text: str = "", where: str = "") -> None:
        self.tree, self.text, self.where = tree, text, where

    def __repr__(self) -> str:
        return f"Expression({self.text or self.tree!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.tree == other.tree

    def __hash__(self) -> int:
        return hash(self.tree)

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """The names that need a value."""
        return frozenset(_names_in(self.tree))

    @functools.cached_property
    def _value(self) -> Evaluator:
        return self.arithmetic.evaluator(self.tree)

    def evaluate(self, names: Names) -> Any:
        """Return the value for one set of names.

        Raises:
            NoValueError: it has none.
        """
        try:
            return self._value(names)
        except ZeroDivisionError:
            raise NoValueError("a division by zero, or a logarithm of zero or less") from None

    def holds(self, names: Names) -> bool:
        """Return whether a condition is true; False if it has no value."""
        try:
            return bool(self.evaluate(names))
        except NoValueError:
            return False


def _names_in(tree: Tree) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, tuple) and tree[0] != "text":
        for operand in tree[1:]:
            yield from _names_in(operand)


def check(tree: object, names: Collection[str]) -> Tree:
    """Return JSON as a tree.

    Args:
        tree: what a JSON reader made of it.
        names: those that will have a value, a 64-bit integer.

    Raises:
        ValueError: it is none: an operator, a name or a number of operands that does not exist, or it is too large.
    """
    parts = 0

    def checked(part: object, depth: int) -> Tree:
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
            case [str() as name, *operands] if name in OPERANDS:
                fewest, most = OPERANDS[name]
                if not fewest <= len(operands) <= most:
                    raise ValueError(f"an expression has {len(operands)} operands for {name!r}")
                return (name, *(checked(operand, depth + 1) for operand in operands))
        raise ValueError(f"an expression has {_shown(part)}")

    return checked(tree, 1)


def _shown(part: object) -> str:
    match part:
        case [str() as name, *_]:
            return f"the unknown operator {name[:80]!r}"
        case list():
            return "a list without an operator"
        case int() | float():
            return "a number beyond 64 bits"
    return f"a {type(part).__name__}" if part is not None else "a null"


def told_by(dimension: Tree) -> tuple[str, int, int] | None:
    """Return the name that a dimension tells, how many times that, and how much more it is; None if it tells none.

    ``2 * n + 2`` tells n: a dimension of 1002 means 500.
    """
    factor, more = 1, 0
    match dimension:
        case str():
            return dimension, 1, 0
        case ("+", part, int() as more) | ("+", int() as more, part):
            inner = told_by(part)
        case ("-", part, int() as less):
            inner, more = told_by(part), -less
        case ("*", part, int() as factor) | ("*", int() as factor, part) if factor > 0:
            inner = told_by(part)
        case _:
            return None
    return inner and (inner[0], factor * inner[1], factor * inner[2] + more)
