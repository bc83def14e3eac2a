"""Translate element expressions to CUDA C++: values in float or double, magnitudes in double.

No part of a user's text gets into the code: operators, functions and literals are written here, and names are only
those that the expression may use. Each result is one C++ expression over variables of these names.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tuner.expressions import magnitudes
from tuner.expressions.elementwise import (
    FUNCTIONS,
    ElementExpression,
    checked_exponent,
    expanded,
    parse_element,
)
from tuner.expressions.magnitudes import ANYTHING, Sized
from tuner.expressions.parsing import BINARY_SIGNS, COMPARE_SIGNS, copied

_C_NAMES = {"abs": "fabs", "maximum": "fmax", "minimum": "fmin", "power": "pow"}
_OF_16_BITS = ("float16", "bfloat16")
_LOGISTIC = (0.0, 0.999948982, -0.9962757, 0.953420743, -0.770572928, 0.417937859, -0.104484464)
"""Coefficients, the constant first, of ``e / (1 + e)`` for ``e`` from 0 to 1."""
_ANY = 3.4e38
"""The largest float32, in the digits that matter: a bound that infinity alone exceeds."""
TAILS = {
    "gelu": (
        (-1.00013442, -1.1489891, -0.464517158, -0.047949513, 0.00574347676, -0.000312084242),
        (0.0, 1.0),
        _ANY,
    ),
    "gelu_tanh": (
        (-1.00016776, -1.14946452, -0.459838287, -0.0581556173, 0.0174949285, -0.00505774637, 0.0003858597),
        (0.0, 1.0),
        8.0,
    ),
    "silu": ((0.0, -1.44269504), _LOGISTIC, _ANY),
}
"""Short forms that are ``max(a, 0) - t * tail(t)`` with ``t = abs(a)``, and two polynomials for the tail: the first, of
``t``, is the logarithm to base 2 of ``e``, the second, of ``e``, the tail. They are minimax fits (least squares with
Lawson's weights): within 2^-13 of the tail, where it is 2^-18 or more; beyond, of arguments below -4.5, a gelu is
within 4e-9, one by tanh below -4.3 within 8e-9. Last the largest ``t`` for which the first is evaluated; beyond, it
goes on in a straight line. Exponential, division, erf and tanh of float32 are more instructions."""


def cuda(text: str, output: str = "float32") -> str:
    """Return an element expression's value as C++ over ``float`` variables.

    Args:
        text: the expression.
        output: what it is rounded to. For 16 bits an expression that is one of :data:`TAILS`, of anything, is within
            2^-13 of its value, and calls ``exp2_normal`` of ``templates/device/exp2.cuh.j2``. As a part of another
            it is precise: what is left where terms cancel may have any error.
    """
    expression = parse_element(text)
    match expression.written:
        case ast.Call(func=ast.Name(id=name), args=[argument]) if name in TAILS and output in _OF_16_BITS:
            return f"{_by_tail(*TAILS[name])}({_value(expanded(copied(argument)), 'float', str)})"
    return _value(expression.body, "float", str)


def cuda_double(text: str) -> str:
    """Return an element expression's value as C++ over ``double`` variables."""
    return _value(parse_element(text).body, "double", str)


def cuda_macro(name: str, text: str, of: tuple[str, ...]) -> str:
    """Return a ``#define`` with the expression's names as parameters, of any type that can be cast to float."""
    body = _value(parse_element(text).body, "float", lambda variable: f"((float)({variable}))")
    return f"#define {name}({', '.join(of)}) ({body})"


def cuda_magnitude(text: str, computed: Iterable[str] = ()) -> str:
    """Return an element expression's magnitude (``tuner.expressions.magnitudes``) as C++ over ``double`` variables.

    Args:
        text: the expression.
        computed: names that are no inputs but were computed, so that they have errors: the magnitude of ``n`` is the
            variable ``n_magnitude``. A mapping gives the number of operations of each, as C++.
    """
    expression = parse_element(text)
    recorder = _Recorder(expression, computed)
    sized = _sized(expression.body, recorder)
    if sized.exact:
        return "0.0"
    result = recorder.where(sized.magnitude < ANYTHING, sized.magnitude, recorder.number(ANYTHING))
    return f"[&] {{ {' '.join(recorder.lines)} return {result}; }}()"


def literal(value: float, kind: str) -> str:
    """Return a C literal: as float the nearest float32, in the fewest digits that identify it."""
    return f"{np.float32(value)!s}f" if kind == "float" else repr(float(value))


def _value(node: ast.expr, kind: str, variable: Callable[[str], str]) -> str:
    def run(child: ast.expr) -> str:
        return _value(child, kind, variable)

    match node:
        case ast.Constant(value=int() | float() as value):
            return literal(value, kind)
        case ast.Name(id=name):
            return variable(name)
        case ast.UnaryOp(operand=operand):
            return f"(-{run(operand)})"
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            simple = isinstance(left, ast.Name | ast.Constant)
            return _power(run(left), checked_exponent(right), kind, simple=simple)
        case ast.BinOp(left=left, op=op, right=right):
            return f"({run(left)} {BINARY_SIGNS[type(op)]} {run(right)})"
        case ast.Call(func=ast.Name(id="where"), args=[ast.Compare() as condition, then, otherwise]):
            sign = COMPARE_SIGNS[type(condition.ops[0])]
            comparison = f"{run(condition.left)} {sign} {run(condition.comparators[0])}"
            return f"({comparison} ? {run(then)} : {run(otherwise)})"
        case ast.Call(func=ast.Name(id="sigmoid"), args=[argument]):
            exponential, one = "expf" if kind == "float" else "exp", literal(1.0, kind)
            return f"({one} / ({one} + {exponential}(-{run(argument)})))"
        case ast.Call(func=ast.Name(id=name), args=arguments):
            function = _C_NAMES.get(name, name) + ("f" if kind == "float" else "")
            return f"{function}({', '.join(map(run, arguments))})"
    raise AssertionError(node)


def _by_tail(logarithm: tuple[float, ...], tail: tuple[float, ...], largest: float) -> str:
    """Return a function of one float, a short form of :data:`TAILS`, as C++. Of infinity it is infinity, which is not
    multiplied by a tail of 0; of minus infinity it is 0, its limit. What is no number goes through ``t``."""
    first, *others = logarithm
    exponent = f"{literal(first, 'float')} + " if first else ""
    return (
        f"[](float a) {{ const float t = fabsf(a), near = fminf(t, {literal(largest, 'float')}), "
        f"e = exp2_normal({exponent}t * ({_polynomial(tuple(others), 'near')})); "
        f"return fmaxf(a, 0.0f) - near * ({_polynomial(tail, 'e')}); }}"
    )


def _polynomial(coefficients: tuple[float, ...], variable: str) -> str:
    """Return a polynomial as C++, one multiplication and addition for each coefficient (Horner)."""
    text = ""
    for coefficient in reversed(coefficients):
        number = literal(coefficient, "float") if coefficient or not text else ""
        text = " + ".join(filter(None, (number, f"{variable} * ({text})" if text else "")))
    return text


def _power(base: str, exponent: float, kind: str, *, simple: bool) -> str:
    """Return a power as C++: products for a whole exponent, a square root, else the library's function."""
    suffix = "f" if kind == "float" else ""
    if exponent == 0.0:
        return literal(1.0, kind)
    if exponent == 1.0:
        return base
    if exponent == 0.5:
        return f"sqrt{suffix}({base})"
    if exponent != int(exponent):
        number = literal(abs(exponent), kind)
        return f"pow{suffix}({base}, {'-' if exponent < 0 else ''}{number})"
    if exponent < 0:
        return f"({literal(1.0, kind)} / {_power(base, -exponent, kind, simple=simple)})"
    if exponent == 2.0 and simple:
        return f"({base} * {base})"
    # A lambda, so that the base is computed once and its text does not double with each power.
    whole = int(exponent)
    squares = ["t"] + [f"t{1 << i}" for i in range(1, whole.bit_length())]
    lines = [f"const {kind} {b} = {a} * {a};" for a, b in itertools.pairwise(squares)]
    factors = [square for i, square in enumerate(squares) if whole >> i & 1]
    body = " ".join([*lines, f"return {' * '.join(factors)};"])
    return f"[]({kind} t) {{ {body} }}({base})"


def _writes(operator: str, kind: str = "double", *, swapped: bool = False) -> Callable[[_Term, Any], _Term]:
    """Return a method that adds a line with this operator."""

    def write(term: _Term, other: Any) -> _Term:
        left, right = (other, term) if swapped else (term, other)
        number = term.recorder.number
        return term.recorder.write(f"{number(left)} {operator} {number(right)}", kind)

    return write


class _Term:
    """A number in the generated code; arithmetic with it adds a line."""

    def __init__(self, text: str, recorder: _Recorder) -> None:
        self.text, self.recorder = text, recorder

    def __str__(self) -> str:
        return self.text

    def __neg__(self) -> _Term:
        return self.recorder.write(f"-{self}")

    __add__, __radd__ = _writes("+"), _writes("+", swapped=True)
    __sub__, __rsub__ = _writes("-"), _writes("-", swapped=True)
    __mul__, __rmul__ = _writes("*"), _writes("*", swapped=True)
    __truediv__ = _writes("/")
    __lt__, __le__ = _writes("<", "bool"), _writes("<=", "bool")
    equals = _writes("==", "bool")  # the operator stays Python's


class _Recorder:
    """Records the rules of ``tuner.expressions.magnitudes`` as lines of C++, each value once."""

    def __init__(self, expression: ElementExpression, computed: Iterable[str] = ()) -> None:
        self.lines: list[str] = []
        self.computed = computed if isinstance(computed, Mapping) else dict.fromkeys(computed, "0.0")
        self._prefix = "e_"
        while any(name.startswith(self._prefix) for name in expression.names):
            self._prefix += "_"
        self.functions: magnitudes.Functions = {
            **{name: self._function(_C_NAMES.get(name, name)) for name in (*FUNCTIONS, "power")},
            "where": self.where,
            "equal": lambda left, right: self.number(left).equals(right),
            "number": self.number,
            "sigmoid": lambda a: self.write(f"1.0 / (1.0 + exp(-{self.number(a)}))"),
        }

    def write(self, code: str, kind: str = "double") -> _Term:
        """Add a line, and return its result."""
        name = f"{self._prefix}{len(self.lines)}"
        self.lines.append(f"const {kind} {name} = {code};")
        return _Term(name, self)

    def number(self, value: Any) -> _Term:
        """Return a number as a term."""
        return value if isinstance(value, _Term) else _Term(literal(value, "double"), self)

    def where(self, condition: Any, then: Any, otherwise: Any) -> _Term:
        """Return ``condition ? then : otherwise``."""
        return self.write(f"{condition} ? {self.number(then)} : {self.number(otherwise)}")

    def _function(self, name: str) -> Callable[..., _Term]:
        return lambda *arguments: self.write(f"{name}({', '.join(str(self.number(a)) for a in arguments)})")


def _sized(node: ast.expr, recorder: _Recorder) -> Sized:
    functions = recorder.functions

    def run(child: ast.expr) -> Sized:
        return _sized(child, recorder)

    match node:
        case ast.Constant(value=int() | float() as value):
            return magnitudes.constant(float(value), functions)
        case ast.Name(id=name):
            variable = _Term(name, recorder)
            if name in recorder.computed:
                size, count = f"{name}_magnitude", f"({recorder.computed[name]})"
                return Sized(variable, _Term(size, recorder), False, _Term(count, recorder))  # type: ignore[arg-type]
            return Sized(variable, functions["abs"](variable), True)
        case ast.UnaryOp(operand=operand):
            return magnitudes.negated(run(operand))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return magnitudes.powered(run(left), checked_exponent(right), functions)
        case ast.BinOp(left=left, op=op, right=right):
            return magnitudes.combined(op, run(left), run(right), functions)
        case ast.Call(func=ast.Name(id="where"), args=[ast.Compare() as condition, then, otherwise]):
            a, b = run(condition.left), run(condition.comparators[0])
            sign = COMPARE_SIGNS[type(condition.ops[0])]
            holds = recorder.write(f"{a.value} {sign} {b.value}", "bool")
            return magnitudes.chosen(holds, a, b, run(then), run(otherwise), functions)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return magnitudes.applied(name, tuple(map(run, arguments)), functions)
    raise AssertionError(node)
