"""The functions of NumPy references beside the element-wise ones, and evaluation of a checked tree as NumPy does it.

Every operation whose result may be larger than its operands says how large before memory is spent on it.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from tuner.core.errors import ExpressionError
from tuner.expressions import elementwise
from tuner.expressions.arithmetic import parse
from tuner.expressions.magnitudes import ELEMENTWISE, OPERATIONS
from tuner.expressions.parsing import COMPARE_SIGNS, shown
from tuner.runtime.expressions import COMPARISONS

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
"""Of pad: its names, and NumPy's."""


class Takes(Enum):
    """What a parameter takes."""

    ARRAY = "an array"
    ARRAYS = "a list of arrays"
    INDICES = "an array of whole numbers"
    WHOLE = "whole numbers"
    """One, or a tuple of them, perhaps of tuples; expressions over sizes and whole scalars."""
    MODE = f"one of {', '.join(MODES)}"
    FLAG = "True or False"


class MagnitudeRule(Enum):
    """How magnitudes follow from those of the arguments."""

    MOVED = "the function itself moves them"
    ADDED = "sums of them"
    LARGEST = "the largest of them"
    KEPT = "those of the argument"
    PLACED = "none: of numbers that rounding changes, another may be the largest"


@dataclass(frozen=True)
class ArrayFunction:
    """A function of arrays, as NumPy has it.

    Attributes:
        run: takes the arguments by name.
        parameters: by name, in order.
        required: how many of them must be given.
        rule: for magnitudes.
        count: number of elements of the result, where it may have more than the arguments; with the same arguments.
    """

    run: Callable[..., Any]
    parameters: Mapping[str, Takes]
    required: int = 1
    rule: MagnitudeRule = MagnitudeRule.MOVED
    count: Callable[..., int] | None = None

    def bound(self, call: ast.Call, text: str) -> dict[str, ast.expr]:
        """Return the arguments of a call by parameter.

        Raises:
            ExpressionError: there are too many or too few, or one has no such name.
        """
        name, usage = ast.unparse(call.func), ", ".join(self.parameters)
        arguments = dict(zip(self.parameters, call.args, strict=False))
        for keyword in call.keywords:
            if keyword.arg is None or keyword.arg not in self.parameters or keyword.arg in arguments:
                raise ExpressionError(
                    f"{ast.unparse(keyword)} of {name} is not allowed in reference {shown(text)}",
                    f"{name}({usage})",
                )
            arguments[keyword.arg] = keyword.value
        missing = [
            parameter for parameter in list(self.parameters)[: self.required] if parameter not in arguments
        ]
        if missing or len(call.args) > len(self.parameters):
            raise ExpressionError(
                f"{len(call.args)} arguments of {name} in reference {shown(text)}", f"{name}({usage})"
            )
        return arguments


def _padded(a: Any, width: Any, mode: str = "constant", constant_values: Any = None) -> Any:
    options: dict[str, Any] = {} if constant_values is None else {"constant_values": constant_values}
    return np.pad(a, width, mode, **options)  # type: ignore[call-overload]


def _padded_count(a: Any, width: Any, **_: Any) -> int:
    widths = np.broadcast_to(np.asarray(width, object), (np.ndim(a), 2))
    return math.prod(size + sum(both) for size, both in zip(np.shape(a), widths.tolist(), strict=True))


def _taken_count(a: Any, indices: Any, axis: int | None = None) -> int:
    length = np.size(a) if axis is None else np.shape(a)[axis]
    return int(np.size(indices) * (np.size(a) // max(length, 1)))


def _range(start: int, stop: int | None = None, step: int = 1) -> Any:
    start, stop = (0, start) if stop is None else (start, stop)
    return np.arange(start, stop, step, dtype=np.int64)


def _range_count(start: int, stop: int | None = None, step: int = 1) -> int:
    start, stop = (0, start) if stop is None else (start, stop)
    return max(0, -((start - stop) // step)) if step else 0


def _shape_count(shape: Any) -> int:
    return math.prod(shape if isinstance(shape, tuple) else (shape,))


def _total(arrays: Any, **_: Any) -> int:
    return sum(map(np.size, arrays))


_A, _W = {"a": Takes.ARRAY}, Takes.WHOLE
_REDUCED = {**_A, "axis": _W, "keepdims": Takes.FLAG}


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, axis=None, keepdims=False: function(a, axis=axis, keepdims=keepdims)


FUNCTIONS: dict[str, ArrayFunction] = {
    "sum": ArrayFunction(_reduction(np.sum), _REDUCED, rule=MagnitudeRule.ADDED),
    "mean": ArrayFunction(_reduction(np.mean), _REDUCED, rule=MagnitudeRule.ADDED),
    "cumsum": ArrayFunction(np.cumsum, {**_A, "axis": _W}, rule=MagnitudeRule.ADDED),
    "max": ArrayFunction(_reduction(np.max), _REDUCED, rule=MagnitudeRule.LARGEST),
    "min": ArrayFunction(_reduction(np.min), _REDUCED, rule=MagnitudeRule.LARGEST),
    "argmax": ArrayFunction(np.argmax, {**_A, "axis": _W}, rule=MagnitudeRule.PLACED),
    "argmin": ArrayFunction(np.argmin, {**_A, "axis": _W}, rule=MagnitudeRule.PLACED),
    "real": ArrayFunction(lambda a: np.real(a), _A, rule=MagnitudeRule.KEPT),
    "imag": ArrayFunction(lambda a: np.imag(a), _A, rule=MagnitudeRule.KEPT),
    "conj": ArrayFunction(lambda a: np.conj(a), _A, rule=MagnitudeRule.KEPT),
    "transpose": ArrayFunction(np.transpose, {**_A, "axes": _W}),
    "reshape": ArrayFunction(lambda a, shape: np.reshape(a, shape), {**_A, "shape": _W}, 2),
    "flip": ArrayFunction(lambda a, axis=None: np.flip(a, axis), {**_A, "axis": _W}),
    "roll": ArrayFunction(np.roll, {**_A, "shift": _W, "axis": _W}, 2),
    "pad": ArrayFunction(
        _padded,
        {**_A, "width": _W, "mode": Takes.MODE, "constant_values": Takes.ARRAY},
        2,
        count=_padded_count,
    ),
    "concatenate": ArrayFunction(
        lambda arrays, axis=0: np.concatenate(arrays, axis),
        {"arrays": Takes.ARRAYS, "axis": _W},
        count=_total,
    ),
    "stack": ArrayFunction(
        lambda arrays, axis=0: np.stack(arrays, axis), {"arrays": Takes.ARRAYS, "axis": _W}, count=_total
    ),
    "take": ArrayFunction(np.take, {**_A, "indices": Takes.INDICES, "axis": _W}, 2, count=_taken_count),
    "arange": ArrayFunction(_range, {"start": _W, "stop": _W, "step": _W}, count=_range_count),
    "zeros": ArrayFunction(lambda shape: np.zeros(shape, np.int64), {"shape": _W}, count=_shape_count),
    "ones": ArrayFunction(lambda shape: np.ones(shape, np.int64), {"shape": _W}, count=_shape_count),
}
"""By name."""


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
        return ELEMENTWISE[name](*arguments)

    def _moved(self, run: Callable[..., Any], arrays: list[Any]) -> Any:
        return run(*arrays)

    def _reduced(
        self, _rule: MagnitudeRule, run: Callable[[Any], Any], _arguments: Mapping[str, Any], a: Any, /
    ) -> Any:
        return run(a)
