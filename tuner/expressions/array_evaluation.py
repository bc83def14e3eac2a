"""Evaluates the checked tree of a NumPy reference with magnitudes: integers exactly, others as float64 or complex128.

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
from tuner.expressions.array_functions import FUNCTIONS, MagnitudeRule, Takes
from tuner.expressions.magnitudes import NUMPY, Sized, exactly, is_complex, is_whole
from tuner.expressions.parsing import BINARY_SIGNS, COMPARE_SIGNS, shown
from tuner.runtime.expressions import COMPARISONS

INT64, UINT64 = 2.0**63, 2.0**64
"""Numbers of this size and more are beyond int64, and beyond uint64."""
FLOAT64_INTEGERS = 2.0**53
"""Up to here float64 has every integer."""
EXACT = ("abs", "maximum", "minimum")
"""Element-wise functions whose result is an integer where the arguments are."""
OF_COMPLEX = ("abs", "exp", "log", "sqrt")
"""Those whose rule for magnitudes is true of complex numbers, too."""
MAX_ELEMENTS = 1 << 28
"""Of a result that is more than twice as large as the largest tensor: 2 GiB, and as much for its magnitudes."""
Compare = Callable[[Any, Any], Any]


class BeyondIntegersError(ExpressionError):
    """A number is needed of which only the lowest bits are there."""


class Evaluation:
    """Values with their magnitudes: integers as int64 or uint64, which wrap as in C, others as float64 or complex128.

    Args:
        text: the expression, for errors.
        names: values by name; arrays of integers are int64 or uint64.
        twice: by node, what stands in the expression more than once and is computed once.
        whole: whether the result must be exact: no integer above 2^53 may become a float on the way.
        word: the size of numbers from which on arithmetic on integers may have wrapped. Sums and products may: their
            lowest bits are right all the same. A comparison, a quotient or a maximum of such numbers has no value.
        largest: of floats on the way to the result.
        most: elements of a result on the way; None for as many as memory may have.
    """

    def __init__(
        self,
        text: str,
        names: Mapping[str, Any],
        twice: Mapping[ast.AST, str],
        *,
        whole: bool = False,
        word: float = INT64,
        largest: float = math.inf,
        most: float | None = None,
    ) -> None:
        self._text, self._names = text, names
        self._whole_names = {name: value for name, value in names.items() if isinstance(value, int)}
        largest_tensor = max((int(np.size(value)) for value in names.values()), default=1)
        self._most = most or max(MAX_ELEMENTS, 2 * largest_tensor)
        self._twice, self._known = twice, dict[str, Sized]()
        self._exactly, self._word, self._largest = whole, word, largest
        self._infinite = any(np.isinf(value).any() for value in names.values())
        """Whether an input is infinite, as masks are: infinity is exact, whatever is added to it."""

    def run(self, node: ast.expr) -> Sized:
        """Return the value of a node.

        Raises:
            ExpressionError: a result would be too large, or has a float that is; or a bound is no whole number.
        """
        text = self._twice.get(node, "")
        if text in self._known:
            return self._known[text]
        sized = self._computed(node)
        if self._infinite:
            sized = replace(sized, magnitude=np.where(np.isinf(sized.value), 0.0, sized.magnitude))
        if text:
            self._known[text] = sized
        if self._largest < math.inf and not isinstance(node, ast.Name) and self._overflows(sized):
            raise ExpressionError(
                f"reference {shown(self._text)} has numbers above {self._largest:.2g} on the way",
                "write it so that it has none, or have smaller inputs",
            )
        return sized

    def _computed(self, node: ast.expr) -> Sized:
        match node:
            case ast.Constant(value=int() | float() | complex() as value):
                return self._constant(value)
            case ast.Name(id=name):
                return exactly(self._names[name])
            case ast.UnaryOp():
                return magnitudes.negated(self.run(node.operand))
            case ast.BinOp(op=ast.Pow(), right=right):
                return self._power(self.run(node.left), elementwise.checked_exponent(right))
            case ast.BinOp():
                return self._binary(node.op, self.run(node.left), self.run(node.right))
            case ast.Compare():
                return self._compared(*self._sides(node))
            case ast.Subscript():
                index = self._index(node.slice)
                return self._moved(lambda array: np.asarray(array)[index], [self.run(node.value)])
            case ast.Call(func=ast.Name(id="where"), args=[ast.Compare() as test, then, otherwise]):
                compare, one, other = self._sides(test)
                branches = self.run(then), self.run(otherwise)
                self._check_broadcast(one, other, *branches)
                return self._chosen(compare, one, other, *branches)
            case ast.Call(func=ast.Name(id=name)) if name in elementwise.FUNCTIONS:
                arguments = tuple(self.run(child) for child in node.args)
                self._check_broadcast(*arguments)
                return self._applied(name, arguments)
            case ast.Call(func=ast.Name(id=name)):
                return self._called(name, node)
        raise AssertionError(node)

    def _overflows(self, sized: Sized) -> bool:
        """Return whether arithmetic has left the range; an infinity that an input has may stay one."""
        beyond = np.abs(sized.value) > self._largest
        return bool((beyond & np.isfinite(sized.value) if self._infinite else beyond).any())

    def floating(self, a: Sized, what: str) -> Sized:
        """Return a number for an operation that computes in float64.

        Raises:
            ExpressionError: that would round it, and the result must be exact.
            BeyondIntegersError: it may have wrapped.
        """
        if not is_whole(a.value):
            return a
        value = np.asarray(self._settled(a, what).value, np.float64)
        if self._exactly and (np.abs(value) > FLOAT64_INTEGERS).any():
            raise ExpressionError(
                f"{what} in reference {shown(self._text)} rounds integers above 2^53 to float64",
                "keep to operations on integers, or write a Python reference that is exact",
            )
        rounded = isinstance(a.value, int) and float(np.float32(a.value)) != a.value
        return replace(a, value=value, magnitude=(2.0 if rounded else 1.0) * a.magnitude)

    def _settled(self, a: Sized, what: str) -> Sized:
        """Return a number for an operation that must know all of it."""
        if is_whole(a.value) and np.size(a.magnitude):
            # The magnitude bounds what is on the way to a number as well. At int64's limit it is rounded itself. Inputs
            # are as wide as they are: of them a number as large as a word is the lowest without its sign.
            word = UINT64 if np.asarray(a.value).dtype == np.uint64 else self._word
            largest = np.max(a.magnitude)
            beyond = word >= INT64 or np.max(a.value) == largest
            if a.exact:
                wrapped = word < INT64 and bool(np.any(a.value == word))
            else:
                wrapped = bool(largest > word or (largest == word and beyond))
            if wrapped:
                raise BeyondIntegersError(
                    f"{what} in reference {shown(self._text)} gets integers of {word:.3g} or more, "
                    "which may have wrapped",
                    "have smaller inputs by init = { uniform = [a, b] }, or write a Python reference",
                )
        return a

    def _alike(self, what: str, *numbers: Sized) -> list[Sized]:
        """Return numbers as they are where all are integers or none is, and else as floats.

        Beside uint64, other integers become such ones, as in C.
        """
        if len({is_whole(number.value) for number in numbers}) < 2:
            if any(np.asarray(number.value).dtype == np.uint64 for number in numbers):
                return [
                    replace(number, value=np.asarray(number.value).astype(np.uint64)) for number in numbers
                ]
            return list(numbers)
        return [self.floating(number, what) for number in numbers]

    def _refuse_complex(self, what: str, *numbers: Sized) -> None:
        if any(is_complex(number.value) for number in numbers):
            raise ExpressionError(
                f"{what} of complex numbers in reference {shown(self._text)}", "use abs, real or imag of them"
            )

    # -- operations

    def _constant(self, value: complex) -> Sized:
        if isinstance(value, complex):
            part = magnitudes.constant(value.imag, NUMPY)
            return replace(part, value=value)
        number = magnitudes.constant(float(value), NUMPY)
        # That an integer may be rounded to float32 counts where it becomes a float.
        return replace(number, value=value, magnitude=abs(value)) if isinstance(value, int) else number

    def _power(self, a: Sized, exponent: float) -> Sized:
        whole = is_whole(a.value) and exponent >= 0.0 and exponent.is_integer()
        power = magnitudes.powered(a if whole else self.floating(a, "**"), exponent, NUMPY)
        if whole:
            power = replace(power, value=np.asarray(a.value) ** int(exponent))
        if exponent == 0.0:  # which the rules take for a number
            return replace(power, value=np.broadcast_to(power.value, np.shape(a.value)))
        return power

    def _binary(self, op: ast.operator, a: Sized, b: Sized) -> Sized:
        if isinstance(op, ast.MatMult):
            return self._product(*self._alike("@", a, b))
        self._check_broadcast(a, b)
        sign = BINARY_SIGNS[type(op)]
        if isinstance(op, ast.Div):
            a, b = self.floating(a, sign), self.floating(b, sign)
        a, b = self._alike(sign, a, b)
        return magnitudes.combined(op, a, b, NUMPY)

    def _product(self, a: Sized, b: Sized) -> Sized:
        """Return a matrix product."""
        shapes = np.shape(a.value), np.shape(b.value)
        rows, columns = shapes[0][-2:-1], shapes[1][-1:] if len(shapes[1]) > 1 else ()
        self._check_count((*np.broadcast_shapes(shapes[0][:-2], shapes[1][:-2]), *rows, *columns), "@")
        operations = a.operations + b.operations + 2.0 * (shapes[0][-1] if shapes[0] else 1)
        magnitude = a.magnitude @ b.magnitude
        if is_whole(a.value) and (magnitude <= FLOAT64_INTEGERS).all():
            # Exact in float64, too, which BLAS multiplies at a hundred times the speed.
            value = (np.asarray(a.value, np.float64) @ np.asarray(b.value, np.float64)).astype(np.int64)
        else:
            value = a.value @ b.value
        return Sized(value, magnitude, False, operations)

    def _sides(self, node: ast.Compare) -> tuple[Compare, Sized, Sized]:
        left, right = self.run(node.left), self.run(node.comparators[0])
        self._check_broadcast(left, right)
        return COMPARISONS[COMPARE_SIGNS[type(node.ops[0])]], left, right

    def _compared(self, compare: Compare, a: Sized, b: Sized) -> Sized:
        if compare not in (operator.eq, operator.ne):
            self._refuse_complex("a comparison", a, b)
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
        if name not in OF_COMPLEX:
            self._refuse_complex(name, *arguments)
        if name == "abs" and is_complex(arguments[0].value):
            size, a = np.abs(arguments[0].value), arguments[0]
            own = 3.0 * size  # hypotf is off by 3 ulp at most
            return Sized(size, own + (0.0 if a.exact else a.magnitude), False, a.operations + 1)
        if name in EXACT:
            arguments = tuple(self._settled(argument, name) for argument in self._alike(name, *arguments))
        else:
            arguments = tuple(self.floating(argument, name) for argument in arguments)
        return magnitudes.applied(name, arguments, NUMPY)

    # -- functions of arrays

    def _called(self, name: str, node: ast.Call) -> Sized:
        """Evaluate a function of arrays; its arrays are taken out of the arguments, so that magnitudes may follow."""
        function = FUNCTIONS[name]
        arrays: list[Sized] = []
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

        def given(values: tuple[Any, ...]) -> dict[str, Any]:
            return {parameter: values[index] for parameter, index in indices.items()} | arguments

        def run(*values: Any) -> Any:
            return function.run(**given(values))

        if function.count is not None:
            values = tuple(array.value for array in arrays)
            self._check_count((function.count(**given(values)),), name)
        if not arrays:
            return exactly(run())
        if function.rule is MagnitudeRule.MOVED:
            return self._moved(run, arrays)
        return self._reduced(function.rule, run, arguments, arrays[0])

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
        self, rule: MagnitudeRule, run: Callable[[Any], Any], arguments: Mapping[str, Any], a: Sized
    ) -> Sized:
        if rule is MagnitudeRule.KEPT:
            return replace(a, value=run(a.value))
        if rule in (MagnitudeRule.LARGEST, MagnitudeRule.PLACED):
            self._refuse_complex("max or min", a)
            a = self._settled(a, "max or min")
        if rule is MagnitudeRule.PLACED:
            if not a.exact:
                raise ExpressionError(
                    f"rounding may decide argmax or argmin in reference {shown(self._text)}",
                    "take it of inputs, or of abs, maximum and the like of them",
                )
            return exactly(run(a.value))
        value = run(a.value)
        if not is_whole(value):
            a = self.floating(a, "mean")
        spread = np.broadcast_to(a.magnitude, np.shape(a.value))
        if rule is MagnitudeRule.ADDED:
            return Sized(value, run(spread), False, a.operations + _summands(a.value, value))
        # Rounding may change which element is the largest, but its value by no more than the largest error.
        magnitude = np.abs(value) if a.exact else FUNCTIONS["max"].run(spread, **arguments)
        return Sized(value, magnitude, a.exact, a.operations)

    # -- whole numbers, and sizes

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

    def _indices(self, indices: Sized) -> Any:
        values = np.asarray(indices.value)
        whole = values.astype(np.int64)
        if not (whole == values).all():
            raise ExpressionError(
                f"the indices of take in reference {shown(self._text)} are no whole numbers",
                "take them from a tensor of integers, or from arange",
            )
        return whole

    def _check_broadcast(self, *operands: Sized) -> None:
        self._check_count(np.broadcast_shapes(*(np.shape(one.value) for one in operands)), "an operation")

    def _check_count(self, shape: tuple[int, ...], what: str) -> None:
        if (count := math.prod(shape)) > self._most:
            raise ExpressionError(
                f"{what} in reference {shown(self._text)} would have {count} elements, more than {self._most}",
                "correct it, use smaller sizes, or write a CUDA reference",
            )


def _summands(before: Any, after: Any) -> float:
    """Return how many elements were added up for one: all of them at most where none were left out."""
    count, left = np.size(before), np.size(after)
    return count / max(left, 1) if left != count else float(max(np.shape(before), default=1))
