"""The right answer on the host, and how far a kernel's answer may be from it.

A reference expression such as ``"alpha * x + y"`` or ``"a @ b"`` is evaluated twice in float64: for the values, and
for their magnitudes (every term made positive, every difference a sum; ``tuner.magnitudes`` has the rules). The
magnitude is what rounding errors are proportional to: a sum that cancels to nearly nothing still carries the errors of
its large terms.
"""

from __future__ import annotations

import ast
import copy
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner import elements, magnitudes
from tuner.errors import ExpressionError, KernelError
from tuner.magnitudes import NUMPY, Sized

Array = npt.NDArray[np.float64]

_REDUCTIONS: dict[str, Callable[..., Array]] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}
_PLAIN_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in elements.FUNCTIONS},
    **_REDUCTIONS,
    "transpose": np.transpose,
}
ARGUMENTS = {**elements.FUNCTIONS, **dict.fromkeys(_REDUCTIONS, 1), "transpose": 1}
"""The functions, and how many arguments each takes."""

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Largest relative error of rounding to nearest."""
SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
"""Smallest positive number: an error of rounding below it has no relative bound."""


class ArrayExpression:
    """A NumPy expression over the kernel's tensors, scalars and sizes, parsed by a whitelist and never run as Python.

    ``A if op == 'sum' else B`` compares options and dtype roles with text, and the name of an option may stand for an
    element expression: :meth:`settled` resolves both for one problem, and only what is settled can be evaluated.

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
        self.compared: dict[str, frozenset[str]] = {}
        """The options and dtype roles that it compares, and with what."""
        self.names = frozenset(self._check(self._body))
        """The tensors, scalars, sizes and element expressions it needs."""

    def settled(
        self, choices: Mapping[str, Any], element_texts: Mapping[str, str] | None = None
    ) -> ArrayExpression:
        """Give the expression for one problem: without ``if``, and with element expressions in their names' places.

        Args:
            choices: options and dtype roles by name.
            element_texts: canonical element expressions by the name of their option.

        Raises:
            ExpressionError: it compares a name that has no choice.
        """
        element_texts = element_texts or {}
        if not self.compared and self.names.isdisjoint(element_texts):
            return self
        missing = self.compared.keys() - choices.keys()
        if missing:
            raise ExpressionError(f"unknown name {min(missing)!r} in reference {self.text!r}")
        settling = _Settling(choices, element_texts)
        return ArrayExpression(ast.unparse(settling.visit(copy.deepcopy(self._body))))

    def evaluate(self, names: Mapping[str, Any]) -> tuple[Array, Array]:
        """Give values and magnitudes in float64; the magnitude is 0 where float32 arithmetic cannot round."""
        self._insist(names)
        with np.errstate(all="ignore"):
            try:
                sized = self._run(self._body, names)
            except (TypeError, ValueError, OverflowError) as error:
                raise ExpressionError(f"reference {self.text!r}: {error}") from None
            value = np.asarray(sized.value, np.float64)
            if sized.exact:
                return value, np.zeros_like(value)
            magnitude = np.asarray(sized.magnitude, np.float64)
            magnitude = np.where(magnitude < magnitudes.ANYTHING, magnitude, magnitudes.ANYTHING)
            return value, np.broadcast_to(magnitude, value.shape)

    def compute(self, names: Mapping[str, Any]) -> Any:
        """Give the value alone, as plain NumPy computes it in the dtypes of the arrays."""
        self._insist(names)
        with np.errstate(all="ignore"):
            try:
                return _plain(self._body, names)
            except (TypeError, ValueError, OverflowError) as error:
                raise ExpressionError(f"reference {self.text!r}: {error}") from None

    def _insist(self, names: Mapping[str, Any]) -> None:
        if self.compared:
            raise ExpressionError(
                f"reference {self.text!r} depends on {', '.join(self.compared)}", "settle it first"
            )
        missing = self.names - names.keys()
        if missing:
            raise ExpressionError(f"unknown name {min(missing)} in reference {self.text!r}")

    def _check(self, node: ast.AST) -> set[str]:
        match node:
            case ast.Constant(value=int() | float()):
                return set()
            case ast.Name(id=name):
                return {name}
            case ast.BinOp(op=ast.Pow(), right=right) if (
                exponent := elements.exponent_of(right)
            ) is not None and abs(exponent) <= elements.MAX_EXPONENT:
                return self._check(node.left)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.MatMult()):
                return self._check(node.left) | self._check(node.right)
            case ast.UnaryOp(op=ast.USub()):
                return self._check(node.operand)
            case ast.Compare(ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                return self._check(node.left) | self._check(right)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                name, texts, _ = _choice(test, self.text)
                self.compared[name] = self.compared.get(name, frozenset()) | texts
                return self._check(body) | self._check(orelse)
            case ast.Call(func=ast.Name(id=name)) if len(node.args) == ARGUMENTS.get(name, -1):
                if all(
                    k.arg in ("axis", "keepdims") and isinstance(k.value, ast.Constant) for k in node.keywords
                ):
                    return set().union(*(self._check(child) for child in node.args))
        raise ExpressionError(
            f"{ast.unparse(node) if isinstance(node, ast.expr) else node!r} is not allowed in reference {self.text!r}",
            f"use + - * / @, ** with a number, comparisons, A if option == 'text' else B, and {', '.join(ARGUMENTS)}",
        )

    def _run(self, node: ast.AST, names: Mapping[str, Any]) -> Sized:
        match node:
            case ast.Constant(value=int() | float() as value):
                return magnitudes.constant(float(value), NUMPY)
            case ast.Name(id=name):
                return Sized(names[name], np.abs(names[name]), True)
            case ast.UnaryOp():
                return magnitudes.negated(self._run(node.operand, names))
            case ast.BinOp(op=ast.Pow(), right=right):
                exponent = elements.exponent_of(right)
                assert exponent is not None
                return magnitudes.powered(self._run(node.left, names), exponent, NUMPY)
            case ast.BinOp():
                return _binary(node.op, self._run(node.left, names), self._run(node.right, names))
            case ast.Compare():
                holds = self._comparison(node, names)[0]
                return Sized(holds, holds, True)
            case ast.Call(func=ast.Name(id=name)):
                return self._call(name, node, names)
        raise AssertionError(node)

    def _comparison(self, node: ast.Compare, names: Mapping[str, Any]) -> tuple[Any, Sized, Sized]:
        left, right = self._run(node.left, names), self._run(node.comparators[0], names)
        return _COMPARISONS[type(node.ops[0])](left.value, right.value), left, right

    def _call(self, name: str, node: ast.Call, names: Mapping[str, Any]) -> Sized:
        if name == "where":
            then, otherwise = self._run(node.args[1], names), self._run(node.args[2], names)
            if isinstance(node.args[0], ast.Compare):
                return magnitudes.chosen(*self._comparison(node.args[0], names), then, otherwise, NUMPY)
            condition = self._run(node.args[0], names)
            zero = Sized(0.0, 0.0, True)
            return magnitudes.chosen(condition.value != 0, condition, zero, then, otherwise, NUMPY)
        arguments = tuple(self._run(child, names) for child in node.args)
        if name in elements.FUNCTIONS:
            return magnitudes.applied(name, arguments, NUMPY)
        (a,) = arguments
        options = {k.arg: k.value.value for k in node.keywords if k.arg and isinstance(k.value, ast.Constant)}
        if name == "transpose":
            return Sized(np.transpose(a.value), np.transpose(a.magnitude), a.exact, a.operations)
        reduce = _REDUCTIONS[name]
        value = reduce(a.value, **options)
        if name in ("sum", "mean"):
            terms = np.size(a.value) / max(np.size(value), 1)
            return Sized(value, reduce(a.magnitude, **options), False, a.operations + terms)
        # Rounding may change which is the largest, but not by more than the largest of the errors.
        magnitude = np.abs(value) if a.exact else _REDUCTIONS["max"](a.magnitude, **options)
        return Sized(value, magnitude, a.exact, a.operations)


class _Settling(ast.NodeTransformer):
    """Takes the branch that the choices name, and puts element expressions in their names' places."""

    def __init__(self, choices: Mapping[str, Any], element_texts: Mapping[str, str]) -> None:
        self._choices, self._elements = choices, element_texts

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        name, texts, among = _choice(node.test, "")
        holds = (str(self._choices[name]) in texts) is among
        return self.visit(node.body if holds else node.orelse)

    def visit_Name(self, node: ast.Name) -> Any:
        text = self._elements.get(node.id)
        return node if text is None else elements.parse_element(text).body


def _choice(test: ast.expr, text: str) -> tuple[str, frozenset[str], bool]:
    """Read ``option == 'text'``: the option's name, the texts, and whether it must be among them or must not."""
    match test:
        case ast.Compare(
            left=ast.Name(id=name),
            ops=[ast.Eq() | ast.NotEq() as op],
            comparators=[ast.Constant(value=str() as value)],
        ):
            return name, frozenset([value]), isinstance(op, ast.Eq)
        case ast.Compare(
            left=ast.Name(id=name),
            ops=[ast.In() | ast.NotIn() as op],
            comparators=[ast.List(elts=items) | ast.Tuple(elts=items)],
        ) if items and all(isinstance(item, ast.Constant) and isinstance(item.value, str) for item in items):
            values = frozenset(str(item.value) for item in items if isinstance(item, ast.Constant))
            return name, values, isinstance(op, ast.In)
    raise ExpressionError(
        f"{ast.unparse(test)!r} is not allowed between if and else in reference {text!r}",
        "compare an option or dtype role with text: ==, !=, in ['a', 'b']",
    )


_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_PLAIN_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.MatMult: operator.matmul,
}


def _plain(node: ast.AST, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(operand=operand):
            return -_plain(operand, names)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent = elements.exponent_of(right)
            assert exponent is not None
            # A whole number stays one: NumPy squares faster than it raises to 2.0.
            return _plain(left, names) ** (int(exponent) if exponent.is_integer() else exponent)
        case ast.BinOp(left=left, op=op, right=right):
            return _PLAIN_OPERATORS[type(op)](_plain(left, names), _plain(right, names))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _COMPARISONS[type(op)](_plain(left, names), _plain(right, names))
        case ast.Call(func=ast.Name(id=name)):
            options = {
                k.arg: k.value.value for k in node.keywords if k.arg and isinstance(k.value, ast.Constant)
            }
            return _PLAIN_FUNCTIONS[name](*(_plain(child, names) for child in node.args), **options)
    raise AssertionError(node)


def _binary(op: ast.operator, a: Sized, b: Sized) -> Sized:
    match op:
        case ast.Add():
            return magnitudes.added(a, b)
        case ast.Sub():
            return magnitudes.subtracted(a, b)
        case ast.Mult():
            return magnitudes.multiplied(a, b)
        case ast.Div():
            return magnitudes.divided(a, b, NUMPY)
    terms = np.shape(a.value)[-1] if np.ndim(a.value) else 1
    return Sized(
        a.value @ b.value, a.magnitude @ b.magnitude, False, a.operations + b.operations + 2.0 * terms
    )


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


def tolerance(
    reduction: int, accumulate: str, output: str, factor: float = 1.0, operand_rounding: float = 0.0
) -> Tolerance:
    """Derive the allowed error from the number of terms added and the dtypes.

    With ``n`` terms and unit roundoff ``u`` of the accumulating dtype, an element may be off by
    ``u (min(n, 8 sqrt(n)) + n/8 + 2)`` magnitudes. ``min(n, 8 sqrt(n))`` is the worst case for few terms and the
    probabilistic bound for many (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019, with lambda = 8). ``n/8`` covers
    tensor cores, which truncate once for every 16 terms; the 2 covers rounding inputs and products.
    The norm is far tighter, because errors of many elements average out: ``2 sqrt(n) + n/16 + 2`` of ``u``; it is what
    tells tf32 from float32. The output's own rounding adds its unit roundoff to the first, and 0.6 of it (the root
    mean square of a uniform error, 1/sqrt(3)) to the second. Where the kernel may round both factors of a product by
    ``r``, each term may be off by ``2r`` of itself, always in the same direction if it truncates: ``2r`` is added to
    both. Integers must be exact.

    Args:
        reduction: terms added up for one output element.
        accumulate: dtype they are added in.
        output: dtype of the output.
        factor: the kernel's own ``tolerance``.
        operand_rounding: largest relative error with which each factor of a product may be rounded.
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
        coefficient=factor * u * (min(n, 8.0 * math.sqrt(n)) + n / 8.0 + 2.0) + 2.0 * operand_rounding,
        unit=factor * unit * (1.0 + 2.0**-10),
        tiny=SMALLEST[output],
        norm_coefficient=factor * (u * (2.0 * math.sqrt(n) + n / 16.0 + 2.0) + 0.6 * unit)
        + 2.0 * operand_rounding,
        reduction=n,
    )


def norm_allowance(count: int) -> float:
    """Give the factor by which few elements may exceed the norm's bound: their errors have not averaged out yet."""
    return 1.0 + 4.0 / math.sqrt(count)
