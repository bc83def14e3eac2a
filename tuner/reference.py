"""The right answer on the host, and how far a kernel's answer may be from it.

A reference expression such as ``"alpha * x + y"`` or ``"a @ b"`` is evaluated twice in float64: for the values, and
for their magnitudes (every term made positive, every difference a sum). The magnitude is what rounding errors are
proportional to: a sum that cancels to nearly nothing still carries the errors of its large terms.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import ExpressionError, KernelError

Array = npt.NDArray[np.float64]

_ELEMENTWISE: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "sqrt": np.sqrt,
    "log": np.log,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
_REDUCTIONS: dict[str, Callable[..., Array]] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}
FUNCTIONS = (*_ELEMENTWISE, *_REDUCTIONS, "exp", "transpose", "where")

ARGUMENTS = {"maximum": 2, "minimum": 2, "where": 3}
"""Of the functions that take more than one."""
MAX_EXPONENT = 64

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Largest relative error of rounding to nearest."""
SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
"""Smallest positive number: an error of rounding below it has no relative bound."""


class ArrayExpression:
    """A NumPy expression over the kernel's tensors and scalars, parsed by a whitelist and never run as Python.

    Raises:
        ExpressionError: the text is not an expression, or uses something outside the whitelist.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._body = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            raise ExpressionError(
                f"cannot parse reference {text!r}: {getattr(error, 'msg', error)}"
            ) from None
        self.names = frozenset(self._check(self._body))
        """The tensors, scalars and sizes it needs."""

    def evaluate(self, names: Mapping[str, Any]) -> tuple[Array, Array]:
        """Give values and magnitudes in float64."""
        missing = self.names - names.keys()
        if missing:
            raise ExpressionError(f"unknown name {min(missing)} in reference {self.text!r}")
        with np.errstate(all="ignore"):
            try:
                value, magnitude = self._run(self._body, names)
            except (TypeError, ValueError, OverflowError) as error:
                raise ExpressionError(f"reference {self.text!r}: {error}") from None
        return np.asarray(value, np.float64), np.asarray(magnitude, np.float64)

    def compute(self, names: Mapping[str, Any]) -> Any:
        """Give the value alone, as plain NumPy computes it in the dtypes of the arrays."""
        with np.errstate(all="ignore"):
            try:
                return _plain(self._body, names)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise ExpressionError(f"reference {self.text!r}: {error}") from None

    def _check(self, node: ast.AST) -> set[str]:
        match node:
            case ast.Constant(value=int() | float()):
                return set()
            case ast.Name(id=name):
                return {name}
            case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int() | float() as exponent)) if (
                abs(exponent) <= MAX_EXPONENT
            ):
                return self._check(node.left)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.MatMult()):
                return self._check(node.left) | self._check(node.right)
            case ast.UnaryOp(op=ast.USub()):
                return self._check(node.operand)
            case ast.Compare(ops=[ast.Lt() | ast.Gt() | ast.LtE() | ast.GtE()], comparators=[right]):
                return self._check(node.left) | self._check(right)
            case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS and len(node.args) == ARGUMENTS.get(
                name, 1
            ):
                if all(
                    k.arg in ("axis", "keepdims") and isinstance(k.value, ast.Constant) for k in node.keywords
                ):
                    return set().union(*(self._check(child) for child in node.args))
        raise ExpressionError(
            f"{ast.unparse(node) if isinstance(node, ast.expr) else node!r} is not allowed in reference {self.text!r}",
            f"use + - * / @, ** with a number, comparisons and {', '.join(FUNCTIONS)}",
        )

    def _run(self, node: ast.AST, names: Mapping[str, Any]) -> tuple[Any, Any]:
        match node:
            case ast.Constant(value=int() | float() as value):
                return float(value), abs(float(value))
            case ast.Name(id=name):
                return names[name], np.abs(names[name])
            case ast.UnaryOp():
                value, magnitude = self._run(node.operand, names)
                return -value, magnitude
            case ast.BinOp():
                return _binary(node.op, self._run(node.left, names), self._run(node.right, names))
            case ast.Compare():
                left, right = self._run(node.left, names)[0], self._run(node.comparators[0], names)[0]
                compare = {
                    ast.Lt: np.less,
                    ast.Gt: np.greater,
                    ast.LtE: np.less_equal,
                    ast.GtE: np.greater_equal,
                }
                truth = compare[type(node.ops[0])](left, right)
                return truth, truth
            case ast.Call(func=ast.Name(id=name)):
                return self._call(name, node, names)
        raise AssertionError(node)

    def _call(self, name: str, node: ast.Call, names: Mapping[str, Any]) -> tuple[Any, Any]:
        arguments = [self._run(child, names) for child in node.args]
        options = {k.arg: k.value.value for k in node.keywords if k.arg and isinstance(k.value, ast.Constant)}
        values, magnitudes = [a[0] for a in arguments], [a[1] for a in arguments]
        if name in ("sum", "mean"):
            return _REDUCTIONS[name](values[0], **options), _REDUCTIONS[name](magnitudes[0], **options)
        if name in ("max", "min"):
            value = _REDUCTIONS[name](values[0], **options)
            return value, np.abs(value)
        if name == "transpose":
            return np.transpose(values[0]), np.transpose(magnitudes[0])
        if name == "where":
            return np.where(values[0], values[1], values[2]), np.where(
                values[0], magnitudes[1], magnitudes[2]
            )
        if name == "exp":
            # An error d in x becomes d e^x in the result.
            value = np.exp(values[0])
            return value, value * (1.0 + magnitudes[0])
        value = _ELEMENTWISE[name](*values)
        return value, np.abs(value)


_PLAIN_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.MatMult: operator.matmul,
    ast.Pow: operator.pow,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
}
_PLAIN_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_ELEMENTWISE,
    **_REDUCTIONS,
    "exp": np.exp,
    "transpose": np.transpose,
    "where": np.where,
}


def _plain(node: ast.AST, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(operand=operand):
            return -_plain(operand, names)
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            return _PLAIN_OPERATORS[type(op)](_plain(left, names), _plain(right, names))
        case ast.Call(func=ast.Name(id=name)):
            options = {
                k.arg: k.value.value for k in node.keywords if k.arg and isinstance(k.value, ast.Constant)
            }
            return _PLAIN_FUNCTIONS[name](*(_plain(child, names) for child in node.args), **options)
    raise AssertionError(node)


def _binary(op: ast.operator, left: tuple[Any, Any], right: tuple[Any, Any]) -> tuple[Any, Any]:
    (a, size_a), (b, size_b) = left, right
    match op:
        case ast.Add():
            return a + b, size_a + size_b
        case ast.Sub():
            return a - b, size_a + size_b
        case ast.Mult():
            return a * b, size_a * size_b
        case ast.Div():
            return a / b, size_a / np.abs(b)
        case ast.MatMult():
            return a @ b, size_a @ size_b
        case _:
            return a**b, size_a**b


@dataclass(frozen=True)
class Tolerance:
    """How far an output may be from the reference.

    An element passes when ``|error| <= coefficient * magnitude + unit * |expected| + tiny``, and the output as a whole
    when ``norm(error) <= norm_coefficient * norm(scale)`` with ``scale^2 = expected^2 + magnitude^2 / reduction``,
    which is the size of a sum of that many independent terms.
    """

    coefficient: float
    unit: float
    tiny: float
    norm_coefficient: float
    reduction: float


def tolerance(reduction: int, accumulate: str, output: str, factor: float = 1.0) -> Tolerance:
    """Derive the allowed error from the number of terms added and the dtypes.

    With ``n`` terms and unit roundoff ``u`` of the accumulating dtype, an element may be off by
    ``u (min(n, 8 sqrt(n)) + n/8 + 2)`` magnitudes. ``min(n, 8 sqrt(n))`` is the worst case for few terms and the
    probabilistic bound for many (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019, with lambda = 8). ``n/8`` covers
    tensor cores, which truncate once for every 16 terms; the 2 covers rounding inputs and products.
    The norm is far tighter, because errors of many elements average out: ``2 sqrt(n) + n/16 + 2`` of ``u``; it is what
    tells tf32 from float32. The output's own rounding adds its unit roundoff to the first, and 0.6 of it (the root
    mean square of a uniform error, 1/sqrt(3)) to the second. Integers must be exact.

    Args:
        reduction: terms added up for one output element.
        accumulate: dtype they are added in.
        output: dtype of the output.
        factor: the kernel's own ``tolerance``.
    """
    if reduction < 1:
        raise KernelError(
            f"reduction is {reduction}", "it is the number of terms of one output element, from 1 up"
        )
    if output not in UNIT_ROUNDOFF:
        return Tolerance(0.0, 0.0, 0.5, 0.0, float(reduction))
    u = UNIT_ROUNDOFF.get(accumulate, 0.0)
    n = float(reduction)
    unit = UNIT_ROUNDOFF[output]
    return Tolerance(
        coefficient=factor * u * (min(n, 8.0 * math.sqrt(n)) + n / 8.0 + 2.0),
        unit=factor * unit * (1.0 + 2.0**-10),
        tiny=SMALLEST[output],
        norm_coefficient=factor * (u * (2.0 * math.sqrt(n) + n / 16.0 + 2.0) + 0.6 * unit),
        reduction=n,
    )


def norm_allowance(count: int) -> float:
    """Give the factor by which few elements may exceed the norm's bound: their errors have not averaged out yet."""
    return 1.0 + 4.0 / math.sqrt(count)
