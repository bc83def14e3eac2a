"""Evaluate the tree of a checked expression, for one set of names or for NumPy arrays of them."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tuner.errors import ExpressionError
from tuner.expressions.elementwise import parse_element
from tuner.runtime.dtypes import ITEMSIZE

MAX_EXPONENT = 64
MAX_BITS = 256
"""Integers beyond this size are refused, so that a hostile expression cannot eat the memory."""


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


def evaluate(node: ast.AST, names: Mapping[str, Any], many: Vectorized | None) -> Any:
    """Return the value of a checked tree.

    Args:
        node: the tree.
        names: a value for each of its names.
        many: for NumPy arrays as values; None for single values.
    """

    def run(child: ast.AST) -> Any:
        return evaluate(child, names, many)

    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.BinOp(op=ast.Pow()):
            return _arithmetic(_power, run(node.left), run(node.right), many)
        case ast.BinOp():
            return _arithmetic(BINARY[type(node.op)], run(node.left), run(node.right), many)
        case ast.UnaryOp(op=ast.Not()):
            return not run(node.operand) if many is None else np.logical_not(run(node.operand))
        case ast.UnaryOp():
            value = run(node.operand)
            return -value if isinstance(node.op, ast.USub) else +value
        case ast.BoolOp(op=op):
            if many is not None:
                return _combine(node, names, many)
            if isinstance(op, ast.And):
                return all(run(child) for child in node.values)
            return any(run(child) for child in node.values)
        case ast.IfExp():
            if many is not None:
                return _choose(node, names, many)
            return run(node.body) if run(node.test) else run(node.orelse)
        case ast.Compare():
            return _compare(node, run, many is not None)
        case ast.Call(func=ast.Name(id=name)):
            arguments = [run(child) for child in node.args]
            if many is not None and name in _DIVIDING:
                arguments[1:] = [many.divisor(divisor, divisor == 0) for divisor in arguments[1:]]
            table = _SCALAR_ONLY if many is None else _VECTOR_ONLY
            return (table.get(name) or _FUNCTIONS[name])(*arguments)
    raise AssertionError(node)


def _combine(node: ast.BoolOp, names: Mapping[str, Any], many: Vectorized) -> Any:
    """Evaluate ``and`` or ``or``; a division by zero counts only where its operand is reached."""
    stops = isinstance(node.op, ast.Or)
    result: Any = np.bool_(not stops)
    for child in node.values:
        inner = Vectorized()
        value = evaluate(child, names, inner)
        many.divided_by_zero = many.divided_by_zero | (inner.divided_by_zero & (result != stops))
        result = np.logical_or(result, value) if stops else np.logical_and(result, value)
    return result


def _choose(node: ast.IfExp, names: Mapping[str, Any], many: Vectorized) -> Any:
    """Evaluate ``a if c else b``; a division by zero counts only where its branch is taken."""
    taken = evaluate(node.test, names, many)
    yes, no = Vectorized(), Vectorized()
    value = np.where(taken, evaluate(node.body, names, yes), evaluate(node.orelse, names, no))
    many.divided_by_zero = many.divided_by_zero | np.where(taken, yes.divided_by_zero, no.divided_by_zero)
    return value


def _compare(node: ast.Compare, run: Callable[[ast.AST], Any], vector: bool) -> Any:
    left = run(node.left)
    if isinstance(node.ops[0], ast.In | ast.NotIn):
        choices = node.comparators[0]
        assert isinstance(choices, ast.List | ast.Tuple)
        equal = functools.reduce(operator.or_, [left == run(child) for child in choices.elts], False)
        if isinstance(node.ops[0], ast.In):
            return equal
        return np.logical_not(equal) if vector else not equal
    result: Any = True
    for op, child in zip(node.ops, node.comparators, strict=True):
        right = run(child)
        holds = COMPARE[type(op)](left, right)
        result = np.logical_and(result, holds) if vector else (result and holds)
        left = right
    return result


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
