"""Evaluate the tree of a checked expression, for one set of names or for NumPy arrays of them."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tuner.core.errors import ExpressionError
from tuner.expressions.elementwise import parse_element
from tuner.runtime.dtypes import ITEMSIZE

MAX_EXPONENT = 64
MAX_BITS = 256
"""Integers beyond this size are refused, so that a hostile expression cannot eat the memory."""
TOO_LARGE = 1 << MAX_BITS


def ceil_div(a: Any, b: Any) -> Any:
    """Return ``a / b``, rounded up."""
    return -(-a // b)


def round_up(a: Any, b: Any) -> Any:
    """Return the smallest multiple of ``b`` that is at least ``a``."""
    return -(-a // b) * b


def _is_pow2(a: Any) -> Any:
    return (a > 0) & ((a & (a - 1)) == 0)


def _itemsize(dtype: Any) -> int:
    try:
        return ITEMSIZE[str(dtype)]
    except KeyError:
        raise ExpressionError(
            f"itemsize({dtype!r}): not a dtype", f"use one of {', '.join(ITEMSIZE)}"
        ) from None


def _log2(a: Any) -> Any:
    return np.log2(a)


def uses(element: Any, name: Any) -> int:
    """Return 1 where an element expression uses a name, else 0."""
    return int(str(name) in parse_element(str(element)).names)


def operations(element: Any) -> int:
    """Return the number of arithmetic operations of an element expression."""
    return parse_element(str(element)).operations


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil_div": ceil_div,
    "round_up": round_up,
    "is_pow2": _is_pow2,
    "itemsize": _itemsize,
    "abs": abs,
    "log2": _log2,
    "uses": uses,
    "operations": operations,
}
_DIVIDING = ("ceil_div", "round_up")
"""Functions that divide by their second argument."""
_SCALAR_ONLY: dict[str, Callable[..., Any]] = {"min": min, "max": max}
_VECTOR_ONLY: dict[str, Callable[..., Any]] = {
    "min": lambda *xs: functools.reduce(np.minimum, xs),
    "max": lambda *xs: functools.reduce(np.maximum, xs),
}
FUNCTION_NAMES = frozenset(_FUNCTIONS) | frozenset(_SCALAR_ONLY)

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
COMPARE_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
"""The same in Python and in C++."""


class Vectorized:
    """The state of an evaluation for many configurations at once."""

    def __init__(self) -> None:
        self.divided_by_zero: Any = np.False_
        """For each configuration, whether it divides by zero."""

    def divisor(self, values: Any, wrong: Any) -> Any:
        """Record where a divisor is invalid, and return divisors with 1 there; those results are not used."""
        if not np.any(wrong):
            return values
        self.divided_by_zero = self.divided_by_zero | wrong
        return np.where(wrong, 1, values)


Names = Mapping[str, Any]
Evaluator = Callable[[Names, Vectorized | None], Any]
"""Return a value; see :func:`evaluate` for the arguments."""


def evaluate(node: ast.AST, names: Names, many: Vectorized | None) -> Any:
    """Return the value of a checked tree.

    Args:
        node: the tree.
        names: a value for each of its names.
        many: for NumPy arrays as values; None for single values.
    """
    return evaluator(node)(names, many)


def evaluator(node: ast.AST) -> Evaluator:
    """Return a function that evaluates a checked tree: walked once, it takes a third of the time of each walk."""
    match node:
        case ast.Constant(value=value):
            return lambda _names, _many: value
        case ast.Name(id=name):
            return lambda names, _many: names[name]
        case ast.BinOp(op=op):
            operation = _power if isinstance(op, ast.Pow) else BINARY[type(op)]
            return _binary(operation, evaluator(node.left), evaluator(node.right))
        case ast.UnaryOp(op=op):
            operand = evaluator(node.operand)
            if isinstance(op, ast.Not):
                return lambda names, many: _negated(operand(names, many), many is not None)
            sign = operator.neg if isinstance(op, ast.USub) else operator.pos
            return lambda names, many: sign(operand(names, many))
        case ast.BoolOp():
            return _junction(node)
        case ast.IfExp():
            return _conditional(node)
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            return _membership(node)
        case ast.Compare():
            return _comparison(node)
        case ast.Call(func=ast.Name(id=name)):
            return _call(name, [evaluator(child) for child in node.args])
    raise AssertionError(node)


def _binary(operation: Callable[[Any, Any], Any], left: Evaluator, right: Evaluator) -> Evaluator:
    def run(names: Names, many: Vectorized | None) -> Any:
        a, b = left(names, many), right(names, many)
        # Nearly always so, and all that is checked of other values takes twice as long.
        if type(a) is int and type(b) is int and many is None:
            value = operation(a, b)
            if -TOO_LARGE < value < TOO_LARGE:
                return value
        return _arithmetic(operation, a, b, many)

    return run


def _junction(node: ast.BoolOp) -> Evaluator:
    """Return what evaluates ``and`` or ``or``; a division by zero counts only where its operand is reached."""
    stops = isinstance(node.op, ast.Or)
    operands = [evaluator(child) for child in node.values]

    def run(names: Names, many: Vectorized | None) -> Any:
        if many is None:
            for operand in operands:
                if bool(operand(names, None)) is stops:
                    return stops
            return not stops
        result: Any = np.bool_(not stops)
        for operand in operands:
            inner = Vectorized()
            value = operand(names, inner)
            many.divided_by_zero = many.divided_by_zero | (inner.divided_by_zero & (result != stops))
            result = np.logical_or(result, value) if stops else np.logical_and(result, value)
        return result

    return run


def _conditional(node: ast.IfExp) -> Evaluator:
    """Return what evaluates ``a if c else b``; a division by zero counts only where its branch is taken."""
    test, body, orelse = (evaluator(child) for child in (node.test, node.body, node.orelse))

    def run(names: Names, many: Vectorized | None) -> Any:
        taken = test(names, many)
        if many is None:
            return body(names, None) if taken else orelse(names, None)
        yes, no = Vectorized(), Vectorized()
        value = np.where(taken, body(names, yes), orelse(names, no))
        zero = np.where(taken, yes.divided_by_zero, no.divided_by_zero)
        many.divided_by_zero = many.divided_by_zero | zero
        return value

    return run


def _membership(node: ast.Compare) -> Evaluator:
    choices = node.comparators[0]
    assert isinstance(choices, ast.List | ast.Tuple)
    left, items = evaluator(node.left), [evaluator(child) for child in choices.elts]
    negative = isinstance(node.ops[0], ast.NotIn)

    def run(names: Names, many: Vectorized | None) -> Any:
        value = left(names, many)
        equal: Any = False
        for item in items:
            equal = equal | (value == item(names, many))
        return _negated(equal, many is not None) if negative else equal

    return run


def _comparison(node: ast.Compare) -> Evaluator:
    first = evaluator(node.left)
    steps = [
        (COMPARE[type(op)], evaluator(child)) for op, child in zip(node.ops, node.comparators, strict=True)
    ]

    if len(steps) == 1:
        ((only, second),) = steps

        def run_one(names: Names, many: Vectorized | None) -> Any:
            holds = only(first(names, many), second(names, many))
            return holds if many is None else np.logical_and(True, holds)

        return run_one

    def run(names: Names, many: Vectorized | None) -> Any:
        left = first(names, many)
        result: Any = True
        for compare, side in steps:
            right = side(names, many)
            holds = compare(left, right)
            result = (result and holds) if many is None else np.logical_and(result, holds)
            left = right
        return result

    return run


def _call(name: str, arguments: list[Evaluator]) -> Evaluator:
    one = _SCALAR_ONLY.get(name) or _FUNCTIONS[name]
    each = _VECTOR_ONLY.get(name) or _FUNCTIONS[name]
    divides = name in _DIVIDING

    def run(names: Names, many: Vectorized | None) -> Any:
        values = [argument(names, many) for argument in arguments]
        if many is None:
            return one(*values)
        if divides:
            values[1:] = [many.divisor(divisor, divisor == 0) for divisor in values[1:]]
        return each(*values)

    return run


def _negated(value: Any, vector: bool) -> Any:
    return np.logical_not(value) if vector else not value


def _power(base: Any, exponent: Any) -> Any:
    if np.any(np.abs(exponent) > MAX_EXPONENT):
        raise ExpressionError(f"exponent above {MAX_EXPONENT}", "use a smaller one")
    return base**exponent


def _arithmetic(operation: Callable[[Any, Any], Any], left: Any, right: Any, many: Vectorized | None) -> Any:
    if isinstance(left, str) or isinstance(right, str):
        raise ExpressionError(
            "text cannot be added, repeated or formatted", "compare it with ==, or write itemsize(dtype)"
        )
    if many is not None and operation in _DIVISIONS:
        right = many.divisor(right, right == 0)
    elif many is not None and operation is _power:
        left = many.divisor(left, (left == 0) & (right < 0))
    value = operation(left, right)
    if isinstance(value, complex):
        raise ExpressionError("a root of a negative number", "take it of positive ones")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ExpressionError("a number grows without bound", "use smaller numbers")
    return value
