"""Expressions of a kernel's file as JSON: names with a known value are worked in, and what is left are numbers and
operators that need no Python (``docs/bundles.md`` lists them)."""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.core.errors import ExpressionError, KernelError
from tuner.expressions.arithmetic import Expression
from tuner.expressions.evaluation import COMPARE, COMPARE_SIGNS, FUNCTION_NAMES, evaluate
from tuner.expressions.parsing import names_in

Folded = int | float | bool | str | list[Any]
"""JSON: a number, a truth value, a name, or ``[operator, operand, ...]``."""

NO_VALUE: list[Any] = ["//", 1, 0]
"""What stands for a part that has no value, such as a division by zero, where a lazy operator may pass it by."""

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_TRUTHS = (*COMPARE_SIGNS.values(), "and", "or", "not", "is_pow2")
"""Operators that give a truth value."""
_INTEGERS = range(-(2**63), 2**63)


def fold(expression: Expression, constants: Mapping[str, Any]) -> Folded:
    """Return an expression as JSON in which only names without a known value are left.

    Args:
        expression: checked; a program evaluates what is left as :meth:`Expression.evaluate` does.
        constants: values of the names that are known: numbers, truth values, text.

    Raises:
        KernelError: its value is text, or it chooses between texts by what is not known.
    """
    try:
        return _json(_folded(expression.tree, constants))
    except _TextLeftError:
        raise KernelError(
            f"{expression.where or 'an expression'}: {expression.text!r} gives text for some sizes",
            "write it with numbers: a program that calls a winner knows sizes only",
        ) from None


class _TextLeftError(Exception):
    """Text is left where a program needs a number."""


@dataclass(frozen=True)
class _Constant:
    """A part whose value is known."""

    value: Any


_Part = _Constant | str | list[Any]
"""A part as JSON, or its value: so that a text is not taken for a name."""


def _folded(node: ast.expr, constants: Mapping[str, Any]) -> _Part:
    if names_in(node) - FUNCTION_NAMES <= constants.keys():
        return _value(node, constants)

    def run(child: ast.expr) -> _Part:
        return _folded(child, constants)

    match node:
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=left, op=op, right=right):
            return _operation(_BINARY[type(op)], run(left), run(right))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return run(operand)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ["not", _truth(run(operand))]
        case ast.UnaryOp(operand=operand):
            return _operation("neg", run(operand))
        case ast.BoolOp(op=op, values=values):
            return _joined(map(run, values), every=isinstance(op, ast.And))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            condition = run(test)
            if isinstance(condition, _Constant):
                return run(body if condition.value else orelse)
            return ["if", condition, _json(run(body)), _json(run(orelse))]
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[choices]):
            assert isinstance(choices, ast.List | ast.Tuple)
            one = run(left)
            contained = _joined((_compared(one, ast.Eq(), run(item)) for item in choices.elts), every=False)
            return contained if isinstance(op, ast.In) else _negated(contained)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = [run(side) for side in (left, *comparators)]
            pairs = zip(sides, ops, sides[1:], strict=False)
            return _joined((_compared(a, op, b) for a, op, b in pairs), every=True)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _operation(name, *map(run, arguments))
    raise AssertionError(node)


def _value(node: ast.expr, constants: Mapping[str, Any]) -> _Part:
    """Return the value of a part that needs nothing unknown."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of NumPy's logarithm of zero
            return _Constant(evaluate(node, constants, None))
    except (ExpressionError, ArithmeticError, TypeError, ValueError):
        return NO_VALUE


def _operation(operator: str, *operands: _Part) -> _Part:
    """Return an operator with numbers; with text it has no value."""
    if any(isinstance(part, _Constant) and isinstance(part.value, str) for part in operands):
        return NO_VALUE
    return [operator, *map(_json, operands)]


def _compared(left: _Part, op: ast.cmpop, right: _Part) -> _Part:
    if isinstance(left, _Constant) and isinstance(right, _Constant):
        try:
            return _Constant(COMPARE[type(op)](left.value, right.value))
        except TypeError:
            return NO_VALUE
    texts = [part for part in (left, right) if isinstance(part, _Constant) and isinstance(part.value, str)]
    if texts and isinstance(op, ast.Eq | ast.NotEq):  # what is not known is a number
        return _Constant(isinstance(op, ast.NotEq))
    return _operation(COMPARE_SIGNS[type(op)], left, right)


def _joined(parts: Iterable[_Part], *, every: bool) -> _Part:
    """Return the conjunction or disjunction of parts, without those that decide nothing."""
    left: list[_Part] = []
    for part in parts:
        if not isinstance(part, _Constant):
            left.append(part)
        elif bool(part.value) is not every:  # what follows is not reached
            if not left:
                return _Constant(not every)
            left.append(_Constant(not every))
            break
    if not left:
        return _Constant(every)
    if len(left) == 1 and _is_truth(left[0]):
        return left[0]
    return ["and" if every else "or", *map(_truth, left)]


def _negated(part: _Part) -> _Part:
    return _Constant(not part.value) if isinstance(part, _Constant) else ["not", part]


def _truth(part: _Part) -> Folded:
    """Return a condition as JSON: text counts as Python counts it."""
    return bool(part.value) if isinstance(part, _Constant) else part


def _is_truth(part: _Part) -> bool:
    return isinstance(part, list) and part[0] in _TRUTHS


def _json(part: _Part) -> Folded:
    if not isinstance(part, _Constant):
        return part
    value = part.value
    if isinstance(value, str):
        raise _TextLeftError
    if isinstance(value, int):
        return value if value in _INTEGERS else float(value)
    return float(value) if math.isfinite(value) else NO_VALUE
