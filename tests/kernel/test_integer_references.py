"""What references on the host expect of integers, and of floats at the ends of their range."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernel_files import settled
from tuner.core.errors import TunerError
from tuner.expressions.array import ArrayExpression
from tuner.expressions.array_evaluation import BeyondIntegersError
from tuner.kernel.python_reference import Asked, expected_on_host
from tuner.kernel.reference import SettledReference
from tuner.runtime.launches import Buffer

BIG = 2**60
WHOLE = {
    "a": np.array([BIG + 1, -BIG - 3, 7, 2**62]),
    "b": np.array([BIG, -BIG - 4, -9, 2**62]),
    "s": np.array([-128, 127, 100, 3]),
    "m": np.arange(-8, 8).reshape(4, 4) * (BIG // 2**12),
    "f": np.array([0.5, 1.5, -2.0, 4.0]),
}


def whole(dtype: str, text: str, **names: object) -> list[int]:
    """Return what an expression expects of four integers."""
    inputs = {**WHOLE, **names}
    tensors = [Buffer(name, np.shape(value), "int64", "input") for name, value in inputs.items()]
    output = Buffer("y", (4,), dtype, "output")
    expected = expected_on_host(
        settled(numpy={"y": ArrayExpression(text)}), [*tensors, output], inputs, {"n": 4, "alpha": 0.5}
    )["y"]
    assert expected.value.dtype == np.int64
    return [int(value) for value in expected.value]


@pytest.mark.parametrize(
    ("dtype", "text", "expected"),
    [
        ("int64", "a + 1", [int(a) + 1 for a in WHOLE["a"]]),
        ("int64", "a - b", [1, 1, 16, 0]),
        ("int64", "where(a > b, a, 5)", [BIG + 1, -BIG - 3, 7, 5]),
        ("int64", "sum(a) + max(a) * 0 + arange(n)", [2**62 + 5 + i for i in range(4)]),
        ("int64", "cumsum(a)", [BIG + 1, -2, 5, 2**62 + 5]),
        ("int64", "m @ take(s, arange(n))", [int(sum(x)) for x in WHOLE["m"].astype(object) * WHOLE["s"]]),
        ("int64", "a ** 2", [(int(a) ** 2 + 2**63) % 2**64 - 2**63 for a in WHOLE["a"]]),
        ("int32", "sum(s) * 2147483647 + s", [(102 * (2**31 - 1) + int(v) + 2**31) % 2**32 - 2**31
                                              for v in WHOLE["s"]]),
        ("uint32", "s - 1", [2**32 - 129, 126, 99, 2]),
        ("int8", "2 * s", [0, -2, -56, 6]),
        ("uint8", "s * s", [0, 1, 16, 9]),
        ("int32", "pad(s[1:], ((1, 0)), constant_values=-1)", [-1, 127, 100, 3]),
    ],
)  # fmt: skip
def test_integers_are_expected_exactly_and_wrap_as_the_output_does(
    dtype: str, text: str, expected: list[int]
) -> None:
    assert whole(dtype, text) == expected


def test_a_kernel_that_saturates_is_asked_for_no_more_than_it_has_room_for() -> None:
    """Of a further content: the limits themselves are no numbers beyond 32 bits, the sum of two large ones is."""
    clamped = ArrayExpression("minimum(maximum(x + y, -2147483648), 2147483647)")
    tensors = [Buffer(name, (3,), "int32", "input") for name in "xy"] + [Buffer("z", (3,), "int32", "output")]
    inputs = {"x": np.array([2**15, -(2**15), 5]), "y": np.array([2**15, -(2**15), -7])}
    reference = settled(numpy={"z": clamped})
    expected = expected_on_host(reference, tensors, inputs, {}, asked=Asked(further=True))["z"]
    assert expected.value.tolist() == [2**16, -(2**16), -2]
    with pytest.raises(BeyondIntegersError, match=r"gets integers of 2.15e\+09 or more"):
        expected_on_host(
            reference, tensors, {**inputs, "x": np.array([2**31 - 1, 0, 0])}, {}, asked=Asked(further=True)
        )


@pytest.mark.parametrize(("dtype", "most"), [("float16", 65504.0), ("float32", 2.0**128 - 2.0**104)])
def test_what_overflows_on_the_way_is_no_further_content(dtype: str, most: float) -> None:
    """The largest numbers of a dtype are sums that a kernel can have; a little more is infinite."""
    tensors = [Buffer("x", (3,), dtype, "input"), Buffer("y", (3,), dtype, "output")]
    reference = SettledReference(dtype, numpy={"y": "(x + x) / 4"})
    expected = expected_on_host(
        reference, tensors, {"x": np.full(3, most / 2)}, {}, asked=Asked(further=True)
    )["y"]
    assert expected.value.tolist() == [most / 4] * 3
    with pytest.raises(TunerError, match=r"has numbers above \S+ on the way"):
        expected_on_host(
            reference, tensors, {"x": np.full(3, 1.001 * most / 2)}, {}, asked=Asked(further=True)
        )


def test_a_mask_of_infinities_hides_no_error() -> None:
    """A softmax of what is left says what is right, although infinity plus anything is infinity."""
    tensors = [Buffer(name, (3, 3), "float32", "input") for name in "xm"] + [
        Buffer("y", (3, 3), "float32", "output")
    ]
    power = "exp(x + m - max(x + m, axis=1, keepdims=True))"
    reference = SettledReference("float32", numpy={"y": f"{power} / sum({power}, axis=1, keepdims=True)"})
    mask = np.where(np.tri(3) > 0, 0.0, -np.inf)
    expected = expected_on_host(reference, tensors, {"x": np.ones((3, 3)), "m": mask}, {})["y"]
    assert np.allclose(expected.value, np.tri(3) / [[1], [2], [3]])
    assert np.isfinite(expected.magnitude).all() and (expected.magnitude[mask < 0] == 0).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a / 1", "/ in reference 'a / 1' rounds integers above 2\\^53"),
        ("a * 0.5", r"\* in reference .* rounds integers above 2\^53"),
        ("where(a > 0.5, 1, 0)", "comparison in reference .* rounds integers above 2\\^53"),
        ("maximum(a * a, b)", "maximum in reference .* gets integers of 9.22e\\+18 or more"),
        ("s / 2", r"not an integer in 2 of 4 elements \(\[1\]\); round it"),
        ("sqrt(s)", "not a number in 1 of 4"),
        ("f * 1e17", "a float above 2\\^53 in 4 of 4"),
    ],
)
def test_integers_that_a_float_would_round_are_refused(text: str, said: str) -> None:
    with pytest.raises(TunerError, match=said) as caught:
        whole("int64", text)
    assert "\n" not in str(caught.value)


def test_an_infinity_that_an_input_has_does_not_overflow() -> None:
    """As in a mask; what is finite beside it must still have room."""
    tensors = [Buffer(name, (3,), "float32", "input") for name in "xm"] + [
        Buffer("y", (3,), "float32", "output")
    ]
    reference = SettledReference("float32", numpy={"y": "(x + m) * 4"})
    mask = np.array([0.0, -np.inf, 0.0])
    expected = expected_on_host(
        reference, tensors, {"x": np.ones(3), "m": mask}, {}, asked=Asked(further=True)
    )["y"]
    assert expected.value.tolist() == [4.0, -np.inf, 4.0]
    with pytest.raises(TunerError, match=r"has numbers above \S+ on the way"):
        expected_on_host(
            reference, tensors, {"x": np.full(3, 1e38), "m": mask}, {}, asked=Asked(further=True)
        )


def test_floats_of_large_integers_have_room() -> None:
    """Only an output of integers asks for all digits."""
    large = {"s": np.array([120, -120])}
    tensors = [Buffer("s", (2,), "int32", "input"), Buffer("y", (2,), "float32", "output")]
    reference = settled(numpy={"y": ArrayExpression("maximum(s ** 11, 0) / 2")})
    expected = expected_on_host(reference, tensors, large, {})["y"]
    np.testing.assert_allclose(expected.value, [120.0**11 / 2, 0.0])
