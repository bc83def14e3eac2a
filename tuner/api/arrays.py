"""The arrays and numbers of a call, on the host: those of NumPy, torch, CuPy, JAX, and of whatever speaks DLPack."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.core.errors import UsageError, typed
from tuner.core.model import Value
from tuner.kernel.functions import first_line
from tuner.kernel.source.types import CType
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.launch_limits import INTEGER_RANGES


def is_array(value: object) -> bool:
    """Return whether something is an array of at least one dimension, of any library."""
    speaks = any(
        hasattr(value, name) for name in ("__dlpack__", "__cuda_array_interface__", "__array_interface__")
    )
    return speaks and getattr(value, "ndim", 1) > 0 and not isinstance(value, np.generic)


def on_host(name: str, array: Any) -> tuple[NDArray[Any], str]:
    """Return an array's values in the host's memory, and its dtype; bfloat16 is kept as float32.

    What its library has queued on its GPU is awaited. The array itself is never written.

    Raises:
        UsageError: it is no array, empty, not contiguous, of a dtype that no kernel has, or cannot be read.
    """
    if not is_array(array):
        raise UsageError(f"{name} is {typed(array)}", "pass an array, such as one of NumPy")
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    dtype = ""
    try:
        if torch is not None and isinstance(array, torch.Tensor):
            if not array.is_contiguous():
                _refuse_gaps(name, f"{name}.contiguous()")
            if array.is_cuda:
                torch.cuda.synchronize(array.device)
            dtype = str(array.dtype).removeprefix("torch.")
            host = array.detach().cpu()
            values = (host.float() if dtype == "bfloat16" else host).numpy()
        elif cupy is not None and isinstance(array, cupy.ndarray):
            if not array.flags.c_contiguous:
                _refuse_gaps(name, f"cupy.ascontiguousarray({name})")
            array.device.synchronize()
            values = cupy.asnumpy(array)
        elif isinstance(array, np.ndarray) or hasattr(array, "__array__"):
            values = np.asarray(array)
        elif hasattr(array, "copy_to_host"):  # Numba
            values = array.copy_to_host()
        elif hasattr(array, "__cuda_array_interface__") and hasattr(array, "get"):  # PyCUDA
            values = array.get()
        else:
            values = np.from_dlpack(array)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - a foreign library's own errors
        raise UsageError(f"{name} cannot be read: {first_line(error)}", "pass an array of NumPy") from None
    if values.dtype.name == "bfloat16":  # of ml_dtypes, as JAX has it
        dtype, values = "bfloat16", values.astype(np.float32)
    if not values.flags.c_contiguous:
        _refuse_gaps(name, f"numpy.ascontiguousarray({name})")
    if values.size == 0:
        raise UsageError(
            f"{name} has no elements: its shape is {values.shape}", "pass an array with elements"
        )
    if values.dtype.kind == "c":  # pairs of floats, as float2 has them
        values = values.view(values.real.dtype).reshape(*values.shape, 2)
    if (dtype := dtype or values.dtype.name) not in ITEMSIZE:
        raise UsageError(f"{name} is {dtype}", f"pass one of {', '.join(ITEMSIZE)}")
    return values, dtype


def _refuse_gaps(name: str, remedy: str) -> None:
    raise UsageError(f"{name} is not contiguous, and a kernel gets its address alone", f"pass {remedy}")


def require_pointer(name: str, array: NDArray[Any], dtype: str, of: CType) -> None:
    """Refuse an array that is not what a kernel's pointer points to.

    Raises:
        UsageError: that.
    """
    if of.dtype is not None and of.dtype != dtype:
        remedy = f"pass {name}.astype({of.dtype!r})" if of.dtype != "bfloat16" else "pass a bfloat16 tensor"
        raise UsageError(f"{name} is {dtype}, and the kernel takes {of.text}", remedy)
    if array.size % of.lanes:
        raise UsageError(f"{name} has {array.size} numbers, which are no whole {of.base}", "pass whole ones")


def number(name: str, value: Any, of: CType) -> tuple[str, Value]:
    """Return dtype and value of a number as a kernel takes it.

    Raises:
        UsageError: it is no number, or does not fit the parameter's type.
    """
    plain = value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value
    if isinstance(plain, bool):
        plain = int(plain)
    if not isinstance(plain, int | float):
        raise UsageError(f"{name} is {_what(value)}, and the kernel takes {of.text}", "pass a number")
    dtype = of.dtype
    if dtype is None:
        raise UsageError(
            f"{name} is passed as {of.text}, which cannot be passed by value", "pass a number or a pointer"
        )
    if dtype.startswith(("int", "uint")):
        if plain != int(plain):
            raise UsageError(f"{name} is {plain}, and the kernel takes {of.text}", "pass a whole number")
        low, high = INTEGER_RANGES[dtype]
        if not low <= plain <= high:
            raise UsageError(
                f"{name} is {plain}, which {of.text} does not hold", "take a wider type in the kernel"
            )
        return dtype, int(plain)
    return dtype, float(plain)


def _what(value: object) -> str:
    return typed(value) if not isinstance(value, str) else repr(value)
