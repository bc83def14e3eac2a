"""Libraries whose arrays can be passed: how each reads an array, names its current stream and allocates.

No library is imported here: what is passed decides which one is there.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from cuda.bindings import driver as cu

from ..core.errors import CallError
from .arrays import LEGACY_STREAM, ArrayLayout, read_dlpack, row_major, said_by
from .driver import PrimaryContext, check, failing_as, primary_context
from .dtypes import ITEMSIZE

PER_THREAD_STREAM = 2
"""The calling thread's default stream, as the driver and DLPack name it."""


class Library:
    """What an operation asks of the library of its arrays; and how it is answered for one that is not known.

    The arrays of such a one are used on the legacy default stream, and it allocates nothing.
    """

    waits = False
    """Whether a call returns only when its kernels are done, because the library knows of no streams."""

    def read(self, array: Any, stream: int | None) -> tuple[int, Hashable]:
        """Return an array's address, and what else there is to know about it, to be compared only.

        Args:
            array: one of this library's.
            stream: where it is used; None for the current stream.

        Raises:
            CallError: it has no address.
        """
        return read_dlpack(array, LEGACY_STREAM if stream is None else stream)

    def layout(self, _array: Any, read: Any) -> ArrayLayout:
        """Return what the array is like; ``read`` is what :meth:`read` gave beside its address."""
        return read  # type: ignore[no-any-return]

    def stream(self, _device: int) -> int:
        """Return the handle of the current stream of a GPU."""
        return LEGACY_STREAM

    def empty(self, like: Any, _shape: tuple[int, ...], _dtype: str, _stream: int | None) -> Any:
        """Return a new row-major array for use on a stream, its elements undefined.

        Args:
            like: an array of this library on the GPU that is meant.
            _shape: at least 1 in each dimension.
            _dtype: a name of ``dtypes.py``.
            _stream: a handle; None for the current stream.

        Raises:
            CallError: the library allocates none.
        """
        raise CallError(
            f"no output can be allocated: {type(like).__name__} is of no library that is known for it",
            "pass out=, or arrays of torch, CuPy or JAX",
        )

    def transposed(self, array: Any) -> Any:
        """Return the array with its dimensions reversed, over the same memory."""
        return array


class _Torch(Library):
    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._empty = torch.empty
        self._dtypes = {name: getattr(torch, name) for name in ITEMSIZE if hasattr(torch, name)}
        self._names = {dtype: name for name, dtype in self._dtypes.items()}

    def read(self, array: Any, _stream: int | None) -> tuple[int, Hashable]:
        if array.requires_grad and self._torch.is_grad_enabled():
            raise CallError(
                "a tensor requires a gradient, and a tuned kernel has none",
                "call it under torch.no_grad(), or pass tensor.detach()",
            )
        if array.is_conj() or array.is_neg():
            raise CallError(
                "a tensor is the conjugate, or the negative, of what its memory has",
                "pass tensor.resolve_conj().resolve_neg()",
            )
        try:
            return array.data_ptr(), (array.dtype, array.shape, array.stride(), array.device)
        except RuntimeError as error:  # a sparse tensor, one of torch.compile
            raise CallError(f"a tensor has no plain memory: {said_by(error)}", "pass a dense one") from None

    def layout(self, array: Any, _read: Any) -> ArrayLayout:
        on_gpu = array.device.type == "cuda"
        return ArrayLayout(
            self._names.get(array.dtype) or str(array.dtype).removeprefix("torch."),
            tuple(array.shape),
            tuple(array.stride()),
            array.device.index if on_gpu else -1,
            str(array.device),
        )

    def stream(self, device: int) -> int:
        # The number without a stream object around it; torch.compile's own launches ask for it, too.
        return int(self._torch._C._cuda_getCurrentRawStream(device))

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str, stream: int | None) -> Any:
        if stream is None or stream == self.stream(like.device.index):
            return self._empty(shape, dtype=self._dtypes[dtype], device=like.device)
        cuda = self._torch.cuda
        # Memory comes from the pool of the current stream, which may still be using it.
        with cuda.stream(cuda.ExternalStream(stream, device=like.device)):
            return self._empty(shape, dtype=self._dtypes[dtype], device=like.device)

    def transposed(self, array: Any) -> Any:
        return array.permute(*range(array.ndim)[::-1])


class _CuPy(Library):
    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def read(self, array: Any, _stream: int | None) -> tuple[int, Hashable]:
        return array.data.ptr, (array.dtype, array.shape, array.strides, array.data.device_id)

    def layout(self, array: Any, _read: Any) -> ArrayLayout:
        size, device = array.dtype.itemsize, array.data.device_id
        strides = tuple(stride // size for stride in array.strides)
        return ArrayLayout(array.dtype.name, array.shape, strides, device, f"cuda:{device}")

    def stream(self, device: int) -> int:
        return int(self._cupy.cuda.get_current_stream(device).ptr)

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str, stream: int | None) -> Any:
        cuda, device = self._cupy.cuda, like.data.device_id
        use: AbstractContextManager[Any] = nullcontext()
        with cuda.Device(device):
            # Memory comes from the pool of the current stream, which may still be using it.
            if stream is not None and stream != self.stream(device):
                use = cuda.ExternalStream(stream, device)
            with use:
                return self._cupy.empty(shape, dtype=dtype)

    def transposed(self, array: Any) -> Any:
        return array.T


class _Jax(Library):
    """JAX knows of no streams, and its arrays are immutable.

    A new array is written before a program sees it: the call waits for whatever still writes to its arrays, and
    returns when its own kernels are done.
    """

    waits = True

    def __init__(self, jax: Any) -> None:
        self._jax = jax

    def read(self, array: Any, stream: int | None) -> tuple[int, Hashable]:
        if isinstance(array, self._jax.core.Tracer):
            raise CallError("JAX is tracing: its arrays have no memory", "call it outside of jax.jit")
        array.block_until_ready()
        address, layout = read_dlpack(array, PER_THREAD_STREAM if stream is None else stream)
        return address, layout._replace(read_only=True)

    def stream(self, _device: int) -> int:
        return PER_THREAD_STREAM

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str, _stream: int | None) -> Any:
        array = self._jax.numpy.empty(shape, dtype=dtype, device=like.device)
        if array.dtype.name != dtype:
            raise CallError(f"JAX allocates {array.dtype.name} instead of {dtype}", "set jax_enable_x64")
        return array.block_until_ready()  # JAX fills it with zeros first

    def transposed(self, _array: Any) -> Any:
        raise CallError(
            "JAX has no column-major arrays, and this output is one", "pass an out= of another library"
        )


class DeviceCopy:
    """A row-major array on the first GPU with what one of the host holds, freed with this object.

    For calls from programs that have no library for GPU arrays.

    Args:
        host_address: of the array's bytes.
        size_bytes: their number.
        dtype: a name of ``dtypes.py``.
        shape: its extents.

    Raises:
        NoGpuError: there is no GPU or no driver.
        DeviceError: the memory does not suffice.
    """

    def __init__(self, host_address: int, size_bytes: int, dtype: str, shape: tuple[int, ...]) -> None:
        self._context, self._size_bytes = primary_context(0), size_bytes
        self.layout = ArrayLayout(dtype, shape, row_major(shape), 0, "cuda:0")
        what = f"an array of {size_bytes} bytes cannot be copied to the GPU"
        with failing_as(what), self._context.current():
            self.device_address = int(check(cu.cuMemAlloc(size_bytes)))
            weakref.finalize(self, _free, self._context, self.device_address).atexit = False
            check(cu.cuMemcpyHtoD(self.device_address, host_address, size_bytes))

    def read(self, host_address: int) -> None:
        """Copy its bytes to the host's memory, behind what the default stream still does with them.

        Raises:
            DeviceError: a kernel has failed.
        """
        with failing_as("the result cannot be copied from the GPU"), self._context.current():
            check(cu.cuMemcpyDtoH(host_address, self.device_address, self._size_bytes))


def _free(context: PrimaryContext, address: int) -> None:
    with context.current():
        cu.cuMemFree(address)


class _Copies(Library):
    """Copies of a host's arrays."""

    def read(self, array: Any, _stream: int | None) -> tuple[int, Hashable]:
        return array.device_address, array.layout


DLPACK_LIBRARY = Library()
"""Reads the arrays of any library, among them those that are not of the library that a call runs on."""
_libraries: dict[type, Library] = {}
_torch, _cupy, _jax = functools.cache(_Torch), functools.cache(_CuPy), functools.cache(_Jax)


def library_of(array: Any) -> Library:
    """Return the library of an array.

    Raises:
        CallError: it is no array.
    """
    kind = type(array)
    library = _libraries.get(kind)
    if library is None:
        library = _libraries[kind] = _find(kind)
    return library


def _find(kind: type) -> Library:
    torch, cupy, jax = (sys.modules.get(name) for name in ("torch", "cupy", "jax"))
    if torch is not None and issubclass(kind, torch.Tensor):
        return _torch(torch)
    if cupy is not None and issubclass(kind, cupy.ndarray):
        return _cupy(cupy)
    if jax is not None and issubclass(kind, (jax.Array, jax.core.Tracer)):
        return _jax(jax)
    if kind is DeviceCopy:
        return _Copies()
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return DLPACK_LIBRARY
    raise CallError(
        f"{kind.__name__} is no array", "pass arrays of torch, CuPy or JAX, or others that speak DLPack"
    )


def stream_handle(stream: Any) -> int:
    """Return the handle of a stream: a number, or an object of torch, CuPy or cuda.core.

    Raises:
        CallError: it is none of these.
    """
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise CallError(f"{stream!r} is no stream", "pass a handle, or a stream of torch, CuPy or cuda.core")
