"""Magnitudes, which bound the rounding errors of a result: a rule for each operation of an expression.

The rules are written once for any kind of number: ``tuner.expressions.array`` applies them to NumPy arrays, and
``tuner.expressions.elementwise_cuda`` to C variables, to generate the same rules as CUDA. For a result of ``n``
operations whose inputs are exact, computed in float32 in any allowed order of evaluation, they keep

    error <= u * ((n + 1) * magnitude - |value|)        with u = 2^-24,

which ``tuner.kernel.reference`` covers for up to 64 operations. It is true for inputs (error 0), and each rule carries
it from the arguments to the result: sums add magnitudes, products multiply them, and the magnitude of another function
``f(a)`` is ``|f'(a)|`` times that of ``a``, plus a few times ``|f(a)|`` for the function's own error (CUDA
C++ Programming Guide, "Mathematical Functions": at most 2 ulp of expf, logf, tanhf, erff, sinf and cosf, 9 ulp of powf,
none beyond rounding of sqrtf and division).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.expressions.elementwise import FUNCTIONS
from tuner.expressions.parsing import BINARY_SIGNS
from tuner.runtime.expressions import ARITHMETIC

UNIT = 2.0**-24
MAX_CONDITION = 2.0**14
"""Magnitude over value beyond which a first-order error bound fails: 65 u times it is 6 %, and soon even the sign is
uncertain. The logarithm, the root or the inverse of such a value may be anything."""
ANYTHING = 1e300
"""A magnitude that allows any error; infinite as float32."""
SMALLEST_SIGMOID = 2.0**-128
"""The largest of those that float32 computes as 0."""


@dataclass(frozen=True)
class Sized:
    """A value of an expression with its magnitude.

    Attributes:
        value: in float64 or complex128, or a C variable.
        magnitude: likewise.
        exact: whether float32 arithmetic has exactly this value: inputs, and selections among them.
        operations: number of roundings in it.
    """

    value: Any
    magnitude: Any
    exact: bool
    operations: float = 0


Functions = Mapping[str, Callable[..., Any]]
"""The functions of ``tuner.expressions.elementwise`` by name, and ``power``, ``equal`` and ``number``, for one kind
of number."""


def constant(value: float, functions: Functions) -> Sized:
    """Return a number of the expression's text; one that is no float32 counts as rounded."""
    with np.errstate(all="ignore"):
        exact = float(np.float32(value)) == value
    number = functions["number"]
    return Sized(number(value), number(abs(value) if exact else 2.0 * abs(value)), exact)


def negated(a: Sized) -> Sized:
    """Return ``-a``."""
    return Sized(-a.value, a.magnitude, a.exact, a.operations)


def combined(op: ast.operator, a: Sized, b: Sized, functions: Functions) -> Sized:
    """Return ``a + b``, ``a - b``, ``a * b`` or ``a / b``."""
    if isinstance(op, ast.Div):
        return divided(a, b, functions)
    value = ARITHMETIC[BINARY_SIGNS[type(op)]](a.value, b.value)
    magnitude = a.magnitude * b.magnitude if isinstance(op, ast.Mult) else a.magnitude + b.magnitude
    return Sized(value, magnitude, False, a.operations + b.operations + 1)


def divided(a: Sized, b: Sized, functions: Functions) -> Sized:
    """Return ``a / b``."""
    value, size = a.value / b.value, functions["abs"](b.value)
    operations = a.operations + b.operations + 1
    if b.exact:
        return Sized(value, a.magnitude / size, False, operations)
    magnitude = (a.magnitude + functions["abs"](value) * b.magnitude) / size
    magnitude = functions["where"](
        b.magnitude < MAX_CONDITION * size, magnitude, functions["number"](ANYTHING)
    )
    return Sized(value, magnitude, False, operations)


def powered(a: Sized, exponent: float, functions: Functions) -> Sized:
    """Return ``a ** exponent``: products for a whole exponent, as the generated code computes it."""
    if exponent == 0.0:
        return Sized(functions["number"](1.0), functions["number"](1.0), True)
    if exponent == 1.0:
        return a
    if exponent == 0.5:
        return applied("sqrt", (a,), functions)
    if exponent == int(exponent):
        if exponent < 0.0:
            return divided(constant(1.0, functions), powered(a, -exponent, functions), functions)
        power = functions["power"]
        magnitude = exponent * power(a.magnitude, exponent)
        return Sized(power(a.value, exponent), magnitude, False, a.operations + exponent - 1.0)
    value = functions["power"](a.value, exponent)
    size = functions["abs"](value)
    own: Any = 9.0
    with np.errstate(all="ignore"):
        if float(np.float32(exponent)) != exponent:
            # An error d in the exponent is d |log a| in the result: up to 88 u, before it is too large for float32.
            base = functions["maximum"](functions["abs"](a.value), 1e-300)
            own = own + abs(exponent) * functions["abs"](functions["log"](base))
    magnitude = _with_condition(own * size, abs(exponent) * size, a, functions)
    return Sized(value, magnitude, False, a.operations + 1)


def applied(name: str, arguments: tuple[Sized, ...], functions: Functions) -> Sized:
    """Return a function of one or two arguments."""
    a = arguments[0]
    value = functions[name](*(argument.value for argument in arguments))
    operations = sum(argument.operations for argument in arguments) + 1
    exact = all(argument.exact for argument in arguments)
    if name == "abs":
        return Sized(value, a.magnitude, exact, a.operations)
    if name in ("maximum", "minimum"):
        magnitude = functions["maximum"](a.magnitude, arguments[1].magnitude)
        return Sized(value, magnitude, exact, operations)
    size = functions["abs"](value)
    if name == "sqrt":
        magnitude = _with_condition(size, size, a, functions)
    elif name == "exp":
        # An error d in a becomes e^a (e^d - 1) <= e^a d e^d; d is at most 65 u times the magnitude. Also for exact a:
        # exp2f(a * log2(e)) is a valid way to compute it.
        error = a.magnitude * functions["exp"](functions["minimum"](2.0**-18 * a.magnitude, 20.0))
        magnitude = size * (3.0 + error)
    elif name == "log":
        magnitude = _with_condition(3.0 * size, 1.0, a, functions)
    elif name == "sigmoid":
        # 1 / (1 + expf(-a)): the roundings of three steps, and 0 where the exponential is infinite.
        magnitude = 7.0 * size + SMALLEST_SIGMOID / UNIT
        if not exact:  # its slope is s (1 - s), and within the error of a at most twice that
            magnitude = magnitude + a.magnitude * functions["minimum"](0.25, 2.0 * size * (1.0 - value))
    elif exact:  # sin, cos, tanh, erf
        magnitude = 3.0 * size
    elif name == "erf":  # 1.13 is 2 / sqrt(pi); an error of up to 1/4 in a brings it that much nearer to 0
        near = functions["maximum"](functions["abs"](a.value) - 0.25, 0.0)
        magnitude = 3.0 * size + a.magnitude * (1.13 * functions["exp"](-(near * near)))
    elif name == "tanh":
        slope = functions["minimum"](1.0, 2.0 * (1.0 - value * value))
        magnitude = 3.0 * size + a.magnitude * slope
    else:
        magnitude = 3.0 * size + a.magnitude
    return Sized(value, magnitude, False, operations)


def _with_condition(own: Any, factor: Any, a: Sized, functions: Functions) -> Any:
    """Return ``own + factor * magnitude / |value|`` of an argument; ANYTHING where the bound fails."""
    if a.exact:
        return own
    where, size = functions["where"], functions["abs"](a.value)
    bounded = a.magnitude < MAX_CONDITION * size
    # An exact zero has no error: the function has its value there, if it has one.
    otherwise = where(functions["equal"](a.magnitude, 0.0), own, ANYTHING)
    return where(bounded, own + factor * (a.magnitude / where(bounded, size, 1.0)), otherwise)


def chosen(holds: Any, left: Sized, right: Sized, a: Sized, b: Sized, functions: Functions) -> Sized:
    """Return ``where(left < right, a, b)``, or with another comparison.

    Where rounding may decide the comparison either way, both results are correct, so the magnitude allows their whole
    difference. Comparisons of inputs with each other or with float32 numbers are exact.
    """
    where = functions["where"]
    value = where(holds, a.value, b.value)
    magnitude = where(holds, a.magnitude, b.magnitude)
    operations = left.operations + right.operations + a.operations + b.operations + 1
    exact = left.exact and right.exact
    if exact:
        return Sized(value, magnitude, a.exact and b.exact, operations)
    absolute = functions["abs"]
    window = sum(
        (side.operations + 1.0) * 2.0 * UNIT * side.magnitude for side in (left, right) if not side.exact
    )
    apart = absolute(a.value - b.value)
    both = functions["maximum"](a.magnitude, b.magnitude) + where(apart < ANYTHING, apart, ANYTHING) / UNIT
    close = absolute(left.value - right.value) <= window
    return Sized(value, where(close, both, magnitude), False, operations)


def _numpy_power(base: Any, exponent: float) -> Any:
    base = np.asarray(base)
    return (base if base.dtype.kind == "c" else base.astype(np.float64)) ** exponent


def _numpy_sigmoid(a: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-np.asarray(a)))


NUMPY: Functions = {
    **{name: getattr(np, name) for name in FUNCTIONS if hasattr(np, name)},
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sigmoid": _numpy_sigmoid,
    "equal": np.equal,
    "power": _numpy_power,
    "number": float,
}


def exactly(value: Any) -> Sized:
    """Return an input, or what has no rounding in it."""
    array = np.asarray(value)
    return Sized(value, np.abs(array if is_complex(array) else array.astype(np.float64)), True)


def is_whole(value: Any) -> bool:
    """Return whether a number or an array has integers or truth values."""
    return np.asarray(value).dtype.kind in "biu"


def is_complex(value: Any) -> bool:
    """Return whether a number or an array has complex numbers."""
    return np.asarray(value).dtype.kind == "c"
