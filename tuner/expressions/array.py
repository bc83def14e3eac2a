"""NumPy expressions for references on the CPU: correct values, and magnitudes that bound rounding errors.

A reference expression such as ``"alpha * x + y"`` or ``"a @ b"`` is evaluated in float64, for the values and for their
magnitudes, in which every term is positive and every difference a sum (``tuner.expressions.magnitudes`` has the rules).
Rounding errors are proportional to the magnitude: a sum that cancels to nearly zero still has its large terms' errors.
"""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import ExpressionError
from tuner.expressions import elementwise, magnitudes
from tuner.expressions.evaluation import BINARY, COMPARE
from tuner.expressions.magnitudes import NUMPY, Sized
from tuner.expressions.parsing import parse_tree, unparse

Array = npt.NDArray[np.float64]

_REDUCTIONS: dict[str, Callable[..., Array]] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}
_PLAIN_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in elementwise.FUNCTIONS},
    **_REDUCTIONS,
    "transpose": np.transpose,
}
ARGUMENTS = {**elementwise.FUNCTIONS, **dict.fromkeys(_REDUCTIONS, 1), "transpose": 1}
"""The functions with their numbers of arguments."""


class ArrayExpression:
    """A NumPy expression over a kernel's tensors, scalars and sizes, parsed by a whitelist and not run as Python.

    ``A if op == 'sum' else B`` compares options and dtype roles with text, and the name of an option may stand for its
    element expression. :meth:`settled` resolves both for one problem; only its result can be evaluated.

    Raises:
        ExpressionError: the text is no expression, or uses something outside the whitelist.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._body = parse_tree(text, "reference")
        self.compared: dict[str, frozenset[str]] = {}
        """The options and dtype roles that it compares, with the texts that they are compared with."""
        self.names = frozenset(self._check(self._body))
        """The tensors, scalars, sizes and element expressions that it uses."""

    @property
    def canonical(self) -> str:
        """The text without what does not count: white space, and parentheses that change nothing."""
        return ast.unparse(self._body)

    def settled(
        self, choices: Mapping[str, Any], element_texts: Mapping[str, str] | None = None
    ) -> ArrayExpression:
        """Return the expression for one problem: without ``if``, and with element expressions instead of their names.

        Args:
            choices: options and dtype roles by name.
            element_texts: canonical element expressions by option.

        Raises:
            ExpressionError: it compares a name that is not in ``choices``.
        """
        element_texts = element_texts or {}
        if not self.compared and self.names.isdisjoint(element_texts):
            return self
        missing = self.compared.keys() - choices.keys()
        if missing:
            raise ExpressionError(f"unknown name {min(missing)!r} in reference {self.text!r}")
        settled = _Settled(choices, element_texts).visit(copy.deepcopy(self._body))
        return ArrayExpression(unparse(settled))

    def evaluate(self, names: Mapping[str, Any]) -> tuple[Array, Array]:
        """Return values and magnitudes in float64; the magnitude is 0 where float32 arithmetic is exact."""
        self._check_names(names)
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
        """Return the value as NumPy computes it in the arrays' dtypes, without magnitudes."""
        self._check_names(names)
        with np.errstate(all="ignore"):
            try:
                return _plain(self._body, names)
            except (TypeError, ValueError, OverflowError) as error:
                raise ExpressionError(f"reference {self.text!r}: {error}") from None

    def _check_names(self, names: Mapping[str, Any]) -> None:
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
                exponent := elementwise.exponent_of(right)
            ) is not None and abs(exponent) <= elementwise.MAX_EXPONENT:
                return self._check(node.left)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.MatMult()):
                return self._check(node.left) | self._check(node.right)
            case ast.UnaryOp(op=ast.USub()):
                return self._check(node.operand)
            case ast.Compare(ops=[op], comparators=[right]) if type(op) in COMPARE:
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
                exponent = elementwise.checked_exponent(right)
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
        return COMPARE[type(node.ops[0])](left.value, right.value), left, right

    def _call(self, name: str, node: ast.Call, names: Mapping[str, Any]) -> Sized:
        if name == "where":
            then, otherwise = self._run(node.args[1], names), self._run(node.args[2], names)
            if isinstance(node.args[0], ast.Compare):
                return magnitudes.chosen(*self._comparison(node.args[0], names), then, otherwise, NUMPY)
            condition = self._run(node.args[0], names)
            zero = Sized(0.0, 0.0, True)
            return magnitudes.chosen(condition.value != 0, condition, zero, then, otherwise, NUMPY)
        arguments = tuple(self._run(child, names) for child in node.args)
        if name in elementwise.FUNCTIONS:
            return magnitudes.applied(name, arguments, NUMPY)
        (a,) = arguments
        if name == "transpose":
            return Sized(np.transpose(a.value), np.transpose(a.magnitude), a.exact, a.operations)
        reduce, options = _REDUCTIONS[name], _options(node)
        value = reduce(a.value, **options)
        if name in ("sum", "mean"):
            summands = np.size(a.value) / max(np.size(value), 1)
            return Sized(value, reduce(a.magnitude, **options), False, a.operations + summands)
        # Rounding may change which element is the largest, but its value by no more than the largest error.
        magnitude = np.abs(value) if a.exact else _REDUCTIONS["max"](a.magnitude, **options)
        return Sized(value, magnitude, a.exact, a.operations)


class _Settled(ast.NodeTransformer):
    """Replaces an ``if`` by the branch that the choices select, and names of element expressions by these."""

    def __init__(self, choices: Mapping[str, Any], element_texts: Mapping[str, str]) -> None:
        self._choices, self._elements = choices, element_texts

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        name, texts, among = _choice(node.test, "")
        holds = (str(self._choices[name]) in texts) is among
        return self.visit(node.body if holds else node.orelse)

    def visit_Name(self, node: ast.Name) -> Any:
        text = self._elements.get(node.id)
        return node if text is None else elementwise.parse_element(text).body


def _choice(test: ast.expr, text: str) -> tuple[str, frozenset[str], bool]:
    """Return the parts of ``option == 'text'``: the option, the texts, and whether it must be one of them or none."""
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


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {**BINARY, ast.MatMult: operator.matmul}


def _plain(node: ast.AST, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(operand=operand):
            return -_plain(operand, names)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent = elementwise.checked_exponent(right)
            # A whole number stays one: NumPy squares faster than it raises to 2.0.
            return _plain(left, names) ** (int(exponent) if exponent.is_integer() else exponent)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_plain(left, names), _plain(right, names))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return COMPARE[type(op)](_plain(left, names), _plain(right, names))
        case ast.Call(func=ast.Name(id=name)):
            return _PLAIN_FUNCTIONS[name](*(_plain(child, names) for child in node.args), **_options(node))
    raise AssertionError(node)


def _options(node: ast.Call) -> dict[str, Any]:
    return {k.arg: k.value.value for k in node.keywords if k.arg and isinstance(k.value, ast.Constant)}


def _binary(op: ast.operator, a: Sized, b: Sized) -> Sized:
    if not isinstance(op, ast.MatMult):
        return magnitudes.combined(op, a, b, NUMPY)
    operations = a.operations + b.operations + 2.0 * (np.shape(a.value)[-1] if np.ndim(a.value) else 1)
    return Sized(a.value @ b.value, a.magnitude @ b.magnitude, False, operations)
