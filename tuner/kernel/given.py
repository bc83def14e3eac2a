"""Values that a kernel's file gives to tensors: of an ``.npy`` file, or of a Python function.

A function runs with the user's rights, as one that is a reference: never call this in the head.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from tuner.core.errors import KernelError
from tuner.core.model import Value
from tuner.kernel.contents import (
    Array,
    as_meant,
    decoded,
    drawn,
    encoded,
    from_bfloat16,
    is_integer,
)
from tuner.kernel.functions import PythonFunction
from tuner.kernel.python_reference import ArrayFunction, limited
from tuner.kernel.reference import in_full
from tuner.runtime.launches import Buffer


class GivenError(KernelError):
    """An ``.npy`` file does not fit its tensor."""


LIMIT_S = 60.0
"""For both calls of a function."""
BFLOAT16_BITS = np.dtype("V2")
"""As NumPy reads what ml_dtypes has written."""


def require_fitting(tensors: tuple[Buffer, ...], where: str = "") -> tuple[Buffer, ...]:
    """Return a problem's tensors, each of whose ``.npy`` files has its shape and numbers of its dtype.

    Args:
        tensors: of the problem.
        where: the kernel's file, for errors.

    Raises:
        GivenError: one cannot be read, or does not fit.
    """
    for tensor in tensors:
        if tensor.file is not None and not tensor.function:
            try:
                _require_fitting(tensor, tensor.file)
            except KernelError as error:
                place = f"{where}: tensors" if where else "tensors"
                raise GivenError(f"{place}: {tensor.name}: init: {error.problem}", error.remedy) from None
    return tensors


def _require_fitting(tensor: Buffer, file: Path) -> None:
    try:
        stat = file.stat()
        shape, dtype = _header(file, stat.st_mtime_ns, stat.st_size)
    except (OSError, ValueError) as error:
        raise KernelError(f"{file.name} is no array: {error}", "save one with numpy.save") from None
    if shape != tensor.meant_shape:
        raise KernelError(f"{file.name} has shape {shape}", f"this problem needs {tensor.meant_shape}")
    # NumPy has no bfloat16: its numbers come as float32, or as their bits.
    own = np.dtype("float32" if tensor.dtype == "bfloat16" else tensor.dtype)
    if dtype == BFLOAT16_BITS:
        fits = tensor.dtype in ("bfloat16", "float32", "float64")
    else:
        fits = dtype.kind in "biufc" and np.can_cast(dtype, own, "safe")
    if not fits:
        raise KernelError(
            f"{file.name} has {dtype}, and this problem {tensor.dtype}", f"save array.astype({str(own)!r})"
        )


@functools.lru_cache(maxsize=64)
def _header(file: Path, changed_ns: int, size: int) -> tuple[tuple[int, ...], np.dtype[np.generic]]:  # noqa: ARG001
    """Return shape and dtype of a file's array; when it was changed and its length are parts of the key."""
    array = np.lib.format.open_memmap(file, mode="r")
    return array.shape, array.dtype


def given_values(
    tensors: Iterable[Buffer], numbers: Mapping[str, Value], seed: int, limit_s: float = LIMIT_S
) -> dict[str, Array]:
    """Return what tensors hold whose kernel's file says each number, as it lies in memory.

    A function gets what its parameters name of the numbers, ``seed`` and ``rng``, a generator of NumPy's with that
    seed, and must return the same for the same.

    Args:
        tensors: of a problem.
        numbers: its sizes and scalars.
        seed: of the inputs.
        limit_s: seconds for both calls of a function.

    Raises:
        KernelError: a function fails or returns something else, or a file does not fit.
        TunerError: a function takes too long.
    """
    given = {}
    for number, tensor in enumerate(require_fitting(tuple(tensors))):
        if tensor.init == "range":
            given[tensor.name] = drawn(tensor, np.random.default_rng(0))
        elif tensor.file is not None:
            if tensor.function:
                array = _called(tensor, tensor.file, numbers, [seed % 2**63, number], limit_s)
            else:
                array = np.lib.format.open_memmap(tensor.file, mode="r")
            if array.dtype == BFLOAT16_BITS:
                array = from_bfloat16(array.view(np.uint16))
            given[tensor.name] = as_meant(array, tensor)
    return given


def _called(
    tensor: Buffer, file: Path, numbers: Mapping[str, Value], seed: list[int], limit_s: float
) -> Array:
    """Return what a function says that a tensor holds, in the shape that the kernel means."""
    function = PythonFunction(file, tensor.function)
    with limited(function, limit_s, "have it take less, or save its array in an .npy file"):
        call = ArrayFunction(function, {tensor.name: tensor}, {}, "function")

        def result() -> Array:
            drawing = {"seed": seed[0], "rng": np.random.default_rng(seed)}
            array, magnitude = call({**drawing, **numbers})[tensor.name]
            if magnitude is not None:
                call.refuse(f"returns two arrays for {tensor.name}", "return one")
            return array

        array = result()
        call.require_same(tensor.name, array, result())
    with np.errstate(all="ignore"):
        own = encoded(array, tensor.dtype)
    beyond = np.isinf(decoded(own, tensor.dtype)) & np.isfinite(array)
    wrong = own != array if is_integer(tensor) else beyond
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        call.refuse(
            f"returns {in_full(array[index])} in {tensor.name}{list(index)}, which is no number of {tensor.dtype}",
            "return numbers of its dtype",
        )
    return array
