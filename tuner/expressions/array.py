"""NumPy expressions for references on the CPU: correct values, and magnitudes that bound rounding errors.

A reference expression such as ``"alpha * x + y"`` or ``"a @ b"`` is evaluated in float64 or complex128, and what is
made of integers alone in int64 or uint64; and for its magnitudes, in which every term is positive and every difference
a sum (``tuner.expressions.magnitudes`` has the rules). Rounding errors are proportional to the magnitude: a sum that
cancels to nearly zero still has its large terms' errors.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.core.errors import ExpressionError, suggestion
from tuner.expressions import elementwise
from tuner.expressions.arithmetic import parse
from tuner.expressions.array_evaluation import FLOAT64_INTEGERS, INT64, BeyondIntegersError, Evaluation
from tuner.expressions.array_functions import FUNCTIONS, MODES, Takes
from tuner.expressions.magnitudes import ANYTHING, Sized
from tuner.expressions.parsing import COMPARE_SIGNS, copied, parse_tree, shown, unparse
from tuner.expressions.row_blocks import in_blocks

Array = npt.NDArray[np.float64]

FUNCTION_NAMES = (*elementwise.FUNCTIONS, *FUNCTIONS)
"""All functions."""
OR_PYTHON = "or a Python reference (python = 'FILE.py:FUNCTION')"
"""What can do all else."""


class ArrayExpression:
    """A NumPy expression over a kernel's tensors, scalars and sizes, parsed by a whitelist and not run as Python.

    ``A if op == 'sum' else B`` compares options and dtype roles with text, and the name of an option may stand for its
    element expression. :meth:`settled` resolves both for one problem; only its result can be evaluated.

    Args:
        text: the source.
        terms: expressions by name that stand for themselves in it, and in the element expressions that it uses.

    Raises:
        ExpressionError: the text is no expression, or uses something outside the whitelist.
    """

    def __init__(self, text: str, terms: Mapping[str, ArrayExpression] | None = None) -> None:
        self.text, self._terms = text, {name: term._body for name, term in (terms or {}).items()}
        self._body: ast.expr = _Settled({}, {}, self._terms).visit(
            elementwise.expanded(parse_tree(text, "reference"))
        )
        self.compared: dict[str, frozenset[str]] = {}
        """The options and dtype roles that it compares, with the texts that they are compared with."""
        self.whole: set[str] = set()
        """Of its names those in bounds, axes and shapes: they must be sizes or whole scalars."""
        self.names = frozenset(self._check(self._body))
        """The tensors, scalars, sizes and element expressions that it uses."""

    @property
    def last_axis(self) -> int | None:
        """The largest axis that it names, where no function or index adds dimensions; None otherwise."""
        nodes = list(ast.walk(self._body))
        if any(isinstance(node, ast.Subscript | ast.Tuple | ast.List) for node in nodes):
            return None
        axes = [
            keyword.value.value
            for node in nodes
            if isinstance(node, ast.Call)
            for keyword in node.keywords
            if keyword.arg == "axis" and isinstance(keyword.value, ast.Constant)
        ]
        return max((axis for axis in axes if isinstance(axis, int)), default=None)

    @property
    def canonical(self) -> str:
        """The text without what does not count: white space, and parentheses that change nothing.

        Terms stand behind it, since an element expression may use them.
        """
        return "; ".join(
            [
                ast.unparse(self._body),
                *(f"{name} = {ast.unparse(term)}" for name, term in self._terms.items()),
            ]
        )

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
        if not self.compared and not self._terms and self.names.isdisjoint(element_texts):
            return self
        missing = self.compared.keys() - choices.keys()
        if missing:
            raise ExpressionError(f"unknown name {min(missing)!r} in reference {self.text!r}")
        settled = _Settled(choices, element_texts, self._terms).visit(copied(self._body))
        return ArrayExpression(unparse(settled))

    def evaluate(
        self,
        names: Mapping[str, Any],
        *,
        whole: bool = False,
        word: float = INT64,
        largest: float = math.inf,
        most: float | None = None,
    ) -> tuple[npt.NDArray[Any], Array]:
        """Return values and magnitudes; the magnitude is 0 where float32 arithmetic is exact.

        Args:
            names: values by name; arrays of integers are int64 or uint64.
            whole: whether integers are wanted: then results of integers are such ones, wrapped. All others are float64
                or complex128.
            word: size of integers up to which arithmetic on them is known not to wrap.
            largest: number that a kernel's arithmetic has.
            most: elements that a result on the way may have, if fewer than usual.

        Raises:
            ExpressionError: it has no value, or none that is exact where integers are wanted.
        """

        def evaluate(some: Mapping[str, Any]) -> tuple[npt.NDArray[Any], Array]:
            try:
                sized = self._sized(some, whole=whole, word=word, largest=largest, most=most)
            except BeyondIntegersError:
                inputs = (float(np.max(np.abs(some[name]), initial=0.0)) for name in self.names)
                if whole or word < INT64 or max(inputs, default=0.0) > FLOAT64_INTEGERS:
                    raise
                # Floats are wanted, and have room for the numbers.
                floats = {name: 1.0 * some[name] for name in self.names - self.whole}
                sized = self._sized({**some, **floats}, most=most)
            return _arrays(sized, whole=whole)

        return in_blocks(self._body, names, evaluate)

    @cached_property
    def _twice(self) -> dict[ast.AST, str]:
        """By node, the text of what stands more than once: exp(x) in exp(x) / sum(exp(x), axis=1, keepdims=True)."""
        nodes = [node for node in ast.walk(self._body) if isinstance(node, ast.Call | ast.BinOp)]
        texts = {node: ast.unparse(node) for node in nodes}
        counts = Counter(texts.values())
        return {node: text for node, text in texts.items() if counts[text] > 1}

    def _sized(self, names: Mapping[str, Any], *, whole: bool = False, **limits: Any) -> Sized:
        if self.compared:
            raise ExpressionError(
                f"reference {self.text!r} depends on {', '.join(self.compared)}", "settle it first"
            )
        missing = self.names - names.keys()
        if missing:
            raise ExpressionError(f"unknown name {min(missing)} in reference {self.text!r}")
        evaluation = Evaluation(self.text, names, self._twice, whole=whole, **limits)
        with np.errstate(all="ignore"):
            try:
                sized = evaluation.run(self._body)
            except (TypeError, ValueError, ArithmeticError, IndexError, MemoryError) as error:
                message = " ".join(str(error).split()) or type(error).__name__
                raise ExpressionError(f"reference {self.text!r}: {message}") from None
        return sized if whole else evaluation.floating(sized, "the result")

    def _check(self, node: ast.expr) -> set[str]:
        match node:
            case ast.Constant(value=int() | float() | complex()):
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
            case ast.Compare(ops=[op], comparators=[right]) if type(op) in COMPARE_SIGNS:
                return self._check(node.left) | self._check(right)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                name, texts, _ = _choice(test, self.text)
                self.compared[name] = self.compared.get(name, frozenset()) | texts
                return self._check(body) | self._check(orelse)
            case ast.Subscript(value=value, slice=index):
                parts = index.elts if isinstance(index, ast.Tuple) else [index]
                return self._check(value).union(*map(self._check_index, parts))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if elementwise.FUNCTIONS.get(
                name
            ) == len(arguments):
                return set().union(*map(self._check, arguments))
            case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
                function = FUNCTIONS[name]
                bound = function.bound(node, self.text)
                kinds = (function.parameters[parameter] for parameter in bound)
                return set().union(*map(self._check_argument, bound.values(), kinds))
            case ast.Call(func=ast.Name(id=name)) if name not in FUNCTION_NAMES:
                what = f"there is no function {name!r} for the reference {shown(self.text)}"
                raise ExpressionError(what, f"{suggestion(name, FUNCTION_NAMES)}; {OR_PYTHON}")
        if isinstance(node, ast.Attribute) and node.attr == "T":
            raise self._refusal(node, f"write transpose({ast.unparse(node.value)})")
        raise self._refusal(
            node,
            f"use + - * / @, ** with a number, comparisons, x[1:-1], A if option == 'text' else B, and "
            f"{', '.join(FUNCTION_NAMES)}; {OR_PYTHON}",
        )

    def _check_argument(self, node: ast.expr, kind: Takes) -> set[str]:
        match kind, node:
            case ((Takes.ARRAY | Takes.INDICES), _):
                return self._check(node)
            case Takes.ARRAYS, ast.List(elts=items) | ast.Tuple(elts=items) if items:
                return set().union(*map(self._check, items))
            case Takes.WHOLE, _:
                return self._check_whole(node)
            case Takes.MODE, ast.Constant(value=value) if value in MODES:
                return set()
            case Takes.FLAG, ast.Constant(value=bool()):
                return set()
        raise self._refusal(node, f"it must be {kind.value}")

    def _check_index(self, node: ast.expr) -> set[str]:
        match node:
            case ast.Slice():
                bounds = [bound for bound in (node.lower, node.upper, node.step) if bound is not None]
                return set().union(*map(self._check_whole, bounds))
            case ast.Constant(value=value) if value is ...:
                return set()
            case ast.Tuple() | ast.List():
                raise self._refusal(
                    node, "index with numbers and slices; take(x, indices, axis) takes an array"
                )
        return self._check_whole(node)

    def _check_whole(self, node: ast.expr) -> set[str]:
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return set().union(*map(self._check_whole, parts))
            case ast.Constant(value=None):
                return set()
        if any(isinstance(part, ast.IfExp) for part in ast.walk(node)):
            raise self._refusal(node, "write min or max in place of if and else")
        names = set(parse(unparse(node)).names)
        self.whole |= names
        return names

    def _refusal(self, node: ast.AST, remedy: str) -> ExpressionError:
        part = unparse(node) if isinstance(node, ast.expr) else type(node).__name__
        return ExpressionError(f"{shown(part)} is not allowed in reference {shown(self.text)}", remedy)


def _arrays(sized: Sized, *, whole: bool) -> tuple[npt.NDArray[Any], Array]:
    """Return value and magnitude as arrays of one shape."""
    value = np.asarray(sized.value)
    if value.dtype.kind != "c" and value.dtype != np.uint64:
        value = value.astype(np.int64 if whole and value.dtype.kind in "bi" else np.float64, copy=False)
    if sized.exact:
        return value, np.zeros(value.shape)
    magnitude = np.fmin(np.asarray(sized.magnitude, np.float64), ANYTHING)
    return value, np.broadcast_to(magnitude, value.shape)


class _Settled(ast.NodeTransformer):
    """Replaces an ``if`` by the branch that the choices select, and names of element expressions and terms by these."""

    def __init__(
        self, choices: Mapping[str, Any], element_texts: Mapping[str, str], terms: Mapping[str, ast.expr]
    ) -> None:
        self._choices, self._elements, self._terms = choices, element_texts, terms

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if not self._choices:
            return self.generic_visit(node)
        name, texts, among = _choice(node.test, "")
        holds = (str(self._choices[name]) in texts) is among
        return self.visit(node.body if holds else node.orelse)

    def visit_Call(self, node: ast.Call) -> Any:
        node.args = [self.visit(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        if (text := self._elements.get(node.id)) is not None:
            return self.visit(copied(elementwise.parse_element(text).body))
        term = self._terms.get(node.id)
        return node if term is None else self.visit(copied(term))


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
