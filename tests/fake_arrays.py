"""Arrays of libraries that are not installed: a torch of a few lines, and capsules of DLPack."""

from __future__ import annotations

import ctypes
import math
import struct
import sys
import types
from typing import Any

ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}
CODES = {"float": 2, "bfloat": 4, "int": 0, "uint": 1}
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = (
    ctypes.py_object,
    (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
)


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a row-major array."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


class Exported:
    """An array that speaks DLPack, and nothing else."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: str = "float32",
        *,
        strides: tuple[int, ...] | None = None,
        device: tuple[int, int] = (2, 0),
        version: tuple[int, int] | None = (1, 0),
        flags: int = 0,
        offset: int = 0,
        lanes: int = 1,
    ) -> None:
        self.address, self.shape, self.strides, self.dtype = address, shape, strides, dtype
        self.device, self.version, self.flags, self.offset, self.lanes = device, version, flags, offset, lanes
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> Any:
        if asked and self.version is None:
            raise TypeError("unexpected keyword argument")  # as libraries before DLPack 1.0
        self.streams.append(stream)
        rank = len(self.shape)
        self._shape = (ctypes.c_int64 * rank)(*self.shape)
        self._strides = (ctypes.c_int64 * rank)(*(self.strides or ()))
        kind = self.dtype.rstrip("0123456789")
        bits = int(self.dtype.removeprefix(kind))
        tensor = struct.pack(
            "=QiiiBBHQQQ",
            self.address,
            *self.device,
            rank,
            CODES[kind],
            bits,
            self.lanes,
            ctypes.addressof(self._shape),
            ctypes.addressof(self._strides) if self.strides is not None else 0,
            self.offset,
        )
        head = struct.pack("=IIQQQ", *self.version, 0, 0, self.flags) if self.version else b""
        self._memory = ctypes.create_string_buffer(head + tensor)
        self._name = b"dltensor_versioned" if self.version else b"dltensor"
        return _new_capsule(ctypes.addressof(self._memory), self._name, None)


class Tensor:
    """What an operation asks of torch's tensors, with the memory of ``allocate``."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        device: Any,
        *,
        strides: tuple[int, ...] | None = None,
        address: int | None = None,
        requires_grad: bool = False,
    ) -> None:
        self.shape, self.dtype, self.device, self.requires_grad = shape, dtype, device, requires_grad
        self._strides = dense(shape) if strides is None else strides
        bytes_ = math.prod(shape) * ITEMSIZE[dtype.name]
        self._address = sys.modules["torch"].allocate(bytes_) if address is None else address

    ndim = property(lambda self: len(self.shape))

    def is_conj(self) -> bool:
        return False

    is_neg = is_conj

    def data_ptr(self) -> int:
        return self._address

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def permute(self, *order: int) -> Tensor:
        shape, strides = (tuple(of[i] for i in order) for of in (self.shape, self._strides))
        return type(self)(shape, self.dtype, self.device, strides=strides, address=self._address)

    @property
    def T(self) -> Tensor:  # noqa: N802 - as in torch
        return self.permute(1, 0)


class _Dtype:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class Device:
    """As torch's: a type and an index."""

    def __init__(self, name: str) -> None:
        self.type, _, index = name.partition(":")
        self.index = int(index or 0)
        self._key = (self.type, self.index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return f"{self.type}:{self.index}" if self.type == "cuda" else self.type


class FakeTorch(types.ModuleType):
    """A module to be put into ``sys.modules``; ``memory`` is where tensors lie next.

    ``allocate`` may be replaced by one that gives a driver's memory.
    """

    def __init__(self) -> None:
        super().__init__("torch")
        self.Tensor = type("Tensor", (Tensor,), {})  # its own: what is known of a type stays with it
        self.memory = 1 << 40
        self.grad_enabled = True
        self.streams = {0: 0}
        self.on_stream: list[int] = []
        for name in ITEMSIZE:
            setattr(self, name, _Dtype(name))
        self._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda index: self.streams.get(index, 0))
        self.cuda = types.SimpleNamespace(stream=self._stream, ExternalStream=lambda handle, device: handle)

    def allocate(self, size_bytes: int) -> int:
        address = self.memory
        self.memory += -(-size_bytes // 512) * 512
        return address

    def is_grad_enabled(self) -> bool:
        return self.grad_enabled

    def empty(self, shape: tuple[int, ...], *, dtype: Any, device: Any) -> Tensor:
        return self.Tensor(tuple(shape), dtype, device)

    def randn(self, *shape: int, dtype: str = "float32", device: str = "cuda:0", **more: Any) -> Tensor:
        return self.Tensor(shape, getattr(self, dtype), Device(device), **more)

    def _stream(self, handle: int) -> Any:
        self.on_stream.append(handle)
        return _Nothing()


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...
