"""Outputs that a user's function returns, in place of memory that it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gpu_process.test_open_baseline import fake_torch, view
from tuner.core.errors import TunerError
from tuner.gpu import captured as module
from tuner.gpu.arrays import TensorView
from tuner.gpu.baselines import function_call
from tuner.gpu.captured import returned
from tuner.kernel.functions import load_function
from tuner.runtime.arrays import ArrayLayout, row_major

__all__ = ["fake_torch"]
SUM, PRODUCT = TensorView(64, (2, 3), "float32"), TensorView(128, (3, 2), "float16", transposed=True)


class Array:
    """An array on the GPU."""

    def __init__(
        self, address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] = ()
    ) -> None:
        self.read = address, ArrayLayout(dtype, shape, strides or row_major(shape), 0, "the GPU")


@pytest.fixture(autouse=True)
def read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_dlpack", lambda array, stream: array.read)


def test_they_are_copied_from_where_they_lie_by_order_or_by_name() -> None:
    one, other = Array(1024, "float32", (2, 3)), Array(2048, "float16", (2, 3), (1, 2))
    outputs = {"sum": SUM, "product": PRODUCT}
    wanted = [(64, 1024, 24), (128, 2048, 12)]
    assert returned((one, other), outputs, 0, "f") == wanted
    assert returned({"product": other, "sum": one}, outputs, 0, "f") == wanted
    assert returned(one, {"sum": SUM}, 0, "f") == wanted[:1]
    assert returned(None, {}, 0, "f") == []
    loss = TensorView(64, (1,), "float32")  # which has no dimension in torch
    assert returned(Array(1024, "float32", ()), {"loss": loss}, 0, "f") == [(64, 1024, 4)]


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (None, "f neither takes nor returns sum"),
        ([Array(0, "float32", (2, 3))] * 2, "f neither takes nor returns sum"),
        ({"other": Array(0, "float32", (2, 3))}, "f neither takes nor returns sum"),
        (
            Array(0, "float16", (2, 3)),
            r"float16 \[2, 3\] is returned for sum; return float32 \[2, 3\] on the GPU",
        ),
        (Array(0, "float32", (3, 2)), r"float32 \[3, 2\] is returned"),
        (Array(0, "float32", (2, 3), (1, 2)), "has gaps, or another order; return it contiguous"),
    ],
)
def test_others_are_refused(value: object, part: str) -> None:
    with pytest.raises(TunerError, match=part):
        returned(value, {"sum": SUM}, 0, "f")


def test_a_function_returns_the_outputs_that_it_does_not_ask_for(tmp_path: Path, fake_torch: Any) -> None:
    import numpy as np

    (tmp_path / "mine.py").write_text("def both(x, y):\n    y[:] = x\n    return 2 * x\n")
    views = {name: view(np.ones(4, np.float32)) for name in "xyz"}
    call = function_call("both", load_function("both", tmp_path / "mine.py"), views, {}, 0, ["y", "z"])
    call()
    assert list(call.outputs) == ["z"] and np.asarray(call.value).tolist() == [2.0] * 4
