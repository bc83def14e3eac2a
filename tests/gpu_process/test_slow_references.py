"""A slow Python function as reference: how often it is asked, and whether what is right passes with so few calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.gpu_process import test_verify
from tests.gpu_process.test_verify import Data
from tuner.children.measuring import ReferenceData
from tuner.core.model import Verification
from tuner.gpu.verify import Verifier
from tuner.kernel import answers, python_reference
from tuner.kernel.answers import Answers
from tuner.kernel.contents import rounded
from tuner.kernel.functions import PythonFunction
from tuner.runtime.launches import Buffer

host = test_verify.host
Array = npt.NDArray[Any]
Kernel = Callable[..., Array]


def product(a: Array, b: Array) -> Array:
    """A matrix product that adds up in the order of a simple kernel, in the dtype float32."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for row, column in zip(a.T, b, strict=True):
        total += np.outer(row, column)
    return total


def sums(a: Array) -> Array:
    return np.cumsum(a, axis=1, dtype=np.float32)[:, -1]


def softmax(a: Array) -> Array:
    powers = np.exp(a - a.max(axis=1, keepdims=True))
    return powers / np.cumsum(powers, axis=1, dtype=np.float32)[:, -1:]


def stencil(a: Array) -> Array:
    padded = np.pad(a, ((0, 0), (1, 1)))
    return padded[:, :-2] - np.float32(2) * padded[:, 1:-1] + padded[:, 2:]


def truncated(array: Array) -> Array:
    """Return float32 without the last 13 bits, as tensor cores take them."""
    return (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


TEXTS = {
    product: "a @ b",
    sums: "a.sum(axis=1)",
    softmax: "(lambda p: p / p.sum(axis=1, keepdims=True))(np.exp(a - a.max(axis=1, keepdims=True)))",
    stencil: "np.pad(a, ((0, 0), (1, 0)))[:, :-1] - 2 * a + np.pad(a, ((0, 0), (0, 1)))[:, 1:]",
}


class Slow:
    """A problem whose reference is a function that counts its calls, and counts as slow however fast it is.

    Args:
        folder: for the function, and for what it has answered.
        kernel: of the kernels above; what is right.
        dtype: of all tensors.
        spread: standard deviation of the logarithms of the rows' sizes.
    """

    def __init__(self, folder: Path, kernel: Kernel, dtype: str = "float32", spread: float = 0.0) -> None:
        self._folder, self._kernel, self._dtype, self._spread = folder, kernel, dtype, spread
        names = "ab" if kernel is product else "a"
        (folder / "own.py").write_text(
            f"import numpy as np\n\n\ndef f({', '.join(names)}):\n"
            f"    open({str(folder / 'calls')!r}, 'a').write('.')\n    return {TEXTS[kernel]}\n"
        )
        (folder / "calls").write_text("")
        (folder / "kept").mkdir(exist_ok=True)
        self._names = names

    @property
    def calls(self) -> int:
        """Since the last look."""
        count = len((self._folder / "calls").read_text())
        (self._folder / "calls").write_text("")
        return count

    def judged(self, *shape: int, seed: int = 0, kernel: Kernel | None = None) -> Verification:
        """Return the verdict on a kernel at a size, in a new process."""
        random = np.random.default_rng(seed)
        inputs: Mapping[str, Array] = {
            name: rounded(
                random.standard_normal(shape if name == "a" else shape[::-1])
                * (np.exp(self._spread * random.standard_normal((shape[0], 1))) if name == "a" else 1.0),
                self._dtype,
            )
            for name in self._names
        }
        result = (kernel or self._kernel)(**{name: one.astype(np.float32) for name, one in inputs.items()})
        output = result.astype(self._dtype)
        tensors = [Buffer(name, one.shape, self._dtype, "input") for name, one in inputs.items()]
        data: Any = Data([*tensors, Buffer("c", output.shape, self._dtype, "output")])
        data.download = lambda tensor, _=None: inputs[tensor.name]
        data.address, data.element = lambda *_: output.ctypes.data, lambda *_: 0.0
        data.seal = lambda: None
        reference = ReferenceData("float32", python=PythonFunction(self._folder / "own.py", "f"))
        return Verifier(data, reference, Answers(self._folder / "kept")).check()


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_reference, "PROBING_S", 0.0)
    monkeypatch.setattr(answers, "KEPT_S", -1.0)


def test_a_matrix_product_is_asked_twice_a_content_and_twice_more_in_a_run(tmp_path: Path) -> None:
    """Of the first content once more for the same result; of each size once for the terms."""
    problem = Slow(tmp_path, product)
    calls = []
    for shape, seed in (((96, 96), 0), ((96, 96), 0), ((96, 96), 1), ((95, 95), 2)):
        assert problem.judged(*shape, seed=seed).passed
        calls.append(problem.calls)
    assert calls == [4, 0, 2, 3]


def test_what_takes_seconds_is_not_asked_once_more_for_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_reference, "REPEATED_S", 0.0)
    problem = Slow(tmp_path, product)
    assert problem.judged(96, 96).passed
    assert problem.calls == 3


SHAPES = [(64, 700), (200, 3), (3, 5000), (1, 40), (40, 1)]


@pytest.mark.parametrize(("dtype", "spread"), [("float32", 1.5), ("float16", 0.0)])
@pytest.mark.parametrize("kernel", [product, sums, softmax, stencil])
def test_what_is_right_passes_after_few_calls(
    kernel: Kernel, spread: float, dtype: str, tmp_path: Path
) -> None:
    problem = Slow(tmp_path, kernel, dtype, spread)
    for seed, shape in enumerate(SHAPES):
        found = problem.judged(*shape, seed=seed)
        assert found.passed, (shape, found.message)
        assert problem.calls <= 4


def but(kernel: Kernel, change: Callable[[Array], Any], *, before: bool = False) -> Kernel:
    """Return a kernel whose inputs or whose output is changed."""

    def changed(**inputs: Array) -> Array:
        if before:
            return kernel(**{name: change(one) for name, one in inputs.items()})
        result = kernel(**inputs)
        change(result)
        return result

    return changed


def half(array: Array) -> None:
    array[:] = array.astype(np.float16)


def one_off(array: Array) -> None:
    array.flat[array.size // 2] *= np.float32(1.1)


@pytest.mark.parametrize(
    ("kernel", "wrong", "spread"),
    [
        (product, but(product, truncated, before=True), 0.0),
        (sums, lambda a: sums(a[:, :-1]), 1.5),
        (softmax, but(softmax, one_off), 0.0),
        (stencil, but(stencil, half), 1.5),
        (stencil, lambda a: stencil(np.roll(a, 1, axis=0)), 0.0),
    ],
)
def test_what_is_wrong_fails_after_few_calls(
    kernel: Kernel, wrong: Kernel, spread: float, tmp_path: Path
) -> None:
    problem = Slow(tmp_path, kernel, spread=spread)
    for seed, shape in enumerate(SHAPES[:2]):
        found = problem.judged(*shape, seed=seed, kernel=wrong)
        assert found.checked and not found.passed, shape
        assert problem.calls <= 12
