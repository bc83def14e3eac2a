"""Arithmetic from TOML files and the command line, evaluated without ever running it as Python.

An expression is parsed once, checked against a whitelist of syntax, and can then be evaluated for one set of
names or, with NumPy arrays as values, for a million configurations at once. ``and``, ``or`` and ``a if c else b``
are lazy in the first case and element-wise in the second.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tuner.elements import parse_element
from tuner.errors import ExpressionError

ITEMSIZE = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "uint32": 4,
    "int8": 1,
    "uint8": 1,
}
"""Bytes of one element of each dtype that a tensor may have."""

MAX_LENGTH = 2000
MAX_EXPONENT = 64
MAX_BITS = 256
"""Integers beyond this size are refused, so that a hostile expression cannot eat the memory."""


def ceil_div(a: Any, b: Any) -> Any:
    """Divide and round up."""
    return -(-a // b)


def round_up(a: Any, b: Any) -> Any:
    """Give the smallest multiple of ``b`` that is at least ``a``."""
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
    """Give 1 where an element expression uses a name, else 0."""
    return int(str(name) in parse_element(str(element)).names)


def operations(element: Any) -> int:
    """Give the number of arithmetic operations of an element expression."""
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
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Expression:
    """A checked expression.

    Args:
        text: the source, such as ``"stages * block_m * itemsize(input) <= shared_bytes_optin"``.

    Raises:
        ExpressionError: the text is not an expression, or uses syntax outside the whitelist.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"expression of {len(text)} characters", f"keep it under {MAX_LENGTH}")
        self.text = text.strip()
        try:
            self._body = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ExpressionError(f"cannot parse {text!r}: {getattr(error, 'msg', error)}") from None
        names: set[str] = set()
        _check(self._body, names, self.text)
        self.names: frozenset[str] = frozenset(names)
        """The names it needs a value for."""
        self.asks_of_elements: tuple[tuple[str, str | None], ...] = tuple(_asked(self._body))
        """Pairs of an option that must be an element expression, and the name that ``uses`` looks for in it."""

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Give the value for one set of names.

        Raises:
            ExpressionError: a name has no value, or the arithmetic fails (division by zero, mixed types).
        """
        return self._run(names, vector=False)

    def evaluate_many(self, names: Mapping[str, Any]) -> Any:
        """Give the values for many configurations: NumPy arrays of equal length stand for what varies."""
        with np.errstate(all="ignore"):
            return self._run(names, vector=True)

    def _run(self, names: Mapping[str, Any], *, vector: bool) -> Any:
        missing = self.names - names.keys()
        if missing:
            raise ExpressionError(
                f"unknown name {', '.join(sorted(missing))} in {self.text!r}",
                f"known here: {', '.join(sorted(names))}",
            )
        try:
            return _evaluate(self._body, names, vector)
        except (ZeroDivisionError, TypeError, ValueError, OverflowError) as error:
            raise ExpressionError(f"{self.text!r} has no value here: {error}") from None


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Give the :class:`Expression` of a text, parsed once however often it is asked for."""
    return Expression(text)


def _check(node: ast.AST, names: set[str], text: str) -> None:
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
        _check(child, names, text)


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


def _evaluate(node: ast.AST, names: Mapping[str, Any], vector: bool) -> Any:
    def run(child: ast.AST) -> Any:
        return _evaluate(child, names, vector)

    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.BinOp(op=ast.Pow()):
            return _arithmetic(_power, run(node.left), run(node.right))
        case ast.BinOp():
            return _arithmetic(_BINARY[type(node.op)], run(node.left), run(node.right))
        case ast.UnaryOp(op=ast.Not()):
            return np.logical_not(run(node.operand)) if vector else not run(node.operand)
        case ast.UnaryOp():
            value = run(node.operand)
            return -value if isinstance(node.op, ast.USub) else +value
        case ast.BoolOp(op=op):
            if vector:
                combine = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return functools.reduce(combine, (run(child) for child in node.values))
            if isinstance(op, ast.And):
                return all(run(child) for child in node.values)
            return any(run(child) for child in node.values)
        case ast.IfExp():
            if vector:
                return np.where(run(node.test), run(node.body), run(node.orelse))
            return run(node.body) if run(node.test) else run(node.orelse)
        case ast.Compare():
            return _compare(node, run, vector)
        case ast.Call(func=ast.Name(id=name)):
            table = _VECTOR_ONLY if vector else _SCALAR_ONLY
            return (table.get(name) or _FUNCTIONS[name])(*(run(child) for child in node.args))
    raise AssertionError(node)


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
        raise ExpressionError(f"exponent above {MAX_EXPONENT}")
    return base**exponent


def _arithmetic(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if isinstance(left, str) or isinstance(right, str):
        raise ExpressionError("text cannot be added, repeated or formatted")
    value = operation(left, right)
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ExpressionError("a number grows without bound")
    return value
