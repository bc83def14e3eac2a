"""Expressions of a kernel's file as those of a bundle: names with a known value are worked in, and what is left are
numbers and operators that need no Python (``docs/bundles.md`` lists them)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.core.errors import ExpressionError, KernelError
from tuner.expressions.arithmetic import WIDE
from tuner.runtime.expressions import COMPARISONS, MAX_INTEGER, MIN_INTEGER, Expression, Tree

NO_VALUE = ("//", 1, 0)
"""What stands for a part that has no value, such as a division by zero, where a lazy operator may pass it by."""
_TRUTHS = (*COMPARISONS, "and", "or", "not", "is_pow2")
"""Operators that give a truth value."""


def fold(expression: Expression, constants: Mapping[str, Any]) -> Expression:
    """Return an expression in which only names without a known value are left, with its text and place for messages.

    Args:
        expression: of a kernel's file.
        constants: values of the names that are known: numbers, truth values, text.

    Raises:
        KernelError: its value is text, or it chooses between texts by what is not known.
    """
    try:
        tree = _written(_folded(expression.tree, constants))
    except _TextLeftError:
        raise KernelError(
            f"{expression.where or 'an expression'}: {expression.text!r} gives text for some sizes",
            "write it with numbers: a program that calls a winner knows sizes only",
        ) from None
    return Expression(tree, expression.text, expression.where)


class _TextLeftError(Exception):
    """Text is left where a program needs a number."""


@dataclass(frozen=True)
class _Constant:
    """A part whose value is known."""

    value: Any


_Part = _Constant | str | tuple[Any, ...]
"""A part as a tree, or its value: so that a text is not taken for a name."""


def _folded(tree: Tree, constants: Mapping[str, Any]) -> _Part:
    if isinstance(tree, str):
        return _Constant(constants[tree]) if tree in constants else tree
    if not isinstance(tree, tuple):
        return _Constant(tree)
    name, operands = str(tree[0]), tree[1:]
    if name == "text":
        return _Constant(operands[0])
    parts = (_folded(operand, constants) for operand in operands)
    match name:
        case "and" | "or":
            return _joined(parts, every=name == "and")
        case "if":
            test, then, otherwise = operands
            condition = _folded(test, constants)
            if isinstance(condition, _Constant):
                return _folded(then if condition.value else otherwise, constants)
            if condition == NO_VALUE:
                return NO_VALUE
            branches = (_written(_folded(branch, constants)) for branch in (then, otherwise))
            return name, condition, *branches
    return _operation(name, *parts)


def _operation(name: str, *parts: _Part) -> _Part:
    """Return an operator that needs all of its operands; text has no value in it, unless it is compared."""
    if NO_VALUE in parts:
        return NO_VALUE
    if all(isinstance(part, _Constant) for part in parts):
        try:
            return _Constant(WIDE.apply(name, *(part.value for part in parts if isinstance(part, _Constant))))
        except (ExpressionError, ArithmeticError, TypeError, ValueError):
            return NO_VALUE
    if name == "not":
        return name, *map(_truth, parts)
    if any(isinstance(part, _Constant) and isinstance(part.value, str) for part in parts):
        if name in ("==", "!="):  # what is not known is a number
            return _Constant(name == "!=")
        return NO_VALUE
    return name, *map(_written, parts)


def _joined(parts: Iterable[_Part], *, every: bool) -> _Part:
    """Return the conjunction or disjunction of parts, without those that decide nothing."""
    left: list[_Part] = []
    for part in parts:
        if not isinstance(part, _Constant):
            if part == NO_VALUE and not left:
                return NO_VALUE
            left.append(part)
        elif bool(part.value) is not every:  # what follows is not reached
            if not left:
                return _Constant(not every)
            left.append(_Constant(not every))
            break
    if not left:
        return _Constant(every)
    if len(left) == 1 and isinstance(left[0], tuple) and left[0][0] in _TRUTHS:
        return left[0]
    return "and" if every else "or", *map(_truth, left)


def _truth(part: _Part) -> Tree:
    """Return a condition as a tree: text counts as Python counts it."""
    return bool(part.value) if isinstance(part, _Constant) else part


def _written(part: _Part) -> Tree:
    if not isinstance(part, _Constant):
        return part
    value = part.value
    if isinstance(value, str):
        raise _TextLeftError
    if isinstance(value, int):
        return value if MIN_INTEGER <= value <= MAX_INTEGER else float(value)
    return float(value) if math.isfinite(value) else NO_VALUE
