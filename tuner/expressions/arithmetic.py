"""Arithmetic expressions of TOML files and the command line, evaluated without running them as Python.

An expression is parsed once and checked against a whitelist of syntax. It can be evaluated for one set of names or,
with NumPy arrays as values, for a million configurations at once. ``and``, ``or`` and ``a if c else b`` are lazy in the
first case and element-wise in the second; in both, a constraint that divides by zero is false.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.core.errors import DivisionByZeroError, ExpressionError, TunerError, suggestion
from tuner.expressions.evaluation import BINARY, COMPARE, FUNCTION_NAMES, Evaluator, Vectorized, evaluator
from tuner.expressions.parsing import parse_tree

MAX_LENGTH = 2000
OPERATORS = "write and, or, not, ==, !=, <=, //, %, and A if condition else B"
_ELEMENT_FUNCTIONS = ("uses", "operations")
"""Functions whose first argument is the name of an option that is an element expression."""
_ElementQuery = tuple[str, str | None]


class Expression:
    """A checked expression.

    Args:
        text: the source, such as ``"stages * block_m * itemsize(input) <= shared_bytes_optin"``.
        where: its file and key, for errors.
        written: the source with the names of definitions, if it had any; for people.

    Raises:
        ExpressionError: the text is no expression, or uses syntax outside the whitelist.
    """

    def __init__(self, text: str, where: str = "", written: str = "") -> None:
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"expression of {len(text)} characters", f"keep it under {MAX_LENGTH}")
        self.text = text.strip()
        self.written = written or self.text
        self.where = " ".join(where.split())
        self._checked = _checked(self.text)
        self.names = self._checked.names
        """The names that need a value."""
        self.element_queries = self._checked.element_queries
        """Each use of an option that must be an element expression, with the name that ``uses`` looks for, or None."""

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    @property
    def tree(self) -> ast.expr:
        """The checked syntax tree."""
        return self._checked.tree

    @property
    def canonical(self) -> str:
        """The text without what does not count: white space, and parentheses that change nothing."""
        return self._checked.canonical

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Return the value for one set of names.

        Raises:
            ExpressionError: a name has no value, or the arithmetic fails (division by zero, mixed types).
        """
        return self._run(names, None)

    def number(self, names: Mapping[str, Any]) -> float:
        """Return the value as a finite number.

        Raises:
            ExpressionError: it has no value, or the value is something else.
        """
        value = self.evaluate(names)
        if isinstance(value, str) or not math.isfinite(value):
            raise ExpressionError(self._located(f"{self.text} = {value}"), "it must be a number")
        return float(value)

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Return whether a constraint is true for one set of names; False if it divides by zero.

        Raises:
            ExpressionError: a name has no value, or the arithmetic fails in another way.
        """
        try:
            return bool(self.evaluate(names))
        except DivisionByZeroError:
            return False

    def holds_many(self, names: Mapping[str, Any]) -> Any:
        """Return for each of many configurations whether a constraint is true, as :meth:`holds` does for one.

        Args:
            names: values; NumPy arrays of equal length for those that vary.
        """
        many = Vectorized()
        with np.errstate(all="ignore"):
            return np.asarray(self._run(names, many), dtype=bool) & ~many.divided_by_zero

    def numbers(self, names: Mapping[str, Any]) -> Any:
        """Return the values for many configurations, NaN where one divides by zero; names as for :meth:`holds_many`."""
        many = Vectorized()
        with np.errstate(all="ignore"):
            values = np.asarray(self._run(names, many), dtype=np.float64)
        return np.where(many.divided_by_zero, np.nan, values)

    def _run(self, names: Mapping[str, Any], many: Vectorized | None) -> Any:
        if not names.keys() >= self.names:
            missing = self.names - names.keys()
            raise ExpressionError(
                self._located(f"unknown name {', '.join(sorted(missing))} in {self.text!r}"),
                f"known here: {', '.join(sorted(names))}",
            )
        try:
            return self._checked.evaluate(names, many)
        except ExpressionError as error:
            raise ExpressionError(self._no_value(error.problem), error.remedy) from None
        except ZeroDivisionError as error:
            raise DivisionByZeroError(
                self._no_value(error),
                "write a // b if b != 0 else ..., or leave out the values that make it 0",
            ) from None
        except TypeError as error:
            raise ExpressionError(
                self._no_value(error if many is None else "text and numbers are mixed"),
                "calculate with numbers, and compare numbers with numbers, text with text",
            ) from None
        except (ValueError, OverflowError) as error:
            raise ExpressionError(self._no_value(error), "use smaller numbers, or positive ones") from None

    def _no_value(self, why: object) -> str:
        return self._located(f"{self.text!r} has no value here: {str(why).rstrip('.')}")

    def _located(self, problem: str) -> str:
        return f"{self.where}: {problem}" if self.where else problem


@functools.lru_cache(maxsize=4096)
def parse(text: str, where: str = "", written: str = "") -> Expression:
    """Return the :class:`Expression` of a text; cached."""
    return Expression(text, where, written)


def whole_number(text: str) -> int | None:
    """Return the whole number that a text stands for: ``4096``, ``2**20`` or ``2^20``; None for another text."""
    try:
        value = parse(text.replace("^", "**")).evaluate({})
    except TunerError:
        return None
    if isinstance(value, bool) or not (
        isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    ):
        return None
    return int(value)


@dataclass(frozen=True)
class _Checked:
    tree: ast.expr
    names: frozenset[str]
    element_queries: tuple[_ElementQuery, ...]

    @functools.cached_property
    def canonical(self) -> str:
        return ast.unparse(self.tree)

    @functools.cached_property
    def evaluate(self) -> Evaluator:
        return evaluator(self.tree)


@functools.lru_cache(maxsize=4096)
def _checked(text: str) -> _Checked:
    """Return what is known of a text: the same one stands in many places, such as in variants that are alike."""
    tree, names, queries = parse_tree(text, remedy=OPERATORS), set[str](), list[_ElementQuery]()
    _check(tree, names, queries, text)
    return _Checked(tree, frozenset(names), tuple(queries))


def _check(node: ast.AST, names: set[str], queries: list[_ElementQuery], text: str) -> None:
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return
        case ast.Name(id=name):
            if name in FUNCTION_NAMES:
                raise ExpressionError(f"{name!r} is a function in {text!r}", f"write {name}(...)")
            names.add(name)
            return
        case ast.BinOp(op=op) if type(op) in BINARY or isinstance(op, ast.Pow):
            children: list[ast.AST] = [node.left, node.right]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not()):
            children = [node.operand]
        case ast.BoolOp():
            children = list(node.values)
        case ast.IfExp():
            children = [node.test, node.body, node.orelse]
        case ast.Compare(ops=ops) if all(type(op) in COMPARE for op in ops):
            children = [node.left, *node.comparators]
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.List() | ast.Tuple() as choices]):
            children = [node.left, *choices.elts]
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _ELEMENT_FUNCTIONS:
            if (query := _element_call(node)) is None:
                raise ExpressionError(
                    f"{ast.unparse(node)!r} in {text!r}", "write uses(option, 'tensor') or operations(option)"
                )
            queries.append(query)
            children = list(node.args)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTION_NAMES and node.args:
            children = list(node.args)
        case ast.Call(func=ast.Name(id=name)) if name not in FUNCTION_NAMES:
            remedy = suggestion(name, sorted(FUNCTION_NAMES))
            raise ExpressionError(f"there is no function {name!r} for {text!r}", remedy)
        case _:
            part = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise ExpressionError(
                f"{part!r} is not allowed in {text!r}",
                f"use arithmetic, comparisons, and/or/not, if-else and {', '.join(sorted(FUNCTION_NAMES))}",
            )
    for child in children:
        _check(child, names, queries, text)


def _element_call(node: ast.Call) -> _ElementQuery | None:
    match node.func, node.args:
        case ast.Name(id="uses"), [ast.Name(id=option), ast.Constant(value=str() as name)]:
            return option, name
        case ast.Name(id="operations"), [ast.Name(id=option)]:
            return option, None
    return None
