"""The functions of NumPy references beside the element-wise ones: their parameters, and how large a result is."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from tuner.core.errors import ExpressionError
from tuner.expressions.parsing import shown

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
