"""Arithmetic expressions of TOML files and the command line, evaluated without running them as Python.

An expression is parsed once, checked against a whitelist of syntax, and becomes the tree that bundles have, too
(``tuner.runtime.expressions``). It can be evaluated for one set of names or, with NumPy arrays as values, for a million
configurations at once. ``and``, ``or`` and ``a if c else b`` are lazy in the first case and element-wise in the second;
in both, a constraint that divides by zero is false.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.core.errors import DivisionByZeroError, ExpressionError, TunerError, suggestion
from tuner.expressions.columns import Columns
from tuner.expressions.elementwise import parse_element
from tuner.expressions.parsing import BINARY_SIGNS, COMPARE_SIGNS, parse_tree
from tuner.expressions.python_forms import without_python_forms
from tuner.runtime import expressions as trees
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.expressions import Arithmetic, NoValueError, Tree

MAX_LENGTH = 2000
BITS = 257
"""Of the largest integers, with their sign: so that a hostile expression cannot eat the memory."""
MAX_SHIFT = 63
"""The power of two of a constant shift below it is an integer of a bundle, too."""
OPERATORS = "write and, or, not, ==, !=, <=, //, %, and A if condition else B"
_ElementQuery = tuple[str, str | None]
FAILURES = (ExpressionError, ArithmeticError, KeyError, TypeError, ValueError)
"""What may go wrong where an expression is evaluated."""


def uses(element: Any, name: Any) -> int:
    """Return 1 where an element expression uses a name or a function, else 0."""
    expression = parse_element(str(element))
    return int(str(name) in expression.names | expression.functions)


def operations(element: Any) -> int:
    """Return the number of arithmetic operations of an element expression."""
    return parse_element(str(element)).operations


def _itemsize(dtype: Any) -> int:
    try:
        return ITEMSIZE[str(dtype)]
    except KeyError:
        raise ExpressionError(
            f"itemsize({dtype!r}): not a dtype", f"use one of {', '.join(ITEMSIZE)}"
        ) from None


ELEMENT_FUNCTIONS: dict[str, Callable[..., Any]] = {"uses": uses, "operations": operations}
"""Functions whose first argument is the name of an option that is an element expression."""
FUNCTION_NAMES = frozenset(
    ("ceil_div", "round_up", "is_pow2", "itemsize", "abs", "log2", "min", "max", *ELEMENT_FUNCTIONS)
)
WIDE = Arithmetic(BITS, {"itemsize": _itemsize, **ELEMENT_FUNCTIONS})
"""The arithmetic of kernel files; that of bundles has 64 bits."""


class Expression(trees.Expression):
    """A checked expression of a kernel's file.

    Args:
        text: the source, such as ``"stages * block_m * itemsize(input) <= shared_bytes_optin"``.
        where: its file and key, for errors.
        written: the source with the names of definitions, if it had any; for people.

    Raises:
        ExpressionError: the text is no expression, or uses syntax outside the whitelist.
    """

    arithmetic = WIDE

    def __init__(self, text: str, where: str = "", written: str = "") -> None:
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"expression of {len(text)} characters", f"keep it under {MAX_LENGTH}")
        self._checked = _checked(text.strip())
        super().__init__(self._checked.tree, text.strip(), " ".join(where.split()))
        self.names = self._checked.names
        self.syntax = self._checked.syntax
        """The text as Python's syntax tree."""
        self.written = written or self.text
        self.element_queries = self._checked.element_queries
        """Each use of an option that must be an element expression, with the name that ``uses`` looks for, or None."""

    @property
    def canonical(self) -> str:
        """The text without what does not count: white space, and parentheses that change nothing."""
        return self._checked.canonical

    @functools.cached_property
    def _value(self) -> trees.Evaluator:
        return self._checked.value

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Return the value for one set of names.

        Raises:
            ExpressionError: a name has no value, or the arithmetic fails (division by zero, mixed types).
        """
        try:
            return self._value(names)
        except FAILURES as error:
            raise self._explained(error, names) from None

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
        values, divided_by_zero = self._many(names, np.bool_)
        return values & ~divided_by_zero

    def numbers(self, names: Mapping[str, Any]) -> Any:
        """Return the values for many configurations, NaN where one divides by zero; names as for :meth:`holds_many`."""
        values, divided_by_zero = self._many(names, np.float64)
        return np.where(divided_by_zero, np.nan, values)

    def _many(self, names: Mapping[str, Any], dtype: Any) -> tuple[Any, Any]:
        """Return values, and where they divide by zero."""
        columns = Columns(names, WIDE)
        try:
            with np.errstate(all="ignore"):
                values = np.asarray(columns.evaluate(self.tree), dtype=dtype)
        except TypeError:
            raise self._explained(TypeError("text and numbers are mixed"), names) from None
        except FAILURES as error:
            raise self._explained(error, names) from None
        return values, columns.divided_by_zero

    def _explained(self, error: Exception, names: Mapping[str, Any]) -> ExpressionError:
        """Return an error in the words of the kernel's file."""
        match error:
            case KeyError():
                missing = self.names - names.keys()
                return ExpressionError(
                    self._located(f"unknown name {', '.join(sorted(missing))} in {self.text!r}"),
                    f"known here: {', '.join(sorted(names))}",
                )
            case ExpressionError():
                return ExpressionError(self._no_value(error.problem), error.remedy)
            case NoValueError():
                return ExpressionError(self._no_value(error), error.remedy)
            case ZeroDivisionError():
                return DivisionByZeroError(
                    self._no_value(error),
                    "write a // b if b != 0 else ..., or leave out the values that make it 0",
                )
            case TypeError():
                remedy = "calculate with numbers, and compare numbers with numbers, text with text"
                return ExpressionError(self._no_value(error), remedy)
        return ExpressionError(self._no_value(error), "use smaller numbers, or positive ones")

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
    syntax: ast.expr
    tree: Tree
    names: frozenset[str]
    element_queries: tuple[_ElementQuery, ...]

    @functools.cached_property
    def canonical(self) -> str:
        return ast.unparse(self.syntax)

    @functools.cached_property
    def value(self) -> trees.Evaluator:
        return WIDE.evaluator(self.tree)


@functools.lru_cache(maxsize=4096)
def _checked(text: str) -> _Checked:
    """Return what is known of a text: the same one stands in many places, such as in variants that are alike."""
    syntax, reader = parse_tree(text, remedy=OPERATORS), _Reader(text)
    if "true" in text or "false" in text:
        syntax = _Truths().visit(syntax)
    try:
        tree = reader.tree(syntax)
    except ExpressionError:
        plain = without_python_forms(syntax)
        if ast.unparse(plain) == ast.unparse(syntax):
            raise
        syntax, reader = plain, _Reader(text)
        tree = reader.tree(syntax)
    return _Checked(syntax, tree, frozenset(reader.names), tuple(reader.queries))


class _Truths(ast.NodeTransformer):
    """Takes true and false as TOML, C++ and JSON have them."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(node.id == "true") if node.id in ("true", "false") else node


class _Reader:
    """Makes a tree of Python's syntax, as far as the whitelist has it; keeps the names that it finds."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.names: set[str] = set()
        self.queries: list[_ElementQuery] = []

    def tree(self, node: ast.AST) -> Tree:
        match node:
            case ast.Constant(value=str() as value):
                return "text", value
            case ast.Constant(value=bool() | int() | float() as value):
                return value
            case ast.Name(id=name):
                if name in FUNCTION_NAMES:
                    raise ExpressionError(f"{name!r} is a function in {self._text!r}", f"write {name}(...)")
                self.names.add(name)
                return name
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY_SIGNS:
                return BINARY_SIGNS[type(op)], self.tree(left), self.tree(right)
            case ast.BinOp(left=left, op=ast.LShift() | ast.RShift() as op, right=right):
                by = self.tree(right)
                power: Tree = 1 << by if isinstance(by, int) and 0 <= by < MAX_SHIFT else ("**", 2, by)
                return "*" if isinstance(op, ast.LShift) else "//", self.tree(left), power
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.tree(operand)
            case ast.UnaryOp(op=ast.USub() | ast.Not() as op, operand=operand):
                return "neg" if isinstance(op, ast.USub) else "not", self.tree(operand)
            case ast.BoolOp(op=op, values=values):
                return "and" if isinstance(op, ast.And) else "or", *map(self.tree, values)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return "if", *map(self.tree, (test, body, orelse))
            case ast.Compare(left=left, ops=ops, comparators=others) if all(
                type(op) in COMPARE_SIGNS for op in ops
            ):
                sides = [self.tree(side) for side in (left, *others)]
                pairs = [
                    (COMPARE_SIGNS[type(op)], a, b) for op, a, b in zip(ops, sides, sides[1:], strict=False)
                ]
                return pairs[0] if len(pairs) == 1 else ("and", *pairs)
            case ast.Compare(
                ops=[ast.In() | ast.NotIn() as op], comparators=[ast.List() | ast.Tuple() as of]
            ):
                one = self.tree(node.left)
                contained: Tree = ("or", *(("==", one, self.tree(item)) for item in of.elts))
                return contained if isinstance(op, ast.In) else ("not", contained)
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in ELEMENT_FUNCTIONS:
                if (query := _element_call(node)) is None:
                    raise ExpressionError(
                        f"{ast.unparse(node)!r} in {self._text!r}",
                        "write uses(option, 'tensor') or operations(option)",
                    )
                self.queries.append(query)
                return name, *map(self.tree, node.args)
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTION_NAMES and node.args:
                return name, *map(self.tree, node.args)
            case ast.Call(func=ast.Name(id=name)) if name not in FUNCTION_NAMES:
                remedy = suggestion(name, sorted(FUNCTION_NAMES))
                raise ExpressionError(f"there is no function {name!r} for {self._text!r}", remedy)
        part = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
        raise ExpressionError(
            f"{part!r} is not allowed in {self._text!r}",
            f"use arithmetic, comparisons, and/or/not, if-else and {', '.join(sorted(FUNCTION_NAMES))}",
        )


def _element_call(node: ast.Call) -> _ElementQuery | None:
    match node.func, node.args:
        case ast.Name(id="uses"), [ast.Name(id=option), ast.Constant(value=str() as name)]:
            return option, name
        case ast.Name(id="operations"), [ast.Name(id=option)]:
            return option, None
    return None
