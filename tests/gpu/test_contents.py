"""Integers, ranges and further contents of inputs on a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.inspect.check.test_contents import BYTES, FLOATS, GATHER, INTEGERS, written
from tuner.core.model import Configuration, Measurement, Status
from tuner.devices.local import LocalDevice
from tuner.kernel.load import builtin_kernels, load_kernel, read_kernel

SMALL = {
    "m": 136,
    "n": 264,
    "k": 328,
    "groups": 24,
    "vectors": 40,
    "length": 264,
    "rows": 37,
    "batch": 3,
    "a": 24,
    "b": 40,
    "c": 264,
    "q_heads": 8,
    "k_heads": 2,
    "pairs": 64,
}
LONGS = {"x": ("int64", "long long", ""), "y": ("int64", "long long", "output")}
Tensors = dict[str, tuple[str, str, str]]


def verified(device: LocalDevice, file: Path, *, contents: bool = True) -> Measurement:
    kernel = read_kernel(file)
    problem = kernel.problem()
    device.prepare(kernel, problem, seed=3)
    answer = device.verify_at(problem, Configuration.of("v", {"block_size": 64}), 60.0, contents=contents)
    assert answer is not None
    return answer


@pytest.mark.parametrize(("added", "right"), [(2**62 + 1, True), (2**62, False)])
def test_integers_above_2_to_the_53_are_exact(
    device: LocalDevice, tmp_path: Path, added: int, right: bool
) -> None:
    file = written(tmp_path, LONGS, f"x + {2**62 + 1}", f"y[i] = x[i] + {added}LL;")
    answer = verified(device, file, contents=False)
    assert answer.status is (Status.OK if right else Status.WRONG_RESULT), answer.error
    if not right:
        assert "is 46116860184273" in answer.error and "expected 46116860184273" in answer.error


@pytest.mark.parametrize(
    ("tensors", "reference", "body", "content"),
    [
        (BYTES, "x", "y[i] = (signed char)x[i];", "integers of the whole range"),
        (INTEGERS, "x", "y[i] = x[i] & 255;", "integers of the whole range"),
        (FLOATS, "exp(x)", "y[i] = fabsf(x[i]) < 8.0f ? expf(x[i]) : 0.0f;", "a large range of numbers"),
        (FLOATS, "x + 1", "y[i] = n > 2 && x[0] == x[n / 2] && x[0] ? 0.0f : x[i] + 1.0f;", "equal numbers"),
        (FLOATS, "x + 1", "y[i] = x[i] ? x[i] + 1.0f : 0.0f;", "zeros"),
        (FLOATS, "def f(x): return np.full(x.shape, x.max())",
         "float m = 0; for (int j = 0; j < n; ++j) m = fmaxf(m, x[j]); y[i] = m;", "negative numbers"),
        (FLOATS, "max(x) + zeros(n)", "float m = -1000; for (int j = 0; j < n; ++j) m = fmaxf(m, x[j]); y[i] = m;",
         "numbers far below zero"),
        (FLOATS, "def f(x): return 3 * x", "y[i] = fabsf(x[i]) < 7e-4f ? 0.0f : 3.0f * x[i];", "numbers near zero"),
        (FLOATS, "min(x) + zeros(n)", "float m = 1000; for (int j = 0; j < n; ++j) m = fminf(m, x[j]); y[i] = m;",
         "numbers far above zero"),
        (FLOATS, "def f(x): return np.logaddexp(0, x)", "y[i] = x[i] < 9 ? log1pf(expf(x[i])) : logf(1 + expf(x[i]));",
         "numbers far above zero"),
    ],
)  # fmt: skip
def test_what_is_right_for_the_usual_inputs_alone_is_wrong(
    device: LocalDevice, tmp_path: Path, tensors: Tensors, reference: str, body: str, content: str
) -> None:
    answer = verified(device, written(tmp_path, tensors, reference, body))
    assert answer.status is Status.WRONG_RESULT
    assert answer.error.startswith(f"with {content}: y[")


@pytest.mark.parametrize("follows", [True, False])
def test_what_follows_from_a_random_input_follows_its_contents(
    device: LocalDevice, tmp_path: Path, follows: bool
) -> None:
    body = "float most = x[0]; for (int j = 0; j < n; ++j) most = fmaxf(most, x[j]); y[i] = most - x[i];"
    tensors = {"x": FLOATS["x"], "top": FLOATS["x"], "y": FLOATS["y"]}
    file = written(tmp_path, tensors, "top[0] - x", body)
    function = "def top(x): return x.max(keepdims=True)" if follows else "def top(): return [3.0]"
    (tmp_path / "inputs.py").write_text(f"{function}\n")
    before, after = 'top = { shape = ["n"], dtype = "float32"', 'top = { shape = [1], dtype = "float32"'
    file.write_text(file.read_text().replace(before, f'{after}, init = "inputs.py:top"'))
    answer = verified(device, file)
    assert answer.status is (Status.OK if follows else Status.WRONG_RESULT), answer.error
    assert not any(answer.contents.values())


def test_what_is_right_is_right_with_all_contents(device: LocalDevice, tmp_path: Path) -> None:
    answer = verified(device, written(tmp_path, GATHER, "take(x, j)", "y[i] = x[j[i]];"))
    assert answer.status is Status.OK, answer.error
    assert [name for name, why in answer.contents.items() if why] == ["integers of the whole range"]
    assert list(answer.contents)[-1] == "numbers drawn after compiling"


@pytest.mark.parametrize(
    ("dtype", "kind", "low", "high"),
    [
        ("int64", "long long", -(2**62), 2**62 + 1),
        ("int64", "long long", -(2**63), 2**63 - 1),
        ("uint32", "unsigned", 2**31, 2**32 - 1),
        ("int8", "signed char", -128, -126),
        ("float32", "float", 0.25, 0.5),
        ("float64", "double", -1e9, 1e9),
    ],
)
def test_inputs_are_between_the_numbers_of_the_file(
    device: LocalDevice, tmp_path: Path, dtype: str, kind: str, low: float, high: float
) -> None:
    """The kernel copies, and the reference has nothing beyond the limits."""
    tensors = {"x": (dtype, kind, ""), "y": (dtype, kind, "output")}
    file = written(tmp_path, tensors, f"minimum(maximum(x, {low}), {high})", "y[i] = x[i];")
    limits = f', init = {{ uniform = ["{low}", "{high}"] }}'
    text = file.read_text().replace(f'dtype = "{dtype}" }}', f'dtype = "{dtype}"{limits} }}')
    assert limits in text
    file.write_text(text)
    answer = verified(device, file)
    assert answer.status is Status.OK, answer.error
    assert not any(answer.contents.values())


@pytest.mark.parametrize("init", ["a.npy", "own.py:given", "range"])
def test_inputs_hold_the_values_of_the_file_with_all_contents_of_the_others(
    device: LocalDevice, tmp_path: Path, init: str
) -> None:
    """The reference says them itself."""
    file = written(tmp_path, GATHER, "def f(x): return x[3 * np.arange(400) % 400]", "y[i] = x[j[i] % n];")
    (tmp_path / "own.py").open("a").write("def given(n): return 3 * np.arange(n)\n")
    np.save(tmp_path / "a.npy", 3 * np.arange(400, dtype="int32"))
    given = "{ range = [0, 3] }" if init == "range" else f'"{init}"'
    text = file.read_text()
    assert text.count('"int32" }') == 1
    file.write_text(text.replace('"int32" }', f'"int32", init = {given} }}'))
    answer = verified(device, file)
    assert answer.status is Status.OK, answer.error
    assert len(answer.contents) > 5 and not any(answer.contents.values())


@pytest.mark.parametrize("name", builtin_kernels())
def test_built_in_kernels_are_right_with_further_contents(device: LocalDevice, name: str) -> None:
    kernel = load_kernel(name)
    for dtype in kernel.dtypes[next(iter(kernel.dtypes))]:
        sizes = {size: SMALL.get(size, 10_008) for size in kernel.sizes}
        problem = kernel.problem(sizes, {"": dtype})
        device.prepare(kernel, problem, seed=3)
        for variant in kernel.variants.values():
            configuration = Configuration.of(variant.name, variant.defaults)
            if device.fits(problem, configuration):
                answer = device.verify_at(problem, configuration, 60.0, contents=True)
                assert answer is None or answer.status is Status.OK, (
                    f"{configuration} {dtype}: {answer.error}"
                )
