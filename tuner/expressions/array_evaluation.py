"""Evaluates the checked tree of a NumPy reference as NumPy alone would.

Every operation whose result may be larger than its operands says how large before memory is spent on it.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tuner.core.errors import ExpressionError
from tuner.expressions import elementwise
from tuner.expressions.arithmetic import parse
from tuner.expressions.array_functions import FUNCTIONS, ArrayFunction, MagnitudeRule, Takes
from tuner.expressions.magnitudes import OPERATIONS
from tuner.expressions.parsing import COMPARE_SIGNS, shown
from tuner.runtime.expressions import COMPARISONS

MAX_ELEMENTS = 1 << 28
"""Of a result that is more than twice as large as the largest tensor: 2 GiB, and as much for its magnitudes."""
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {**OPERATIONS, ast.MatMult: operator.matmul}
Compare = Callable[[Any, Any], Any]


class Plain:
    """The evaluation of one expression as NumPy computes it in the arrays' dtypes, to time it.

    Args:
        text: the expression, for errors.
        names: values by name.
        most: elements of a result; None for as many as memory may have.
    """

    def __init__(self, text: str, names: Mapping[str, Any], most: int | None = None) -> None:
        self._text, self._names = text, names
        self._whole_names = {name: value for name, value in names.items() if isinstance(value, int)}
        largest = max((int(np.size(value)) for value in names.values()), default=1)
        self._most = most or max(MAX_ELEMENTS, 2 * largest)

    def run(self, node: ast.expr) -> Any:
        """Return the value of a node.

        Raises:
            ExpressionError: a result would be too large, or a bound is no whole number.
        """
        match node:
            case ast.Constant(value=int() | float() | complex() as value):
                return self._constant(value)
            case ast.Name(id=name):
                return self._name(self._names[name])
            case ast.UnaryOp():
                return self._negated(self.run(node.operand))
            case ast.BinOp(op=ast.Pow(), right=right):
                return self._power(self.run(node.left), elementwise.checked_exponent(right))
            case ast.BinOp():
                a, b = self.run(node.left), self.run(node.right)
                if isinstance(node.op, ast.MatMult):
                    self._check_product(self._value(a), self._value(b))
                else:
                    self._check_broadcast(a, b)
                return self._binary(node.op, a, b)
            case ast.Compare():
                return self._compared(*self._sides(node))
            case ast.Subscript():
                index = self._index(node.slice)
                return self._moved(lambda array: np.asarray(array)[index], [self.run(node.value)])
            case ast.Call(func=ast.Name(id="where"), args=[ast.Compare() as test, then, otherwise]):
                compare, a, b = self._sides(test)
                branches = self.run(then), self.run(otherwise)
                self._check_broadcast(a, b, *branches)
                return self._chosen(compare, a, b, *branches)
            case ast.Call(func=ast.Name(id=name)) if name in elementwise.FUNCTIONS:
                arguments = tuple(self.run(child) for child in node.args)
                self._check_broadcast(*arguments)
                return self._applied(name, arguments)
            case ast.Call(func=ast.Name(id=name)):
                return self._call(FUNCTIONS[name], name, node)
        raise AssertionError(node)

    def _sides(self, node: ast.Compare) -> tuple[Compare, Any, Any]:
        left, right = self.run(node.left), self.run(node.comparators[0])
        self._check_broadcast(left, right)
        return COMPARISONS[COMPARE_SIGNS[type(node.ops[0])]], left, right

    def _call(self, function: ArrayFunction, name: str, node: ast.Call) -> Any:
        """Evaluate a function of arrays; its arrays are taken out of the arguments, so that magnitudes may follow."""
        arrays: list[Any] = []
        arguments: dict[str, Any] = {}
        indices: dict[str, slice | int] = {}
        for parameter, child in function.bound(node, self._text).items():
            match function.parameters[parameter]:
                case Takes.ARRAY:
                    indices[parameter] = len(arrays)
                    arrays.append(self.run(child))
                case Takes.ARRAYS:
                    assert isinstance(child, ast.List | ast.Tuple)
                    indices[parameter] = slice(len(arrays), len(arrays) + len(child.elts))
                    arrays += [self.run(item) for item in child.elts]
                case Takes.INDICES:
                    arguments[parameter] = self._indices(self.run(child))
                case Takes.WHOLE:
                    arguments[parameter] = self._whole(child)
                case Takes.MODE | Takes.FLAG:
                    arguments[parameter] = ast.literal_eval(child)

        def run(*values: Any) -> Any:
            given = {parameter: values[index] for parameter, index in indices.items()}
            return function.run(**given, **arguments)

        if function.count is not None:
            values = [self._value(array) for array in arrays]
            given = {parameter: values[index] for parameter, index in indices.items()}
            self._check_count(function.count(**given, **arguments), name)
        if not arrays:
            return self._name(run())
        if function.rule is MagnitudeRule.MOVED:
            return self._moved(run, arrays)
        return self._reduced(function.rule, run, arguments, arrays[0])

    # -- whole numbers, and sizes --------------------------------------------------------------------------------

    def _index(self, node: ast.expr) -> Any:
        match node:
            case ast.Tuple(elts=parts):
                return tuple(self._index(part) for part in parts)
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(
                    *(None if bound is None else self._whole(bound) for bound in (lower, upper, step))
                )
            case ast.Constant(value=value) if value is ...:
                return ...
        return self._whole(node)

    def _whole(self, node: ast.expr) -> Any:
        """Return a whole number, a tuple of them, or None."""
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(self._whole(part) for part in parts)
            case ast.Constant(value=None):
                return None
        text = ast.unparse(node)
        try:
            value = parse(text).evaluate(self._whole_names)
        except ExpressionError as error:
            raise ExpressionError(f"reference {shown(self._text)}: {error.problem}", error.remedy) from None
        if not isinstance(value, int) or isinstance(value, bool):
            raise ExpressionError(
                f"{text} = {value} in reference {shown(self._text)}", "it must be a whole number"
            )
        return value

    def _indices(self, indices: Any) -> Any:
        values = np.asarray(self._value(indices))
        whole = values.astype(np.int64)
        if not (whole == values).all():
            raise ExpressionError(
                f"the indices of take in reference {shown(self._text)} are no whole numbers",
                "take them from a tensor of integers, or from arange",
            )
        return whole

    def _check_broadcast(self, *operands: Any) -> None:
        shapes = [np.shape(self._value(operand)) for operand in operands]
        self._check_count(math.prod(np.broadcast_shapes(*shapes)), "an operation")

    def _check_product(self, a: Any, b: Any) -> None:
        batches = np.broadcast_shapes(np.shape(a)[:-2], np.shape(b)[:-2])
        rows = np.shape(a)[-2] if np.ndim(a) > 1 else 1
        columns = np.shape(b)[-1] if np.ndim(b) > 1 else 1
        self._check_count(math.prod((*batches, rows, columns)), "@")

    def _check_count(self, count: int, what: str) -> None:
        if count > self._most:
            raise ExpressionError(
                f"{what} in reference {shown(self._text)} would have {count} elements, more than {self._most}",
                "correct it, use smaller sizes, or write a CUDA reference",
            )

    # -- what magnitudes change ----------------------------------------------------------------------

    def _value(self, number: Any) -> Any:
        return number

    def _constant(self, value: complex) -> Any:
        return value

    def _name(self, value: Any) -> Any:
        return value

    def _negated(self, a: Any) -> Any:
        return -a

    def _power(self, a: Any, exponent: float) -> Any:
        # A whole number stays one: NumPy squares faster than it raises to 2.0.
        return a ** (int(exponent) if exponent.is_integer() else exponent)

    def _binary(self, op: ast.operator, a: Any, b: Any) -> Any:
        return _OPERATORS[type(op)](a, b)

    def _compared(self, compare: Compare, a: Any, b: Any) -> Any:
        return compare(a, b)

    def _chosen(self, compare: Compare, left: Any, right: Any, a: Any, b: Any) -> Any:
        return np.where(compare(left, right), a, b)

    def _applied(self, name: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(np, name)(*arguments)

    def _moved(self, run: Callable[..., Any], arrays: list[Any]) -> Any:
        return run(*arrays)

    def _reduced(
        self, _rule: MagnitudeRule, run: Callable[[Any], Any], _arguments: Mapping[str, Any], a: Any, /
    ) -> Any:
        return run(a)
