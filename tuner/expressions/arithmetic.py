"""Arithmetic from TOML files and the command line, evaluated without ever running it as Python.

An expression is parsed once, checked against a whitelist of syntax, and can then be evaluated for one set of
names or, with NumPy arrays as values, for a million configurations at once. ``and``, ``or`` and ``a if c else b``
are lazy in the first case and element-wise in the second. A constraint that divides by
zero does not hold in either: what NumPy makes of it, zero or infinity, is not used.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tuner.errors import DivisionByZeroError, ExpressionError
from tuner.expressions.dtypes import ITEMSIZE
from tuner.expressions.elementwise import parse_element

MAX_LENGTH = 2000
MAX_DEPTH = 100
"""Of what is nested: evaluating it takes a few Python calls for each level, of which there are a thousand at most."""
MAX_EXPONENT = 64
MAX_BITS = 256
"""Integers beyond this size are refused, so that a hostile expression cannot eat the memory."""


def ceil_div(a: Any, b: Any) -> Any:
    """Divide and round up."""
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
_OF_ELEMENTS = ("uses", "operations")
"""Functions of an element expression, which they get by the name of its option."""
_DIVIDING = ("ceil_div", "round_up")
"""Functions that divide by their second argument."""
_SCALAR_ONLY: dict[str, Callable[..., Any]] = {"min": min, "max": max}
_VECTOR_ONLY: dict[str, Callable[..., Any]] = {
    "min": lambda *xs: functools.reduce(np.minimum, xs),
    "max": lambda *xs: functools.reduce(np.maximum, xs),
}
FUNCTION_NAMES = frozenset(_FUNCTIONS) | frozenset(_SCALAR_ONLY)

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
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
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class _Many:
    """An evaluation for many configurations at once."""

    def __init__(self) -> None:
        self.divided_by_zero: Any = np.False_
        """Where a division by zero was asked for."""

    def divisor(self, values: Any, wrong: Any) -> Any:
        """Note where a divisor cannot be one, and give values that can: what comes of them is not used."""
        if not np.any(wrong):
            return values
        self.divided_by_zero = self.divided_by_zero | wrong
        return np.where(wrong, 1, values)


class Expression:
    """A checked expression.

    Args:
        text: the source, such as ``"stages * block_m * itemsize(input) <= shared_bytes_optin"``.
        where: the file and key that say it, for the errors of evaluating it.

    Raises:
        ExpressionError: the text is not an expression, or uses syntax outside the whitelist.
    """

    def __init__(self, text: str, where: str = "") -> None:
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"expression of {len(text)} characters", f"keep it under {MAX_LENGTH}")
        self.text = text.strip()
        self.where = " ".join(where.split())
        try:
            self._body = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ExpressionError(f"cannot parse {text!r}: {getattr(error, 'msg', error)}") from None
        names: set[str] = set()
        _check(self._body, names, self.text)
        self.names: frozenset[str] = frozenset(names)
        """The names it needs a value for."""
        self.element_queries: tuple[tuple[str, str | None], ...] = tuple(_asked(self._body))
        """Pairs of an option that must be an element expression, and the name that ``uses`` looks for in it."""

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Return the value for one set of names.

        Raises:
            ExpressionError: a name has no value, or the arithmetic fails (division by zero, mixed types).
        """
        return self._run(names, None)

    def number(self, names: Mapping[str, Any]) -> float:
        """Return a value that must be a finite number.

        Raises:
            ExpressionError: it has no value, or is something else.
        """
        value = self.evaluate(names)
        if isinstance(value, str) or not math.isfinite(value):
            raise ExpressionError(self._located(f"{self.text} = {value}"), "it must be a number")
        return float(value)

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Return whether a constraint holds for one set of names: not if it divides by zero.

        Raises:
            ExpressionError: a name has no value, or the arithmetic fails in another way.
        """
        try:
            return bool(self.evaluate(names))
        except DivisionByZeroError:
            return False

    def holds_many(self, names: Mapping[str, Any]) -> Any:
        """Say for which of many configurations a constraint holds, as :meth:`holds` does for one.

        Args:
            names: NumPy arrays of equal length stand for what varies.
        """
        many = _Many()
        with np.errstate(all="ignore"):
            return np.asarray(self._run(names, many), dtype=bool) & ~many.divided_by_zero

    def _run(self, names: Mapping[str, Any], many: _Many | None) -> Any:
        missing = self.names - names.keys()
        if missing:
            raise ExpressionError(
                self._located(f"unknown name {', '.join(sorted(missing))} in {self.text!r}"),
                f"known here: {', '.join(sorted(names))}",
            )
        try:
            return _evaluate(self._body, names, many)
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
def parse(text: str, where: str = "") -> Expression:
    """Return the :class:`Expression` of a text, parsed once however often it is asked for in one place."""
    return Expression(text, where)


def _check(node: ast.AST, names: set[str], text: str, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ExpressionError(f"{text[:40]!r}... is nested too deeply", "split or simplify it")
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return
        case ast.Name(id=name):
            if name in FUNCTION_NAMES:
                raise ExpressionError(f"{name!r} is a function in {text!r}", f"write {name}(...)")
            names.add(name)
            return
        case ast.BinOp(op=op) if type(op) in _BINARY or isinstance(op, ast.Pow):
            children: list[ast.AST] = [node.left, node.right]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not()):
            children = [node.operand]
        case ast.BoolOp():
            children = list(node.values)
        case ast.IfExp():
            children = [node.test, node.body, node.orelse]
        case ast.Compare(ops=ops) if all(type(op) in _COMPARE for op in ops):
            children = [node.left, *node.comparators]
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.List() | ast.Tuple() as choices]):
            children = [node.left, *choices.elts]
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _OF_ELEMENTS:
            if _element_call(node) is None:
                raise ExpressionError(
                    f"{ast.unparse(node)!r} in {text!r}", "write uses(option, 'tensor') or operations(option)"
                )
            children = list(node.args)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTION_NAMES and node.args:
            children = list(node.args)
        case _:
            part = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise ExpressionError(
                f"{part!r} is not allowed in {text!r}",
                f"use arithmetic, comparisons, and/or/not, if-else and {', '.join(sorted(FUNCTION_NAMES))}",
            )
    for child in children:
        _check(child, names, text, depth + 1)


def _element_call(node: ast.Call) -> tuple[str, str | None] | None:
    match node.func, node.args:
        case ast.Name(id="uses"), [ast.Name(id=option), ast.Constant(value=str() as name)]:
            return option, name
        case ast.Name(id="operations"), [ast.Name(id=option)]:
            return option, None
    return None


def _asked(body: ast.AST) -> Iterator[tuple[str, str | None]]:
    for node in ast.walk(body):
        if isinstance(node, ast.Call) and (found := _element_call(node)) is not None:
            yield found


def _evaluate(node: ast.AST, names: Mapping[str, Any], many: _Many | None) -> Any:
    def run(child: ast.AST) -> Any:
        return _evaluate(child, names, many)

    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.BinOp(op=ast.Pow()):
            return _arithmetic(_power, run(node.left), run(node.right), many)
        case ast.BinOp():
            return _arithmetic(_BINARY[type(node.op)], run(node.left), run(node.right), many)
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


def _combine(node: ast.BoolOp, names: Mapping[str, Any], many: _Many) -> Any:
    """Evaluate ``and`` or ``or``: a division by zero counts only where the part is reached."""
    stops = isinstance(node.op, ast.Or)
    result: Any = np.bool_(not stops)
    for child in node.values:
        inner = _Many()
        value = _evaluate(child, names, inner)
        many.divided_by_zero = many.divided_by_zero | (inner.divided_by_zero & (result != stops))
        result = np.logical_or(result, value) if stops else np.logical_and(result, value)
    return result


def _choose(node: ast.IfExp, names: Mapping[str, Any], many: _Many) -> Any:
    """Evaluate ``a if c else b``: a division by zero counts only where the branch is taken."""
    taken = _evaluate(node.test, names, many)
    yes, no = _Many(), _Many()
    value = np.where(taken, _evaluate(node.body, names, yes), _evaluate(node.orelse, names, no))
    many.divided_by_zero = many.divided_by_zero | np.where(taken, yes.divided_by_zero, no.divided_by_zero)
    return value


def _compare(node: ast.Compare, run: Callable[[ast.AST], Any], vector: bool) -> Any:
    left = run(node.left)
    if isinstance(node.ops[0], ast.In | ast.NotIn):
        choices = node.comparators[0]
        assert isinstance(choices, ast.List | ast.Tuple)
        found = functools.reduce(operator.or_, [left == run(child) for child in choices.elts], False)
        if isinstance(node.ops[0], ast.In):
            return found
        return np.logical_not(found) if vector else not found
    result: Any = True
    for op, child in zip(node.ops, node.comparators, strict=True):
        right = run(child)
        holds = _COMPARE[type(op)](left, right)
        result = np.logical_and(result, holds) if vector else (result and holds)
        left = right
    return result


def _power(base: Any, exponent: Any) -> Any:
    if np.any(np.abs(exponent) > MAX_EXPONENT):
        raise ExpressionError(f"exponent above {MAX_EXPONENT}", "use a smaller one")
    return base**exponent


def _arithmetic(operation: Callable[[Any, Any], Any], left: Any, right: Any, many: _Many | None) -> Any:
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
