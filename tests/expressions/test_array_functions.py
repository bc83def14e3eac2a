"""What NumPy references may do beside arithmetic: slices, padding, sums on the way; values, magnitudes and bounds."""

from __future__ import annotations

import random
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest

from tests.kernel_files import GOOD, write
from tuner.core.errors import ExpressionError, KernelError
from tuner.expressions import array_evaluation
from tuner.expressions.array import ArrayExpression
from tuner.kernel.load import load_kernel

RNG = np.random.default_rng(1)
NAMES: dict[str, Any] = {
    "x": RNG.normal(size=(6, 7)),
    "v": RNG.normal(size=7),
    "c": RNG.normal(size=(2, 3, 6)),
    "i": np.array([[3.0, 0.0], [5.0, -1.0]]),
    "n": 6,
    "k": 2,
    "alpha": 0.5,
}

MOVED = {
    # text: the same in NumPy
    "x[1:-1]": lambda x, **_: x[1:-1],
    "x[:, None]": lambda x, **_: x[:, None],
    "x[..., ::2]": lambda x, **_: x[..., ::2],
    "x[::-1, -3:]": lambda x, **_: x[::-1, -3:],
    "x[n - 2, k]": lambda x, **_: x[4, 2],
    "x[k:n // 2 + 1, :max(n - k, 1)]": lambda x, **_: x[2:4, :4],
    "c[1, :, None, ..., ::-2]": lambda c, **_: c[1, :, None, ..., ::-2],
    "transpose(c, (0, 2, 1))": lambda c, **_: np.swapaxes(c, 1, 2),
    "reshape(c, (2 * 3, -1))": lambda c, **_: c.reshape(6, 6),
    "flip(x, axis=1)": lambda x, **_: x[:, ::-1],
    "roll(x, -k, axis=1)": lambda x, **_: np.roll(x, -2, 1),
    "roll(x, (1, k), axis=(0, 1))": lambda x, **_: np.roll(x, (1, 2), (0, 1)),
    "pad(x, ((1, 0), (k, n)), mode='edge')": lambda x, **_: np.pad(x, ((1, 0), (2, 6)), "edge"),
    "pad(x, (2, 1), mode='reflect')": lambda x, **_: np.pad(x, (2, 1), "reflect"),
    "pad(x, k, 'symmetric')": lambda x, **_: np.pad(x, 2, "symmetric"),
    "pad(x, width=9, mode='wrap')": lambda x, **_: np.pad(x, 9, "wrap"),
    "pad(x, 1, constant_values=-2.5)": lambda x, **_: np.pad(x, 1, constant_values=-2.5),
    "pad(x, 1, constant_values=v[0])": lambda x, v, **_: np.pad(x, 1, constant_values=v[0]),
    "concatenate([x, v[None]])": lambda x, v, **_: np.concatenate([x, v[None]]),
    "concatenate((x, x[:, :k]), axis=1)": lambda x, **_: np.concatenate([x, x[:, :2]], 1),
    "stack([v, v[::-1]], axis=-1)": lambda v, **_: np.stack([v, v[::-1]], -1),
    "take(x, i, axis=0)": lambda x, **_: x[[[3, 0], [5, -1]]],
    "arange(n, -1, -k)": lambda **_: np.arange(6.0, -1, -2),
    "zeros((k, 3)) + 0 * v[:3]": lambda **_: np.zeros((2, 3)),
    "where(arange(n)[:, None] >= arange(7), x, 0)": lambda x, **_: np.tril(x),
}  # fmt: skip


@pytest.mark.parametrize("text", MOVED)
def test_moved_elements_are_numpys_and_their_magnitudes_move_along(text: str) -> None:
    expected = MOVED[text](**NAMES)
    value, magnitude = ArrayExpression(text).evaluate(NAMES)
    np.testing.assert_allclose(value, expected)
    if "0 *" not in text:
        np.testing.assert_array_equal(magnitude, np.zeros_like(expected))  # nothing is rounded
    if "-2.5" in text:
        return
    # Behind an operation elements have magnitudes, which move like them.
    _, behind = ArrayExpression(re.sub(r"\b([xvc])\b", r"(\1 * 3)", text)).evaluate(NAMES)
    tripled = {name: 3 * abs(NAMES[name]) for name in "xvc"}
    used = re.search(r"\b[xvc]\b", text) is not None
    np.testing.assert_allclose(behind, MOVED[text](**{**NAMES, **tripled}) if used else 0.0 * expected)


@pytest.mark.parametrize(
    ("text", "value", "magnitude"),
    [
        ("cumsum(v)", np.cumsum, lambda v: np.cumsum(abs(v))),
        ("cumsum(v[None], axis=1)", lambda v: np.cumsum(v)[None], lambda v: np.cumsum(abs(v))[None]),
        ("sum(v[1:] * v[:-1])", lambda v: v[1:] @ v[:-1], lambda v: abs(v[1:]) @ abs(v[:-1])),
        ("sum(c, axis=(0, -1))", lambda c: c.sum((0, 2)), lambda c: abs(c).sum((0, 2))),
        ("mean(reshape(c, (2, 3, 3, 2)), axis=(1, 3))", lambda c: c.reshape(2, 3, 3, 2).mean((1, 3)),
         lambda c: abs(c).reshape(2, 3, 3, 2).mean((1, 3))),
        ("max(c * c, axis=-1, keepdims=True)", lambda c: (c * c).max(-1, keepdims=True),
         lambda c: (c * c).max(-1, keepdims=True)),
        ("pad(v * v - v, 1, constant_values=0.1)", lambda v: np.pad(v * v - v, 1, constant_values=0.1),
         lambda v: np.pad(v * v + abs(v), 1, constant_values=0.2)),
        ("concatenate([v ** 0 * v, v * v])", lambda v: np.concatenate([v, v * v]),
         lambda v: np.concatenate([abs(v), v * v])),
        ("(v ** 0)[2:] + 1", lambda v: np.full(5, 2.0), lambda v: np.full(5, 2.0)),
        ("(x[:-2, 1:-1] + x[2:, 1:-1] - 4 * x[1:-1, 1:-1])",
         lambda x: x[:-2, 1:-1] + x[2:, 1:-1] - 4 * x[1:-1, 1:-1],
         lambda x: abs(x[:-2, 1:-1]) + abs(x[2:, 1:-1]) + 4 * abs(x[1:-1, 1:-1])),
        ("(x - mean(x, axis=-1, keepdims=True)) / sqrt(mean((x - mean(x, axis=-1, keepdims=True)) ** 2, -1, True))",
         lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), None),
    ],
)  # fmt: skip
def test_values_and_magnitudes(text: str, value: Any, magnitude: Any) -> None:
    expression = ArrayExpression(text)
    (name,) = expression.names
    values, magnitudes = expression.evaluate(NAMES)
    np.testing.assert_allclose(values, value(NAMES[name]), atol=1e-14)
    assert (magnitudes >= np.abs(values) * (1 - 1e-12)).all()
    if magnitude is not None:
        np.testing.assert_allclose(magnitudes, magnitude(NAMES[name]))


@pytest.mark.parametrize(
    "text",
    [
        "x[i]", "x[x > 0]", "x[1.5]", "x['a']", "x[alpha]", "x[k if n > 3 else 1:]", "x[::0]", "x[9]",
        "x[..., ...]", "x.T", "x.reshape(2, 3)", "pad(x, -1)", "pad(x, 1, mode='linear_ramp')",
        "pad(x, 1, mode='edge', constant_values=3)", "pad(x, 1, constant_values=v)",
        "pad(x, ((1, 1), (1, 1), (1, 1)))", "pad(x, 1, stat_length=3)", "roll(x, 1, 0, 1)", "roll(x, 1, axis=5)",
        "sum(x, axis=n)", "sum(x, 0, axis=0)", "concatenate([])", "concatenate([x, v])", "take(x, i * 100, axis=0)",
        "take(v, 1 / zeros(1))", "reshape(x, (5, -1))", "transpose(x, (0, 0))", "arange(0, 5, 0)", "zeros(-1)",
        "cumsum(x, axis='a')", "max(x[:0])", "argmax(v * v)", "x @ c", "reshape(x, 10 ** 30)",
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        ArrayExpression(text).evaluate(NAMES)
    assert "\n" not in str(caught.value)
    assert "reference" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "pad(x, 10**9)", "pad(x, ((0, 0), (0, 10**9)), mode='wrap')", "arange(10**9)", "zeros((10**5, 10**5))",
        "zeros(10**5)[:, None] + zeros(10**5)", "where(zeros(10**5)[:, None] > 1, zeros(10**5), 2)",
        "zeros((10**5, 1)) @ zeros((1, 10**5))", "take(zeros((2, 10**5)), zeros(10**5), axis=0)",
    ],
)  # fmt: skip
def test_results_beyond_memory_are_refused_before_it_is_spent(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(
            ExpressionError, match=r"would have \d+ elements, more than 268435456; correct it"
        ):
            ArrayExpression(text).evaluate(NAMES)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_the_bound_is_on_what_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor may be as large as it is, and a result twice that; steps that double add up to no more."""
    monkeypatch.setattr(array_evaluation, "MAX_ELEMENTS", 100)
    large = {"x": np.ones(1000), "y": np.ones(30)}
    assert ArrayExpression("x + pad(x, 500)[500:-500] * 2").evaluate(large)[0].size == 1000
    assert ArrayExpression("concatenate([x, x])").evaluate(large)[0].size == 2000
    assert ArrayExpression("stack([y, y, y])").evaluate({"y": large["y"]})[0].size == 90
    for text in (
        "concatenate([x, x, y])",
        "stack([x, x, x])",
        "concatenate([concatenate([x, x]), x])",
        "pad(x, 501)",
    ):
        with pytest.raises(ExpressionError, match="more than 2000"):
            ArrayExpression(text).evaluate(large)


def test_random_slices_are_numpys() -> None:
    dice = random.Random(5)

    def bound() -> str:
        return dice.choice(["", "", "-n", "k", "-1", "n // 2", "n - 1", "-k - 1", "9"])

    compared = 0
    for _ in range(150):
        step = dice.choice(["", ":2", ":-1", ":-k", ":n"])
        parts = [f"{bound()}:{bound()}{step}", dice.choice(["...", "None", "-k", ":", "1:"])]
        dice.shuffle(parts)
        text = f"x[{', '.join(parts)}]"
        expected = eval(text, {}, NAMES)  # noqa: S307 - of the line above
        value, magnitude = ArrayExpression(f"2 * {text}").evaluate(NAMES)
        np.testing.assert_array_equal(value, 2 * expected)
        np.testing.assert_array_equal(magnitude, abs(2 * expected))
        compared += expected.size > 0
    assert compared > 50


def test_tensors_are_no_bounds(tmp_path: Any) -> None:
    for text, said in {
        "x[n - 1:]": "",
        "x[x:]": "uses the tensor x as a bound",
        "x[m:]": "unknown name 'm'",
    }.items():
        path = str(write(tmp_path, GOOD.replace('"alpha * x"', f'"{text}"')))
        if not said:
            assert load_kernel(path).reference.numpy["y"].names == {"x", "n"}
            continue
        with pytest.raises(KernelError, match=said):
            load_kernel(path)


@pytest.mark.parametrize("text", ["x.T", "v + sum(x.T, 1)", "(x * 2).T"])
def test_an_attribute_for_transposing_is_answered_with_the_function(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"no function 'round'.* or a Python reference \(python = "):
        ArrayExpression("round(20 * x)")
    with pytest.raises(ExpressionError, match=r"write transpose\(x"):
        ArrayExpression(text)


def test_places_are_whole_numbers_of_what_rounding_does_not_change() -> None:
    for text, wanted in (
        ("argmax(x, axis=1)", NAMES["x"].argmax(1)),
        ("argmin(abs(v))", abs(NAMES["v"]).argmin()),
    ):
        found, magnitude = ArrayExpression(text).evaluate(NAMES, whole=True)
        assert found.dtype == np.int64 and (found == wanted).all() and not magnitude.any()
    with pytest.raises(ExpressionError, match="rounding may decide argmax"):
        ArrayExpression("argmax(v * v)").evaluate(NAMES)
