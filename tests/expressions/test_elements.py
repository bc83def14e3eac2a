"""Element expressions: what is one, and its one text."""

from __future__ import annotations

import ast
import math
import re

import numpy as np
import pytest

from tests.expressions.random_expressions import OF, random_expressions
from tuner.core.errors import ExpressionError
from tuner.expressions.array import ArrayExpression
from tuner.expressions.elementwise import MAX_LENGTH, MAX_OPERATIONS, multiplications, parse_element
from tuner.runtime.expressions import MAX_DEPTH


@pytest.mark.parametrize(
    ("text", "canonical", "operations"),
    [
        ("x + 0.5 * (20 - x)", "x + 0.5 * (20 - x)", 3), ("  ( x+0.50*((20.0)-x) )\n", "x + 0.5 * (20 - x)", 3),
        ("x*1e3", "x * 1000", 1), ("x * 100_000", "x * 100000", 1), ("+x", "x", 0), ("-x", "-x", 0),
        ("x**2.0", "x ** 2", 1), ("x ** (-2)", "x ** -2", 2), ("x ** 7", "x ** 7", 4), ("x ** 0.5", "x ** 0.5", 1),
        ("x**0 + y", "x ** 0 + y", 1), ("maximum(x, 0)", "maximum(x, 0)", 1),
        ("where(x>=0, x, exp(x)-1)", "where(x >= 0, x, exp(x) - 1)", 4),
        ("where(x != y, 1, z)", "where(x != y, 1, z)", 2), ("x / (1 + exp(-x))", "x / (1 + exp(-x))", 3),
        ("1e22 * x", "1e+22 * x", 1), ("(x - y) - z", "x - y - z", 2), ("x - (y - z)", "x - (y - z)", 2),
        ("x / (y * z) / 2", "x / (y * z) / 2", 3), ("(x * y) / z", "x * y / z", 2),
        ("(x + y) * -z", "(x + y) * -z", 2), ("-(x ** 2)", "-x ** 2", 1), ("(-x) ** 2", "(-x) ** 2", 1),
        ("(x ** 2) ** 3", "(x ** 2) ** 3", 3), ("-(x + y)", "-(x + y)", 1), ("--(x * y)", "--(x * y)", 1),
    ],
)  # fmt: skip
def test_equal_expressions_have_one_text(text: str, canonical: str, operations: int) -> None:
    element = parse_element(text, OF)
    assert (element.text, element.operations) == (canonical, operations)
    assert parse_element(canonical, OF).text == canonical
    assert element.names == set(re.findall(r"\b[xyz]\b", canonical))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot parse"), ("x +", "cannot parse"), ("maximum(x, 0", "never closed"), ("x; y", "cannot parse"),
        ("q + x", "unknown name 'q'"), ("xx", "did you mean x"),
        ("tahn(x)", "unknown function 'tahn' in 'tahn(x)'; did you mean tanh?"),
        ("max(x, y)", "did you mean maximum"), ("__import__('os')", "unknown function"), ("x.real", "not allowed"),
        ("x[0]", "not allowed"), ("'x'", "not allowed"), ("True * x", "not allowed"),
        ("x if y else z", "not allowed"), ("x and y", "not allowed"), ("x > 0", "not allowed"),
        ("not x", "not allowed"), ("x @ y", "not allowed"), ("x // y", "not allowed"), ("x % y", "not allowed"),
        ("x ^ 2", "not allowed"), ("(lambda: x)()", "not allowed"), ("[x for x in y]", "not allowed"),
        ("f'{x}'", "not allowed"), ("(x := 1)", "not allowed"), ("(x, y)", "not allowed"),
        ("1j * x", "not allowed"), ("exp", "not allowed"), ("exp(x, y)", "exp takes 1"),
        ("exp(x=1)", "not allowed"), ("exp(*x)", "not allowed"), ("maximum(x)", "maximum takes 2"),
        ("where(x, y, z)", "no comparison"), ("where(x < y < z, 1, 2)", "no comparison"),
        ("where(x in y, 1, 2)", "no comparison"), ("x ** y", "exponent is a number"),
        ("x ** 65", "exponent is a number"), ("x ** --2", "exponent is a number"), ("1e39 * x", "no float32"),
        ("1e-60 * x", "no float32"), (f"{10**400} * x", "no float32"), ("x" + " " * MAX_LENGTH, "keep it under"),
        ("-" * (MAX_DEPTH + 1) + "x", "too deeply"), ("(" * 240 + "x" + ")" * 240, "cannot parse"),
        (" + ".join(["(x*x)"] * (MAX_OPERATIONS // 2 + 1)), "operations"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_element(text, OF)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_one_text_means_the_same() -> None:
    for expression in random_expressions(120, 23):
        again = parse_element(expression.text, OF)
        assert again.text == expression.text
        assert ast.dump(again.body) == ast.dump(expression.body)


def test_powers_by_repeated_squaring() -> None:
    powers = (0, 1, 2, 3, 4, 7, 8, 64, -1, -2, 0.5)
    assert [*map(multiplications, powers)] == [0, 0, 1, 2, 2, 4, 3, 6, 1, 2, 1]


def test_short_forms_are_what_they_stand_for() -> None:
    """They keep their names in the text, count with all their operations, and are right beside their definitions."""
    x = np.linspace(-6.0, 6.0, 101)
    tanh = 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))
    exact = np.array([0.5 * v * (1.0 + math.erf(v / math.sqrt(2.0))) for v in x])
    expected = {
        "relu(x)": np.maximum(x, 0.0),
        "silu(x)": x / (1.0 + np.exp(-x)),
        "gelu(x)": exact,
        "gelu_tanh(x)": tanh,
        "clamp(x, -1, 2)": np.clip(x, -1.0, 2.0),
    }
    for text, values in expected.items():
        element = parse_element(text)
        assert element.text == text
        np.testing.assert_allclose(ArrayExpression(text).evaluate({"x": x})[0], values, atol=1e-12)


def test_short_forms_are_not_nested_without_end() -> None:
    with pytest.raises(ExpressionError, match="too deep"):
        parse_element("gelu_tanh(" * 40 + "x" + ")" * 40)
