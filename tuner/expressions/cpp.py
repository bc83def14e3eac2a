"""Expressions of a kernel's file as C++: conditions over sizes that are known only when a program runs.

Everything else in them (parameters, dtypes, options, the device's limits) has a value, so that its part is worked out
here. What remains is integer arithmetic, written as calls of the functions that the header defines
(``templates/export``): they divide as Python does, and note where a result does not exist or does not fit.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tuner.core.errors import ExpressionError
from tuner.expressions.arithmetic import Expression
from tuner.expressions.evaluation import COMPARE_SIGNS, FUNCTION_NAMES, evaluate
from tuner.expressions.parsing import names_in

_CALLS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floor_div",
    ast.Mod: "mod",
}
MAX_INTEGER = (1 << 63) - 1


class Untranslatable(Exception):  # noqa: N818 - a finding; the caller does without the condition
    """An expression that C++ integers cannot say."""


def condition(expression: Expression, constants: Mapping[str, Any], variable: Callable[[str], str]) -> str:
    """Return a condition as a C++ expression of type ``bool``; ``true`` or ``false`` where nothing is left to ask.

    Args:
        expression: the condition.
        constants: the values of the names that are known.
        variable: returns the C++ expression, of type ``long long``, for any other name.

    Raises:
        Untranslatable: it calculates with fractions, powers or texts of what is not known.
    """
    return _Writer(constants, variable).truth(expression.tree)


def integer(expression: Expression, constants: Mapping[str, Any], variable: Callable[[str], str]) -> str:
    """Return an expression as a C++ expression of type ``long long``; arguments and errors as of :func:`condition`."""
    return _Writer(constants, variable).number(expression.tree)


def outcomes(expression: Expression, constants: Mapping[str, Any]) -> list[int]:
    """Return the integers of which an expression is one, whatever the unknown names are.

    Raises:
        Untranslatable: it is more than a choice among known integers.
    """
    return _Writer(constants, _unknown).outcomes(expression.tree)


def positive(expression: Expression, constants: Mapping[str, Any]) -> bool:
    """Return whether an expression is seen to be at least 1 where every unknown name is."""
    return _Writer(constants, _unknown).positive(expression.tree)


def _unknown(name: str) -> str:
    raise Untranslatable(name)


class _Writer:
    def __init__(self, constants: Mapping[str, Any], variable: Callable[[str], str]) -> None:
        self._constants = constants
        self._variable = variable

    def truth(self, node: ast.AST) -> str:
        if (value := self._value(node)) is not None:
            return "true" if value else "false"
        match node:
            case ast.BoolOp(op=op, values=values):
                return joined(map(self.truth, values), every=isinstance(op, ast.And))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return negated(self.truth(operand))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return chosen(self.truth(test), lambda: self.truth(body), lambda: self.truth(orelse))
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                sides = [left, *comparators]
                pairs = zip(sides, ops, comparators, strict=False)
                return f"({' && '.join(self._compared(a, op, b) for a, op, b in pairs)})"
            case ast.Call(func=ast.Name(id="is_pow2"), args=[argument]):
                return f"is_pow2({self.number(argument)})"
        return f"({self.number(node)} != 0)"

    def number(self, node: ast.AST) -> str:
        if (value := self._value(node)) is not None:
            return _literal(value)
        match node:
            case ast.Name(id=name):
                return self._variable(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _CALLS:
                return f"{_CALLS[type(op)]}({self.number(left)}, {self.number(right)}, fine)"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"sub(0, {self.number(operand)}, fine)"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return chosen(self.truth(test), lambda: self.number(body), lambda: self.number(orelse))
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=[first, *others]):
                text = self.number(first)
                for other in others:
                    text = f"{name}imum({text}, {self.number(other)})"
                return text
            case ast.Call(func=ast.Name(id="ceil_div" | "round_up" as name), args=[a, b]):
                return f"{name}({self.number(a)}, {self.number(b)}, fine)"
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return f"({self.truth(node)} ? 1LL : 0LL)"
        raise Untranslatable(ast.unparse(node))

    def outcomes(self, node: ast.AST) -> list[int]:
        value = self._value(node)
        if value is None and isinstance(node, ast.IfExp):
            return [*self.outcomes(node.body), *self.outcomes(node.orelse)]
        if not isinstance(value, int):
            raise Untranslatable(ast.unparse(node))
        return [int(value)]

    def positive(self, node: ast.AST) -> bool:
        if (value := self._value(node)) is not None:
            return isinstance(value, int) and value >= 1
        match node:
            case ast.Name():
                return True
            case ast.BinOp(left=left, op=ast.Add() | ast.Mult(), right=right):
                return self.positive(left) and self.positive(right)
            case ast.IfExp(body=body, orelse=orelse):
                return self.positive(body) and self.positive(orelse)
            case ast.Call(func=ast.Name(id="max"), args=args):
                return any(map(self.positive, args))
            case ast.Call(func=ast.Name(id="min" | "ceil_div" | "round_up"), args=args):
                return all(map(self.positive, args))
        return False

    def _compared(self, left: ast.AST, op: ast.cmpop, right: ast.AST) -> str:
        if isinstance(right, (ast.List, ast.Tuple)):
            any_of = [f"{self.number(left)} == {self.number(item)}" for item in right.elts] or ["false"]
            return f"{'!' * isinstance(op, ast.NotIn)}({' || '.join(any_of)})"
        return f"{self.number(left)} {COMPARE_SIGNS[type(op)]} {self.number(right)}"

    def _value(self, node: ast.AST) -> Any:
        """Return the value of what needs nothing that has no value; None for anything else."""
        if not names_in(node) - FUNCTION_NAMES <= self._constants.keys():
            return None
        try:
            return evaluate(node, self._constants, None)
        except (ExpressionError, ArithmeticError, TypeError, ValueError) as error:
            raise Untranslatable(f"{ast.unparse(node)}: {error}") from None


def negated(text: str) -> str:
    """Return the opposite of a condition."""
    return {"true": "false", "false": "true"}.get(text, f"!{text}")


def chosen(test: str, body: Callable[[], str], orelse: Callable[[], str]) -> str:
    """Return one of two expressions; where the condition is decided, the other is not looked at."""
    if test in ("true", "false"):
        return body() if test == "true" else orelse()
    return f"({test} ? {body()} : {orelse()})"


def joined(texts: Iterable[str], *, every: bool) -> str:
    """Return the conjunction or disjunction of conditions, without those that decide nothing."""
    neutral, deciding = ("true", "false") if every else ("false", "true")
    left: list[str] = []
    for text in texts:
        if text == deciding:  # what follows is not looked at, as in Python
            left.append(text)
            break
        if text != neutral:
            left.append(text)
    return f"({(' && ' if every else ' || ').join(left)})" if len(left) > 1 else (left or [neutral])[0]


def _literal(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or abs(value) > MAX_INTEGER:
        raise Untranslatable(repr(value))
    return f"{int(value)}LL"
