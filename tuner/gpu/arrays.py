"""Device memory of ours as the arrays of torch and CuPy."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

from tuner.core.errors import TunerError
from tuner.kernel.functions import NOT_INSTALLED
from tuner.runtime.arrays import row_major, said_by
from tuner.runtime.driver import check
from tuner.runtime.dtypes import BITS, ITEMSIZE


@dataclass(frozen=True)
class TensorView:
    """A tensor in device memory."""

    address: int
    shape: tuple[int, ...]
    """As it lies in memory, row-major."""
    dtype: str
    transposed: bool = False
    """Whether memory has the transpose of what the kernel means by it; libraries see what the kernel means."""


class DeviceArray:
    """A tensor for libraries that understand ``__cuda_array_interface__`` (version 3).

    Attributes:
        shape: as the kernel means it.
        dtype: its name; of those that NumPy lacks the interface gives the bits.
    """

    def __init__(self, view: TensorView) -> None:
        strides = [ITEMSIZE[view.dtype] * step for step in row_major(view.shape)]
        self.shape = view.shape[::-1] if view.transposed else view.shape
        self.dtype = view.dtype
        self.__cuda_array_interface__ = {
            "shape": self.shape,
            # Bits as integers that torch has: no uint16.
            "typestr": np.dtype({**BITS, "bfloat16": "int16"}.get(view.dtype, view.dtype)).str,
            "data": (view.address, False),
            "strides": tuple(strides[::-1]) if view.transposed else None,
            "version": 3,
        }


def import_library(name: str) -> Any:
    """Import torch or CuPy.

    Raises:
        TunerError: it is not installed, is built without CUDA, or its installation is broken.
    """
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            raise TunerError(
                f"{name} {NOT_INSTALLED}", "install it, or compare with something else"
            ) from None
        raise TunerError(f"{name} cannot be imported: {error}", "repair its installation") from None
    except Exception as error:  # noqa: BLE001 - a library that does not match the driver can raise anything
        raise TunerError(f"{name} cannot be imported: {said_by(error)}", "repair its installation") from None
    if name == "torch" and getattr(getattr(module, "version", None), "cuda", "") is None:
        raise TunerError("torch is built without CUDA", "install one with it, or compare with something else")
    return module


def library_version(name: str) -> str:
    """Return a library's version, or nothing where :func:`import_library` has none."""
    try:
        return str(getattr(import_library(name), "__version__", "unknown"))
    except TunerError:
        return ""


def array_of(library: str, view: TensorView) -> Any:
    """Let a library see a tensor; without a library, as a :class:`DeviceArray`."""
    if library == "torch":
        return _torch_tensor(view)
    return _cupy_array(view) if library == "cupy" else DeviceArray(view)


def _torch_tensor(view: TensorView) -> Any:
    torch = import_library("torch")
    # Without its own device, torch would copy the tensor to the default one.
    device = torch.device("cuda", _current_device())
    tensor = torch.as_tensor(DeviceArray(replace(view, transposed=False)), device=device)
    if view.dtype in BITS:
        tensor = tensor.view(getattr(torch, view.dtype))
    return tensor.permute(*reversed(range(len(view.shape)))) if view.transposed else tensor


def _current_device() -> int:
    return int(check(cu.cuCtxGetDevice()))


def _cupy_array(view: TensorView) -> Any:
    cupy = import_library("cupy")
    size_bytes = math.prod(view.shape) * ITEMSIZE[view.dtype]
    memory = cupy.cuda.UnownedMemory(view.address, size_bytes, None)
    try:
        own = getattr(importlib.import_module("ml_dtypes"), view.dtype) if view.dtype in BITS else view.dtype
        dtype = np.dtype(own)
        array = cupy.ndarray(view.shape, dtype, cupy.cuda.MemoryPointer(memory, 0))
    except (ImportError, TypeError, ValueError) as error:
        raise TunerError(f"CuPy {cupy.__version__} cannot hold {view.dtype}: {error}", "use torch") from None
    return array.transpose() if view.transposed else array
