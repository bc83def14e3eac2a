"""Error bounds of element expressions: every correct kernel meets them, and no wrong one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.expressions.random_expressions import OF, in_float32, inputs, random_expressions, worst_ratio
from tuner.expressions import magnitudes, row_blocks
from tuner.expressions.array import ArrayExpression
from tuner.expressions.elementwise import FUNCTIONS, parse_element
from tuner.kernel.reference import UNIT_ROUNDOFF, tolerance


@pytest.mark.parametrize("exponent", [4.0000002, 7.3, 33.000002, -2.7])
def test_an_exponent_that_is_no_float32_is_rounded_like_any_number(exponent: float) -> None:
    """Of a base far from 1, that moves the result by more than the function itself may err."""
    largest = 85.0 / abs(exponent)  # e ** 85 is still a float32
    base = np.exp(np.linspace(-largest, largest, 1001)).astype(np.float32)
    expression = parse_element(f"x ** {exponent}", OF)
    value, magnitude = ArrayExpression(expression.text).evaluate({"x": base.astype(np.float64)})
    computed = in_float32(expression.body, {"x": base}).astype(np.float64)
    assert worst_ratio(computed, value, magnitude, expression.operations, "float32") <= 1.0


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_float32_arithmetic_passes(dtype: str) -> None:
    """Some hundred random expressions, on inputs of each dtype, some of them at each other's thresholds."""
    tight = []
    for i, expression in enumerate(random_expressions(100, 17)):
        values = inputs(2000, i, dtype)
        values["y"][:100] = values["x"][:100]
        values["z"][50:200] = 0.0
        names = {name: values[name] for name in expression.names}
        with np.errstate(all="ignore"):
            value, magnitude = ArrayExpression(expression.text).evaluate(names)
            computed = in_float32(expression.body, {name: v.astype(np.float32) for name, v in names.items()})
        computed = np.broadcast_to(computed, value.shape).astype(np.float64)
        good = np.isfinite(value) & np.isfinite(computed)
        assert good.mean() > 0.99, expression
        ratio = worst_ratio(computed[good], value[good], magnitude[good], expression.operations, "float32")
        assert ratio <= 1.0, (expression, ratio)
        tight.append(ratio)
    assert np.median(tight) > 0.02  # and the bounds mean something


WRONG = [
    ("x + 0.5 * (20 - x)", "x + 0.5001 * (20 - x)"),
    ("x + 0.5 * (20 - x)", "x + 0.5 * (20 - y)"),
    ("x * y + 1", "x * y + 1.00001"),
    ("maximum(x, 0)", "maximum(x, 0.000001)"),
    ("tanh(x)", "tanh(x) * 1.00001"),
    ("x / (1 + exp(-x))", "x / (1.00001 + exp(-x))"),
    ("where(x * y > 0.1, x, y)", "where(x * y > 0.11, x, y)"),
    ("sqrt(x ** 2 + y ** 2)", "sqrt(x ** 2 + y ** 2) + 0.00001"),
]


@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_a_wrong_kernel_does_not_pass(right: str, wrong: str) -> None:
    expression = parse_element(right, OF)
    values = inputs(50_000, 3)
    value, magnitude = ArrayExpression(expression.text).evaluate(values)
    computed = ArrayExpression(parse_element(wrong, OF).text).evaluate(values)[0]
    assert worst_ratio(computed, value, magnitude, expression.operations, "float32") > 1.0


def test_arithmetic_in_half_does_not_pass() -> None:
    values = inputs(10_000, 3, "float16")
    x, y, z = (values[name].astype(np.float16) for name in "xyz")
    in_half = {
        "x + 0.5 * (20 - x)": x + 0.5 * (20 - x),
        "x * y + z": x * y + z,
        "x * x + y * y": x * x + y * y,
    }
    for text, result in in_half.items():
        expression = parse_element(text, OF)
        computed = result.astype(np.float64)
        value, magnitude = ArrayExpression(text).evaluate(values)
        assert worst_ratio(computed, value, magnitude, expression.operations, "float32") > 1.0
        rounded = value.astype(np.float16).astype(np.float64)
        assert worst_ratio(rounded, value, magnitude, expression.operations, "float16") <= 1.0


def test_what_only_selects_is_exact() -> None:
    values = {"x": np.array([1.0, -2.0, 3.0]), "y": np.array([-1.0, 5.0, 3.0])}
    for text in (
        "x",
        "-x",
        "maximum(x, y)",
        "abs(minimum(x, 2))",
        "where(x > y, x, -y)",
        "max(x)",
        "transpose(x)",
    ):
        assert not ArrayExpression(text).evaluate(values)[1].any(), text
    assert ArrayExpression("where(x > y, x, 0.1)").evaluate(values)[1].any()  # 0.1 is no float32


def test_at_a_threshold_either_branch_is_right() -> None:
    """Where rounding decides a comparison, and nowhere else; between inputs it never does."""
    x = np.array([1.0, 1.0 + 2.0**-23, 1.5, 0.5])
    value, magnitude = ArrayExpression("where(x * x * x > 1, 5, 7)").evaluate({"x": x})
    allowed = tolerance(3, "float32", "float32").coefficient * magnitude
    assert list(value) == [7.0, 5.0, 5.0, 7.0]
    assert list(allowed >= 2.0) == [True, True, False, False]
    assert allowed[2:].max() < 1e-5
    exact = ArrayExpression("where(x > 1, 5, 7) + 0").evaluate({"x": x})[1]
    assert exact.max() < 10.0


def test_where_float32_has_no_digits_left_any_result_is_allowed() -> None:
    x, y = np.array([3.0, 3.0, 3.0]), np.array([1 / 3, 0.5, 1 / 3 + 2.0**-26])
    for text in ("1 / (x * y - 1)", "log(x * y - 1)", "sqrt(x * y - 1)", "(x * y - 1) ** -2"):
        magnitude = ArrayExpression(text).evaluate({"x": x, "y": y})[1]
        assert list(magnitude >= magnitudes.ANYTHING) == [True, False, True], text


def test_unit_roundoff_is_that_of_the_reference() -> None:
    assert UNIT_ROUNDOFF["float32"] == magnitudes.UNIT
    assert set(FUNCTIONS) - {"where"} <= set(magnitudes.NUMPY)


ROWS = {"x": (37, 5), "y": (37, 5), "row": (5,), "one": (1, 5)}


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        ("exp(x - max(x, axis=1, keepdims=True)) / sum(exp(x), axis=-1, keepdims=True)", True),
        ("where(x > row, tanh(y) * one, -2 / x)", True),
        ("cumsum(x ** 2, axis=1)", True),
        ("x[:, :2] * y[:, 3:]", True),
        ("x[1:, :] - y[:36, :]", False),
        ("x - mean(x, axis=0, keepdims=True)", False),
        ("cumsum(x, axis=0)", False),
        ("max(x, axis=1) + row[0]", False),
        ("x @ transpose(y)", False),
    ],
)
def test_rows_are_computed_in_blocks_where_each_stands_alone(
    text: str, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = np.random.default_rng(0)
    names = {name: numbers.standard_normal(shape) for name, shape in ROWS.items()}
    whole, looked = ArrayExpression(text).evaluate(names), list[int]()
    monkeypatch.setattr(row_blocks, "BLOCK_ELEMENTS", 20)
    evaluate = ArrayExpression._sized

    def counted(self: Any, some: Any, **limits: Any) -> Any:
        looked.append(len(some["x"]))
        return evaluate(self, some, **limits)

    monkeypatch.setattr(ArrayExpression, "_sized", counted)
    value, magnitude = ArrayExpression(text).evaluate(names)
    assert (max(looked) < 37) is apart
    assert np.array_equal(value, whole[0]) and np.array_equal(magnitude, whole[1])


def test_what_stands_twice_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    applied, seen = magnitudes.applied, list[str]()

    def counted(name: str, *rest: Any) -> Any:
        seen.append(name)
        return applied(name, *rest)

    monkeypatch.setattr(magnitudes, "applied", counted)
    ArrayExpression("exp(x-1) / sum(exp(x - 1)) + exp(x)").evaluate({"x": np.ones(3)})
    assert seen == ["exp", "exp"]
