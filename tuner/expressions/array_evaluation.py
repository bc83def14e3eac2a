"""Evaluates the checked tree of a NumPy reference: as NumPy alone would, or with magnitudes.

Every operation whose result may be larger than its operands says how large before memory is spent on it.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tuner.core.errors import ExpressionError
from tuner.expressions import elementwise, magnitudes
from tuner.expressions.arithmetic import parse
from tuner.expressions.array_functions import FUNCTIONS, ArrayFunction, MagnitudeRule, Takes
from tuner.expressions.elementwise import SIGNS
from tuner.expressions.magnitudes import NUMPY, OPERATIONS, Sized
from tuner.expressions.parsing import COMPARE_SIGNS, shown
from tuner.runtime.expressions import COMPARISONS

MAX_ELEMENTS = 1 << 28
"""Of a result that is more than twice as large as the largest tensor: 2 GiB, and as much for its magnitudes."""
INT64 = 2.0**63
"""Numbers of this size and more are beyond int64."""
FLOAT64_INTEGERS = 2.0**53
"""Up to here float64 has every integer."""
EXACT = ("abs", "maximum", "minimum")
"""Element-wise functions whose result is an integer where the arguments are."""
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {**OPERATIONS, ast.MatMult: operator.matmul}
Compare = Callable[[Any, Any], Any]


class Plain:
    """The evaluation of one expression as NumPy computes it in the arrays' dtypes, to time it.

    Args:
        text: the expression, for errors.
        names: values by name.
    """

    def __init__(self, text: str, names: Mapping[str, Any]) -> None:
        self._text, self._names = text, names
        self._whole_names = {name: value for name, value in names.items() if isinstance(value, int)}
        largest = max((int(np.size(value)) for value in names.values()), default=1)
        self._most = max(MAX_ELEMENTS, 2 * largest)

    def run(self, node: ast.expr) -> Any:
        """Return the value of a node.

        Raises:
            ExpressionError: a result would be too large, or a bound is no whole number.
        """
        match node:
            case ast.Constant(value=int() | float() as value):
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

    def _constant(self, value: float) -> Any:
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


class BeyondIntegersError(ExpressionError):
    """A number is needed of which only the lowest bits are there."""


class WithMagnitudes(Plain):
    """Values with their magnitudes: integers as int64, which wraps as in C, other numbers as float64.

    Args:
        text: the expression, for errors.
        names: values by name; arrays of integers are int64.
        whole: whether the result must be exact: no integer above 2^53 may become a float on the way.
        word: the size of numbers from which on arithmetic on integers may have wrapped. Sums and products may: their
            lowest bits are right all the same. A comparison, a quotient or a maximum of such numbers has no value.
    """

    def __init__(
        self, text: str, names: Mapping[str, Any], *, whole: bool = False, word: float = INT64
    ) -> None:
        super().__init__(text, names)
        self._exactly, self._word = whole, word

    def floating(self, a: Sized, what: str) -> Sized:
        """Return a number for an operation that computes in float64.

        Raises:
            ExpressionError: that would round it, and the result must be exact.
            BeyondIntegersError: it may have wrapped.
        """
        if not _is_whole(a.value):
            return a
        value = np.asarray(self._settled(a, what).value, np.float64)
        if self._exactly and (np.abs(value) > FLOAT64_INTEGERS).any():
            raise ExpressionError(
                f"{what} in reference {shown(self._text)} rounds integers above 2^53 to float64",
                "keep to operations on integers, or write a Python reference that is exact",
            )
        return replace(a, value=value)

    def _settled(self, a: Sized, what: str) -> Sized:
        """Return a number for an operation that must know all of it."""
        if _is_whole(a.value) and np.size(a.magnitude):
            largest = np.max(a.magnitude)
            # The magnitude of a sum bounds what is on the way to it, but is rounded itself.
            if largest > self._word or (largest == self._word and not a.exact):
                raise BeyondIntegersError(
                    f"{what} in reference {shown(self._text)} gets integers of {self._word:.3g} or more, "
                    "which may have wrapped",
                    "have smaller inputs by init = { uniform = [a, b] }, or write a Python reference",
                )
        return a

    def _alike(self, what: str, *numbers: Sized) -> list[Sized]:
        """Return numbers as they are where all are integers or none is, and else as floats."""
        if len({_is_whole(number.value) for number in numbers}) < 2:
            return list(numbers)
        return [self.floating(number, what) for number in numbers]

    def _value(self, number: Sized) -> Any:
        return number.value

    def _constant(self, value: float) -> Sized:
        return replace(magnitudes.constant(float(value), NUMPY), value=value)

    def _name(self, value: Any) -> Sized:
        return Sized(value, np.abs(np.asarray(value, np.float64)), True)

    def _negated(self, a: Sized) -> Sized:
        return magnitudes.negated(a)

    def _power(self, a: Sized, exponent: float) -> Sized:
        whole = _is_whole(a.value) and exponent >= 0.0 and exponent.is_integer()
        power = magnitudes.powered(a if whole else self.floating(a, "**"), exponent, NUMPY)
        if whole:
            power = replace(power, value=np.asarray(a.value) ** np.int64(exponent))
        if exponent == 0.0:  # which the rules take for a number
            return replace(power, value=np.broadcast_to(power.value, np.shape(a.value)))
        return power

    def _binary(self, op: ast.operator, a: Sized, b: Sized) -> Sized:
        sign = SIGNS[type(op)][0] if type(op) in SIGNS else "@"
        if isinstance(op, ast.Div):
            a, b = self.floating(a, sign), self.floating(b, sign)
        a, b = self._alike(sign, a, b)
        if not isinstance(op, ast.MatMult):
            return magnitudes.combined(op, a, b, NUMPY)
        operations = a.operations + b.operations + 2.0 * (np.shape(a.value)[-1] if np.ndim(a.value) else 1)
        magnitude = a.magnitude @ b.magnitude
        if _is_whole(a.value) and (magnitude <= FLOAT64_INTEGERS).all():
            # Exact in float64, too, which BLAS multiplies at a hundred times the speed.
            value = (np.asarray(a.value, np.float64) @ np.asarray(b.value, np.float64)).astype(np.int64)
        else:
            value = a.value @ b.value
        return Sized(value, magnitude, False, operations)

    def _compared(self, compare: Compare, a: Sized, b: Sized) -> Sized:
        a, b = (self._settled(side, "a comparison") for side in self._alike("a comparison", a, b))
        holds = compare(a.value, b.value)
        return Sized(holds, holds, True)

    def _chosen(self, compare: Compare, left: Sized, right: Sized, a: Sized, b: Sized) -> Sized:
        holds = self._compared(compare, left, right).value
        a, b = self._alike("where", a, b)
        return magnitudes.chosen(holds, left, right, a, b, NUMPY)

    def _applied(self, name: str, arguments: tuple[Sized, ...]) -> Sized:
        if name == "where":
            condition, zero = arguments[0], Sized(0, 0.0, True)
            return self._chosen(operator.ne, condition, zero, *arguments[1:])
        if name in EXACT:
            arguments = tuple(self._settled(argument, name) for argument in self._alike(name, *arguments))
        else:
            arguments = tuple(self.floating(argument, name) for argument in arguments)
        return magnitudes.applied(name, arguments, NUMPY)

    def _moved(self, run: Callable[..., Any], arrays: list[Sized]) -> Sized:
        arrays = self._alike("a function of several arrays", *arrays)
        # A magnitude may have fewer dimensions than its value, such as that of x ** 0.
        spread = [np.broadcast_to(array.magnitude, np.shape(array.value)) for array in arrays]
        return Sized(
            run(*(array.value for array in arrays)),
            run(*spread),
            all(array.exact for array in arrays),
            max(array.operations for array in arrays),
        )

    def _reduced(
        self, rule: MagnitudeRule, run: Callable[[Any], Any], arguments: Mapping[str, Any], a: Sized, /
    ) -> Sized:
        if rule is MagnitudeRule.LARGEST:
            a = self._settled(a, "max or min")
        value = run(a.value)
        if not _is_whole(value):
            a = self.floating(a, "mean")
        spread = np.broadcast_to(a.magnitude, np.shape(a.value))
        if rule is MagnitudeRule.ADDED:
            return Sized(value, run(spread), False, a.operations + _summands(a.value, value))
        # Rounding may change which element is the largest, but its value by no more than the largest error.
        magnitude = np.abs(value) if a.exact else FUNCTIONS["max"].run(spread, **arguments)
        return Sized(value, magnitude, a.exact, a.operations)


def _is_whole(value: Any) -> bool:
    """Return whether a number or an array has integers or truth values."""
    return np.asarray(value).dtype.kind in "biu"


def _summands(before: Any, after: Any) -> float:
    """Return how many elements were added up for one: all of them at most where none were left out."""
    count, left = np.size(before), np.size(after)
    return count / max(left, 1) if left != count else float(max(np.shape(before), default=1))
