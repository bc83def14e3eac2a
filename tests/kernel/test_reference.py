"""The right answer and how far off a kernel may be: no correct kernel is rejected, no wrong one passes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.core.errors import ExpressionError, KernelError
from tuner.expressions.array import ArrayExpression
from tuner.expressions.array_evaluation import BeyondIntegersError
from tuner.kernel.golden import disagreement
from tuner.kernel.reference import (
    SMALLEST,
    UNIT_ROUNDOFF,
    Expected,
    SettledReference,
    as_output,
    as_results,
    in_full,
    norm_allowance,
    tolerance,
    word_of,
    wrong_text,
)
from tuner.runtime.launch_limits import rounded
from tuner.runtime.launches import Buffer

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("text", "value", "magnitude"),
    [
        ("a + b", lambda a, b: a + b, lambda a, b: abs(a) + abs(b)),
        ("a / b", lambda a, b: a / b, lambda a, b: abs(a / b)),
        ("a ** 2 + 1", lambda a, b: a**2 + 1, lambda a, b: 2 * a**2 + 1),
        ("(a - b) ** 3", lambda a, b: (a - b) ** 3, lambda a, b: 3 * (abs(a) + abs(b)) ** 3),
        ("0.1 * a", lambda a, b: 0.1 * a, lambda a, b: 0.2 * abs(a)),
        ("a @ b", lambda a, b: a @ b, lambda a, b: abs(a) @ abs(b)),
        ("sum(a - b, axis=1)", lambda a, b: (a - b).sum(1), lambda a, b: (abs(a) + abs(b)).sum(1)),
        ("mean(a, axis=0)", lambda a, b: a.mean(0), lambda a, b: abs(a).mean(0)),
        ("0 + where(a > 0, a, b)", lambda a, b: np.where(a > 0, a, b), lambda a, b: np.where(a > 0, abs(a), abs(b))),
        ("maximum(a, b) + 0", np.maximum, lambda a, b: np.maximum(abs(a), abs(b))),
        ("max(abs(a), axis=1) + 1", lambda a, b: abs(a).max(1) + 1, lambda a, b: abs(a).max(1) + 1),
        ("exp(a)", lambda a, b: np.exp(a), lambda a, b: np.exp(a) * (3 + abs(a) * np.exp(abs(a) * 2.0**-18))),
        ("sin(a + b)", lambda a, b: np.sin(a + b), lambda a, b: 3 * abs(np.sin(a + b)) + abs(a) + abs(b)),
        ("sqrt(a * a + b * b)", lambda a, b: np.hypot(a, b), lambda a, b: 2 * np.hypot(a, b)),
    ],
)  # fmt: skip
def test_values_and_magnitudes(text: str, value: object, magnitude: object) -> None:
    a, b = RNG.normal(size=(6, 6)), RNG.normal(size=(6, 6))
    values, weights = ArrayExpression(text).evaluate({"a": a, "b": b})
    np.testing.assert_allclose(values, value(a, b), rtol=1e-12)  # type: ignore[operator]
    np.testing.assert_allclose(weights, magnitude(a, b), rtol=1e-12)  # type: ignore[operator]
    assert (weights >= np.abs(values) * (1 - 1e-12)).all()


def test_choices_are_settled() -> None:
    mean = "mean(a) if op in ['mean', 'average'] else max(a)"
    text = f"sum(a) if op == 'sum' else ({mean}) / (2 if input != 'half' else 1)"
    expression = ArrayExpression(text)
    assert expression.names == {"a"}
    assert expression.compared == {"op": {"sum", "mean", "average"}, "input": {"half"}}
    a = np.array([1.0, 2.0, 6.0])
    for op, dtype, value in (
        ("sum", "x", 9.0),
        ("mean", "x", 1.5),
        ("average", "half", 3.0),
        ("max", "half", 6.0),
    ):
        settled = expression.settled({"op": op, "input": dtype})
        assert settled.evaluate({"a": a})[0] == value
        assert not settled.compared
    with pytest.raises(ExpressionError, match="settle it first"):
        expression.evaluate({"a": a})
    with pytest.raises(ExpressionError, match="unknown name 'input'"):
        expression.settled({"op": "sum"})
    plain = ArrayExpression("a + 1")
    assert plain.settled({}) is plain


def test_rounded_operands_are_allowed_for() -> None:
    """tf32 that truncates passes where the kernel may use it, and bfloat16 does not."""
    a, b, expected, magnitude = product(1024, "float32")

    def truncated(x: np.ndarray, bits: int) -> np.ndarray:
        kept = x.view(np.uint32) & np.uint32(0xFFFFFFFF << bits & 0xFFFFFFFF)
        return kept.view(np.float32).astype(np.float64)

    limits = tolerance(1024, "float32", "float32", operand_rounding=2.0**-10)
    plain = tolerance(1024, "float32", "float32")
    assert limits.coefficient == plain.coefficient + 2.0**-9
    assert limits.norm_coefficient == plain.norm_coefficient + 2.0**-9
    for bits, passes in ((13, True), (16, False)):
        computed = truncated(a, bits) @ truncated(b, bits)
        assert (norm_ratio(computed, expected, magnitude, limits) <= 1.0) == passes
        assert (bound(computed, expected, magnitude, limits) <= 1.0) or not passes


def bound(computed: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, limits: object) -> float:
    """Return the largest error over the error allowed."""
    allowed = limits.coefficient * magnitude + limits.unit * np.abs(expected) + limits.tiny  # type: ignore[attr-defined]
    return float((np.abs(computed - expected) / allowed).max())


def norm_ratio(computed: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, limits: object) -> float:
    scale = expected**2 + magnitude**2 / limits.reduction  # type: ignore[attr-defined]
    error = math.sqrt(float(((computed - expected) ** 2).sum() / scale.sum()))
    return error / (limits.norm_coefficient * norm_allowance(computed.size))  # type: ignore[attr-defined]


def product(k: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    kind = {"float32": np.float32, "float16": np.float16}[dtype]
    a, b = RNG.normal(size=(64, k)).astype(kind), RNG.normal(size=(k, 64)).astype(kind)
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    return a, b, a64 @ b64, np.abs(a64) @ np.abs(b64)


@pytest.mark.parametrize("k", [1, 256, 8192])
@pytest.mark.parametrize("output", ["float32", "float16"])
def test_sequential_float32_sums_pass(k: int, output: str) -> None:
    """The least careful of the correct kernels: one float32 accumulator, term after term."""
    a, b, expected, magnitude = product(k, "float32" if output == "float32" else "float16")
    total = np.zeros((64, 64), np.float32)
    for i in range(k):
        total += np.outer(a[:, i].astype(np.float32), b[i].astype(np.float32))
    computed = total.astype(np.float32 if output == "float32" else np.float16).astype(np.float64)
    limits = tolerance(k, "float32", output)
    assert bound(computed, expected, magnitude, limits) <= 1.0
    assert norm_ratio(computed, expected, magnitude, limits) <= 1.0


@pytest.mark.parametrize("k", [64, 2048])
def test_float16_accumulation_does_not_pass_for_float32(k: int) -> None:
    a, b, expected, magnitude = product(k, "float16")
    total = np.zeros((64, 64), np.float16)
    for i in range(k):
        total += np.outer(a[:, i], b[i])
    limits = tolerance(k, "float32", "float16")
    computed = total.astype(np.float64)
    assert (
        max(bound(computed, expected, magnitude, limits), norm_ratio(computed, expected, magnitude, limits))
        > 1.0
    )


@pytest.mark.parametrize("k", [64, 4096])
def test_tf32_does_not_pass_for_float32(k: int) -> None:
    a, b, expected, magnitude = product(k, "float32")

    def truncated(x: np.ndarray) -> np.ndarray:
        bits = x.view(np.uint32)
        return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)

    computed = truncated(a) @ truncated(b)
    assert norm_ratio(computed, expected, magnitude, tolerance(k, "float32", "float32")) > 1.0


@pytest.mark.parametrize("output", ["float32", "float16", "bfloat16"])
def test_a_missing_term_does_not_pass(output: str) -> None:
    k = 256
    a, b, expected, magnitude = product(k, "float32")
    computed = a[:, :-1].astype(np.float64) @ b[:-1].astype(np.float64)
    limits = tolerance(k, "float32", output)
    assert (
        max(bound(computed, expected, magnitude, limits), norm_ratio(computed, expected, magnitude, limits))
        > 1.0
    )


@pytest.mark.parametrize(
    ("terms", "coefficient", "norm"),
    [(1, 3.125, 4 + 1 / 16), (64, 64 + 8 + 2, 16 + 4 + 2), (100, 80 + 12.5 + 2, 20 + 6.25 + 2)],
)
def test_tolerance_is_what_the_page_says(terms: int, coefficient: float, norm: float) -> None:
    u, r = 2.0**-24, 2.0**-11
    limits = tolerance(terms, "float32", "float16", 3.0)
    assert limits.coefficient == pytest.approx(3 * u * coefficient, rel=1e-12)
    assert limits.norm_coefficient == pytest.approx(3 * (u * norm + 0.6 * r), rel=1e-12)
    assert (limits.unit, limits.tiny, limits.reduction) == (3 * r * (1 + 2.0**-10), 2.0**-24, terms)
    assert tolerance(terms, "int32", "float16").coefficient == 0.0


def test_what_the_default_made_has_the_magnitude_of_a_sum_of_terms_of_either_sign() -> None:
    of_sums = SettledReference("float32", 16, rounded="the default configuration")
    expected = as_results("y", "float32", np.array([3.0, -4.0, np.inf, 0.0]), of_sums)
    np.testing.assert_allclose(expected.magnitude, np.array([3, 4, 0, 0]) + 4 * math.sqrt(25 / 4))
    assert (as_results("y", "float32", np.zeros(3), of_sums).magnitude == 0).all()
    assert (
        as_results("y", "float64", np.full(2, 1e300), SettledReference("float32", 4)).magnitude == 3e300
    ).all()
    assert (as_results("y", "int32", np.array([5, -5]), of_sums).magnitude == 0).all()
    untouched = np.frombuffer(b"\xff" * 8)[0]
    for left, does in ((untouched, "leaves"), (np.nan, "computes")):
        with pytest.raises(
            KernelError, match=rf"the default configuration {does} NaN in 2 of 4 elements of y \(\[0, 1\]\)"
        ):
            as_results("y", "float32", np.array([[1.0, left], [left, 1.0]]), of_sums)


def test_floats_are_integers_up_to_the_last_that_they_all_have() -> None:
    value = np.array([2.0**53, -(2.0**53)])
    assert as_output("y", "int64", value, value, "it").value.tolist() == [2**53, -(2**53)]
    with pytest.raises(KernelError, match=r"a float above 2\^53 in 1 of 2 elements \(\[1\]\)"):
        as_output("y", "int64", np.array([0.0, 2.0**53 + 2]), value, "it")
    wrapped = np.array([128, -129])
    assert as_output("y", "int8", wrapped, value, "it").value.tolist() == [-128, 127]
    with pytest.raises(BeyondIntegersError):
        as_output("y", "int8", wrapped, value, "it", wraps=False)
    assert as_output("y", "int8", wrapped // 2, value, "it", wraps=False).value.tolist() == [64, -65]


@pytest.mark.parametrize(
    ("output", "inputs", "word"),
    [
        ("int64", [], 2.0**63),
        ("uint32", ["int64"], 2.0**32),
        ("int8", ["int64"], 2.0**31),
        ("float32", ["int8", "uint32"], 2.0**32),
        ("float32", ["float32"], 2.0**31),
    ],
)
def test_from_where_on_integers_on_the_way_may_have_wrapped(
    output: str, inputs: list[str], word: float
) -> None:
    tensors = [Buffer("x", (1,), dtype, "input") for dtype in inputs]
    assert word_of(Buffer("y", (1,), output, "output"), tensors) == word


@pytest.mark.parametrize("dtype", UNIT_ROUNDOFF)
def test_what_rounding_costs_is_what_a_dtype_rounds(dtype: str) -> None:
    """One and a unit roundoff is a tie, to even; a little more is rounded up. Half of the smallest number is zero."""
    unit, smallest = UNIT_ROUNDOFF[dtype], SMALLEST[dtype]
    assert rounded(1.0 + unit, dtype) == 1.0
    assert rounded(1.0 + (unit + unit / 64 if dtype != "float64" else 2 * unit), dtype) == 1.0 + 2 * unit
    assert rounded(smallest, dtype) == smallest > 0.0 == rounded(smallest / 2, dtype)


def test_norm_allowance_is_for_few_elements() -> None:
    assert norm_allowance(1) > norm_allowance(100) > norm_allowance(10**8) == pytest.approx(1.0, abs=1e-3)
    assert [norm_allowance(count) for count in (1, 16, 10_000)] == [5.0, 2.0, 1.04], (
        "more would hide what is wrong"
    )


@pytest.mark.parametrize(("dtype", "near", "far"), [("float64", 0.9e-9, 1.1e-9), ("float32", 1.9e-8, 2e-8)])
def test_references_agree_within_a_billionth_and_a_tenth_of_what_a_sum_may_be_off(
    dtype: str, near: float, far: float
) -> None:
    host = Expected(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    for off, where in ((near, None), (-near, None), (far, (1,)), (-far, (1,))):
        assert disagreement(tolerance(1, dtype, dtype), np.array([1.0, 2.0 + 2.0 * off]), host) == where


def test_element_expressions_replace_their_names() -> None:
    expression = ArrayExpression("2 * op + sum(op)").settled({}, {"op": "x - 1"})
    assert expression.names == {"x"}
    assert list(expression.evaluate({"x": np.array([3.0, 1.0])})[0]) == [6.0, 2.0]
    assert ArrayExpression("op").settled({}, {"op": "x ** -2"}).names == {"x"}


def test_numbers_of_messages() -> None:
    assert [in_full(2**60 + 1), in_full(np.int64(-7)), in_full(1 / 3), in_full(1 / 3, 9)] == [
        "1152921504606846977", "-7", "0.333333", "0.333333333"
    ]  # fmt: skip
    assert wrong_text(1, 2, 1, 1) == "is 1, expected 2; 1 of 1 elements are wrong"
    assert wrong_text(0.1, 0.1 + 1e-8, 1, 1).startswith("is 0.1, expected 0.10000001;")
    assert wrong_text(1, 2, 1, 2) == "is 1, expected 2; 1 of 2 elements are wrong"


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "int64", "uint32"])
def test_integers_are_exact(dtype: str) -> None:
    limits = tolerance(100, "int32", dtype)
    assert (limits.coefficient, limits.unit, limits.norm_coefficient) == (0.0, 0.0, 0.0)
    assert 0.0 < limits.tiny < 1.0


def test_integers_of_references_are_equal_also_where_a_difference_overflows() -> None:
    least, zero = np.array([-(2**63)]), Expected(np.zeros(1, np.int64), 0.0)
    assert disagreement(tolerance(1, "int64", "int64"), least, zero) == (0,)
