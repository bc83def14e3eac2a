"""Baselines in the measuring process: bound to tensors, as functions of a user, in NumPy."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.torch_on_numpy import torch_on_numpy
from tuner.core.errors import UsageError
from tuner.core.model import Gpu
from tuner.gpu import arrays
from tuner.gpu.arrays import DeviceArray, TensorView, array_of
from tuner.gpu.baselines import function_call, library_call
from tuner.gpu.captured import Captured
from tuner.kernel.baselines import parse_baseline
from tuner.kernel.functions import arguments_for, load_function

GPU = Gpu("an H200's limits", 90, 132, 60 << 20, 141 << 30, 227 << 10, 228 << 10)

# -- binding to tensors, with torch played by NumPy on host memory


@pytest.fixture
def fake_torch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a torch that reads and writes host memory where the real one has device memory."""

    class Tensor(np.ndarray[Any, Any]):
        def permute(self, *axes: int) -> Any:
            return self.transpose(axes)

    def as_tensor(thing: DeviceArray, device: Any) -> Any:
        interface = thing.__cuda_array_interface__
        assert interface["strides"] is None
        dtype = np.dtype(interface["typestr"])
        address, shape = interface["data"][0], interface["shape"]
        raw = (ctypes.c_byte * (dtype.itemsize * int(np.prod(shape)))).from_address(address)
        return np.frombuffer(raw, dtype).reshape(shape).view(Tensor)

    torch = ModuleType("torch")
    vars(torch).update(vars(torch_on_numpy()))
    vars(torch).update(
        as_tensor=as_tensor,
        device=lambda kind, number: (kind, number),
        bfloat16=np.dtype("<u2"),
        backends=SimpleNamespace(
            cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=None)),
            cudnn=SimpleNamespace(allow_tf32=None),
        ),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(arrays, "_current_device", lambda: 0)
    return torch


def view(array: np.ndarray[Any, Any], dtype: str = "float32", *, transposed: bool = False) -> TensorView:
    return TensorView(array.ctypes.data, array.shape, dtype, transposed)


def test_a_call_works_on_the_tensors_as_the_kernel_means_them(fake_torch: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (5, 4)))
    c = np.zeros((3, 5), np.float32)
    views = {"a": view(a), "b": view(b, transposed=True), "c": view(c)}
    call = library_call("torch.mm(a, b, out=c)", views, {})
    assert call.library == "torch"
    call()
    np.testing.assert_allclose(c, a @ b.T, rtol=1e-6)
    matmul = fake_torch.backends.cuda.matmul
    assert matmul.allow_tf32 is False
    assert matmul.allow_fp16_reduced_precision_reduction is False
    library_call("tf32(torch.mm(a, b, out=c))", views, {})()
    assert matmul.allow_tf32 is True
    call()
    assert matmul.allow_tf32 is False, "one call's precision must not become the next one's"


@pytest.mark.parametrize("library", ["torch", "cupy", "python"])
def test_a_closed_capture_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """What the libraries keep for themselves the next problem would lack; in a ruined context there is nothing."""
    freed = []

    def ruined() -> None:
        freed.append("torch")
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(CUDAGraph=0, empty_cache=ruined))
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    pool = SimpleNamespace(free_all_blocks=lambda: freed.append("cupy"))
    context: Any = None  # nothing is captured
    Captured(context, library=library, memory=None if library == "torch" else pool).close()
    assert freed == {"torch": ["torch"], "cupy": ["cupy"], "python": ["cupy", "torch"]}[library]


def test_a_function_is_what_its_file_says_now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As long as before, and of the same second: Python would take the compilation that it has kept."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    for answer in (1, 2):
        file.write_text(f"def mine(): return {answer}")
        os.utime(file, (1e9, 1e9))
        load_function.cache_clear()
        assert load_function("mine", file)() == answer


def test_memory_as_others_see_it() -> None:
    array = DeviceArray(TensorView(4096, (2, 3), "bfloat16", transposed=True))
    assert array.shape == (3, 2)
    assert array.__cuda_array_interface__ == {
        "shape": (3, 2), "typestr": "<i2", "data": (4096, False), "strides": (2, 6), "version": 3,
    }  # fmt: skip
    assert DeviceArray(TensorView(0, (2, 3), "float64")).__cuda_array_interface__["strides"] is None
    assert isinstance(array_of("", TensorView(0, (1,), "int8")), DeviceArray)


def test_bfloat16_is_handed_over_as_its_bits(fake_torch: Any) -> None:
    bits = np.array([0x3F80, 0xBF80], np.uint16)
    assert array_of("torch", view(bits, "bfloat16")).tolist() == [0x3F80, 0xBF80]


# -- a user's Python function


def test_a_function_gets_what_it_names(tmp_path: Path, fake_torch: Any) -> None:
    (tmp_path / "beside_mine.py").write_text("def times(y, x, alpha): y += alpha * x\n")
    file = tmp_path / "mine.py"
    file.write_text(
        "import beside_mine\nruns = []\n"
        "def axpy(y, x, /, n, *, alpha, stream, extra=7):\n"
        "    runs.append((n, stream, extra))\n"
        "    beside_mine.times(y, x, alpha)\n"
    )
    baseline = parse_baseline(f"{file}:axpy")
    pairs = [(np.ones(4, np.float32), np.ones(4, np.float32)) for _ in range(2)]
    calls = []
    for x, y in pairs:
        axpy = load_function(baseline.text, baseline.file)
        views = {"x": view(x), "y": view(y)}
        calls.append(function_call(baseline.text, axpy, views, {"alpha": 2.0, "n": 4}, 99))
    for call in calls:
        call()
    assert [y.tolist() for _, y in pairs] == [[3.0] * 4] * 2
    assert sys.modules["baseline_mine"].runs == [(4, 99, 7)] * 2, "the file was run more than once"
    assert calls[0].library == "python"


def test_arguments_of_functions() -> None:
    values = {"a": 1, "b": 2, "stream": 3}
    assert arguments_for(lambda a, *rest, **others: None, values, "f") == ([], {"a": 1, "b": 2, "stream": 3})
    assert arguments_for(lambda c=0, /, a=0: None, values, "f") == ([0], {"a": 1})
    with pytest.raises(UsageError, match="f wants 'streem', which is not available; did you mean stream"):
        arguments_for(lambda a, streem: None, values, "f")
    with pytest.raises(UsageError, match="does not say what it takes"):
        arguments_for(dict, values, "dict")
