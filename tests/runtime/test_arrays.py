"""Arrays of any library are read as they lie in memory."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import numpy as np
import pytest

from tests.fake_arrays import Exported, FakeTorch
from tuner.core.errors import CallError
from tuner.runtime.arrays import LEGACY_STREAM, ArrayLayout, read_dlpack
from tuner.runtime.libraries import library_of, stream_handle


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTorch]:
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


@pytest.mark.parametrize("version", [None, (1, 0), (1, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint32"])
def test_dlpack_gives_address_shape_and_strides(version: tuple[int, int] | None, dtype: str) -> None:
    array = Exported(4096, (3, 5), dtype, strides=(1, 3), device=(2, 1), version=version, offset=16)
    assert read_dlpack(array, 77) == (4112, ArrayLayout(dtype, (3, 5), (1, 3), 1, "cuda:1"))
    assert array.streams == [77]


def test_no_strides_mean_row_major() -> None:
    assert read_dlpack(Exported(256, (2, 3, 4)), 0)[1].strides == (12, 4, 1)
    assert read_dlpack(Exported(256, ()), 0)[1].shape == ()


def test_the_default_stream_has_dlpacks_number() -> None:
    array = Exported(256, (2,))
    read_dlpack(array, 0)
    assert array.streams == [1]


def test_read_only_memory_and_managed_memory() -> None:
    assert read_dlpack(Exported(256, (2,), flags=1), 0)[1].read_only
    assert read_dlpack(Exported(256, (2,), device=(13, 0)), 0)[1].device == 0


def test_memory_of_the_cpu_is_named() -> None:
    assert read_dlpack(np.zeros(3, np.float32), 0)[1][-3:-1] == (-1, "the CPU")
    assert "pinned" in read_dlpack(Exported(256, (2,), device=(3, 0)), 0)[1].memory


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (Exported(256, (2,), version=(2, 0)), "version 2"),
        (Exported(256, (2,), flags=2), "copy"),
        (3, "DLPack"),
    ],
)
def test_what_cannot_be_read_is_refused(array: object, words: str) -> None:
    with pytest.raises(CallError, match=words):
        read_dlpack(array, 0)


def test_a_librarys_own_error_becomes_one_line() -> None:
    class Refusing(Exported):
        def __dlpack__(self, **asked: object) -> object:
            raise BufferError("Can't export tensors that\nrequire gradient")

    with pytest.raises(CallError, match=r"Refusing .*Can't export tensors that; ") as raised:
        read_dlpack(Refusing(256, (2,)), 0)
    assert "\n" not in str(raised.value)


def test_a_dtype_that_no_kernel_has_keeps_a_name() -> None:
    assert "lanes" in read_dlpack(Exported(256, (2,), lanes=2), 0)[1].dtype


@pytest.mark.parametrize(
    ("shape", "strides", "row", "column"),
    [
        ((3, 5), (5, 1), True, False),
        ((3, 5), (1, 3), False, True),
        ((3, 5), (8, 1), False, False),
        ((1, 5), (99, 1), True, True),
        ((7,), (1,), True, True),
        ((7,), (2,), False, False),
        ((1, 1), (0, 0), True, True),
        ((3, 5), (0, 1), False, False),
        ((2, 3, 4), (12, 4, 1), True, False),
        ((2, 3, 4), (1, 2, 6), False, True),
        ((), (), True, True),
    ],
)
def test_sizes_of_one_are_row_major_and_column_major(
    shape: tuple[int, ...], strides: tuple[int, ...], row: bool, column: bool
) -> None:
    layout = ArrayLayout("float32", shape, strides, 0, "cuda:0")
    assert (layout.is_dense(), layout.is_dense(transposed=True)) == (row, column)


@pytest.mark.parametrize(
    ("shape", "strides", "rows", "columns"),
    [
        ((3, 5), (8, 1), 8, 0), ((3, 5), (1, 8), 0, 8), ((3, 5), (4, 1), 0, 0), ((3, 5), (0, 1), 0, 0),
        ((3, 5), (8, 2), 0, 0), ((3, 1), (8, 8), 8, 0), ((2, 3, 4), (24, 8, 1), 8, 0),
        ((2, 3, 4), (32, 8, 1), 0, 0), ((2, 1, 4), (24, 3, 1), 24, 0), ((2, 3, 4), (1, 4, 12), 0, 4),
        ((4,), (1,), 4, 4), ((4,), (2,), 0, 0),
    ],
)  # fmt: skip
def test_rows_that_lie_apart_alike(
    shape: tuple[int, ...], strides: tuple[int, ...], rows: int, columns: int
) -> None:
    layout = ArrayLayout("float32", shape, strides, 0, "cuda:0")
    assert (layout.row_stride(), layout.row_stride(transposed=True)) == (rows, columns)


def test_torch_tensors_are_read_without_dlpack(torch: FakeTorch) -> None:
    tensor = torch.randn(3, 5, dtype="bfloat16", device="cuda:1").T
    library = library_of(tensor)
    assert library.read(tensor, None)[0] == tensor.data_ptr()
    assert library.layout(tensor, None) == ArrayLayout("bfloat16", (5, 3), (1, 5), 1, "cuda:1")
    assert library.layout(torch.randn(3, device="cpu"), None)[-3:-1] == (-1, "cpu")
    torch.streams[1] = 99
    assert library.stream(1) == 99


def test_a_tensor_that_requires_a_gradient_is_refused_unless_gradients_are_off(torch: FakeTorch) -> None:
    tensor = torch.randn(3, requires_grad=True)
    with pytest.raises(CallError, match="no_grad"):
        library_of(tensor).read(tensor, None)
    torch.grad_enabled = False
    library_of(tensor).read(tensor, None)


def test_torch_allocates_on_the_stream_that_is_used(torch: FakeTorch) -> None:
    like = torch.randn(3)
    library = library_of(like)
    new = library.empty(like, (4, 2), "float16", None)
    assert (new.shape, new.dtype, new.device) == ((4, 2), torch.float16, like.device)
    assert torch.on_stream == []
    library.empty(like, (4, 2), "float16", 1234)
    assert torch.on_stream == [1234]


def test_other_libraries_run_on_the_default_stream_and_do_not_allocate() -> None:
    array = Exported(256, (2,))
    library = library_of(array)
    assert library.stream(0) == LEGACY_STREAM
    with pytest.raises(CallError, match="out="):
        library.empty(array, (2,), "float32", None)


def test_no_array_is_refused() -> None:
    with pytest.raises(CallError, match="list is no array"):
        library_of([1.0])


def test_streams_of_any_library() -> None:
    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 7

    class OfCuPy:
        ptr = 8

    class OfTorch:
        cuda_stream = 9

    assert [stream_handle(stream) for stream in (6, Protocol(), OfCuPy(), OfTorch())] == [6, 7, 8, 9]
    for wrong in (True, -1, "s"):
        with pytest.raises(CallError, match="no stream"):
            stream_handle(wrong)


class _JaxArray(Exported):
    """As JAX's: immutable, on one device, ready after a while."""

    waited = 0

    def block_until_ready(self) -> _JaxArray:
        self.waited += 1
        return self


class _Tracer(_JaxArray): ...


def test_jax_is_waited_for_and_its_arrays_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    core = types.SimpleNamespace(Tracer=_Tracer)
    jax = types.ModuleType("jax")
    monkeypatch.setitem(sys.modules, "jax", jax)
    vars(jax).update(Array=_JaxArray, core=core)
    array = _JaxArray(256, (3,))
    library = library_of(array)
    address, what = library.read(array, None)
    layout = library.layout(array, what)
    assert (address, layout.shape, layout.read_only, library.waits) == (256, (3,), True, True)
    assert array.waited == 1
    with pytest.raises(CallError, match="jit"):
        library_of(_Tracer(256, (3,))).read(_Tracer(256, (3,)), None)


def test_a_tensor_without_plain_memory_is_refused(torch: FakeTorch) -> None:
    class Sparse(torch.Tensor):
        def stride(self) -> tuple[int, ...]:
            raise RuntimeError("sparse tensors do not have strides\nmore")

    tensor = Sparse((3,), torch.float32, torch.randn(3).device)
    with pytest.raises(CallError, match="sparse tensors do not have strides; pass"):
        library_of(tensor).read(tensor, None)
