"""Arrays of any library, as addresses, shapes and strides: DLPack's capsules, read without NumPy.

DLPack's structures: https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..core.errors import CallError, first_line
from .dtypes import DLPACK

LEGACY_STREAM = 1
"""The legacy default stream, as the driver and DLPack name it; the libraries call it 0."""

_CUDA, _CUDA_MANAGED = 2, 13
_MEMORIES = {1: "the CPU", 3: "the CPU (pinned)", 10: "ROCm"}
_READ_ONLY, _COPIED = 1, 2

_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.restype, _is_capsule.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)

_TENSOR = struct.Struct("=QiiiBBHQQQ")
"""DLTensor: data, device type and number, dimensions, type code, bits and lanes, shape, strides, offset in bytes."""
_VERSIONED = struct.Struct("=IIQQQ")
"""What stands before the tensor in a capsule with a version: major, minor, manager, deleter, flags."""


class ArrayLayout(NamedTuple):
    """What an array is like, whatever its address: what decides which kernel fits it."""

    dtype: str
    """A name of ``dtypes.py``, or the library's own name of a dtype that no kernel has."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    device: int
    """Number of the GPU; -1 if it is not in a GPU's memory."""
    memory: str
    """The memory it lies in, in words."""
    read_only: bool = False

    def is_dense(self, *, transposed: bool = False) -> bool:
        """Return whether its elements lie without gaps, row by row; sizes of 1 have any stride.

        Args:
            transposed: whether memory holds the transpose, whose rows these are.
        """
        step = -1 if transposed else 1
        shape, strides = self.shape[::step], self.strides[::step]
        return all(
            size == 1 or stride == own
            for size, stride, own in zip(shape, strides, row_major(shape), strict=True)
        )

    def row_stride(self, *, transposed: bool = False) -> int:
        """Return how many elements lie from row to row, all alike, where those of a row are side by side; else 0.

        Args:
            transposed: whether memory holds the transpose, whose rows these are.
        """
        step = -1 if transposed else 1
        *outer, length = self.shape[::step]
        *strides, inner = self.strides[::step]
        rows = [(size, stride) for size, stride in zip(outer, strides, strict=True) if size != 1][::-1]
        stride = rows[0][1] if rows else length
        expected = stride
        for size, given in rows:
            if given != expected:
                return 0
            expected *= size
        return stride if stride >= length and (inner == 1 or length == 1) else 0


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of an array without gaps whose last dimension is the fastest."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def read_dlpack(array: Any, stream: int) -> tuple[int, ArrayLayout]:
    """Return address and layout of an array that speaks DLPack.

    Args:
        array: has ``__dlpack__`` and ``__dlpack_device__``.
        stream: the stream that will use it; the array's library orders its own work before it.

    Raises:
        CallError: it does not speak DLPack, or its library refuses.
    """
    try:
        kind = int(array.__dlpack_device__()[0])
        if kind not in (_CUDA, _CUDA_MANAGED):
            return 0, ArrayLayout("", (), (), -1, _MEMORIES.get(kind, f"a device of DLPack's type {kind}"))
        capsule = _capsule(array, stream or LEGACY_STREAM)
        return _read_capsule(capsule, type(array).__name__)
    except CallError:
        raise
    except Exception as error:  # noqa: BLE001 - a foreign library's own errors, of any type
        raise CallError(
            f"{type(array).__name__} cannot be read by DLPack: {said_by(error)}",
            "pass an array on the GPU",
        ) from None


def _capsule(array: Any, stream: int) -> Any:
    """Return the array's capsule. Its own destructor frees it, because it is not renamed."""
    try:
        return array.__dlpack__(stream=stream, max_version=(1, 0), copy=False)
    except TypeError:  # a library that is older than DLPack 1.0, and never copies
        return array.__dlpack__(stream=stream)


def _read_capsule(capsule: Any, owner: str) -> tuple[int, ArrayLayout]:
    flags = 0
    if _is_capsule(capsule, b"dltensor_versioned"):
        start = _pointer(capsule, b"dltensor_versioned")
        major, _, _, _, flags = _VERSIONED.unpack(ctypes.string_at(start, _VERSIONED.size))
        if major != 1:
            raise CallError(f"{owner} speaks version {major} of DLPack", "version 1 and older are read")
        start += _VERSIONED.size
    else:
        start = _pointer(capsule, b"dltensor")
    data, kind, number, rank, code, bits, lanes, shape_at, strides_at, offset = _TENSOR.unpack(
        ctypes.string_at(start, _TENSOR.size)
    )
    if flags & _COPIED:
        raise CallError(f"{owner} gives a copy of itself", "pass an array that DLPack can read in place")
    shape = struct.unpack(f"={rank}q", ctypes.string_at(shape_at, 8 * rank)) if rank else ()
    strides = (
        struct.unpack(f"={rank}q", ctypes.string_at(strides_at, 8 * rank)) if strides_at and rank else None
    )
    dtype = DLPACK.get((code, bits)) if lanes == 1 else None
    return data + offset, ArrayLayout(
        dtype or f"DLPack's type {code} of {bits} bits and {lanes} lanes",
        shape,
        row_major(shape) if strides is None else strides,
        number if kind in (_CUDA, _CUDA_MANAGED) else -1,
        f"cuda:{number}",
        bool(flags & _READ_ONLY),
    )


def one_or_all(results: Sequence[Any]) -> Any:
    """Return the only result, or several as a tuple."""
    return results[0] if len(results) == 1 else tuple(results)


def said_by(error: Exception) -> str:
    """Return the first line of a library's message, or its type's name."""
    return first_line(str(error)) or type(error).__name__
