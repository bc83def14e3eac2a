"""The arrays and numbers of a call, on the host: those of NumPy, torch, CuPy, JAX, and of whatever speaks DLPack."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.core.errors import UsageError, typed
from tuner.core.model import Value
from tuner.kernel.functions import first_line
from tuner.kernel.source.types import DTYPE_OF, CType, Parameter, remedy_for
from tuner.runtime.dtypes import BITS, DTYPES, ITEMSIZE, PARTS

_LETTERS = "xyzw"


def is_array(value: object) -> bool:
    """Return whether something is an array of at least one dimension, of any library."""
    speaks = any(
        hasattr(value, name) for name in ("__dlpack__", "__cuda_array_interface__", "__array_interface__")
    )
    return speaks and getattr(value, "ndim", 1) > 0 and not isinstance(value, np.generic)


def on_host(name: str, array: Any, *, gaps: bool = False) -> tuple[NDArray[Any], str]:
    """Return an array's values in the host's memory, and its dtype; dtypes that NumPy lacks are kept as float32.

    What its library has queued on its GPU is awaited. The array itself is never written.

    Args:
        name: for errors.
        array: of any library.
        gaps: whether it need not be contiguous, as what is only compared with: a transposed one is copied.

    Raises:
        UsageError: it is no array, empty, not contiguous, of a dtype that no kernel has, or cannot be read.
    """
    if not is_array(array):
        raise UsageError(f"{name} is {typed(array)}", "pass an array, such as one of NumPy")
    if np.ma.is_masked(array):
        raise UsageError(f"{name} has masked elements, which a kernel would read", f"pass {name}.filled(0)")
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    dtype = ""
    try:
        if torch is not None and isinstance(array, torch.Tensor):
            if gaps:
                array = array.contiguous()
            if not array.is_contiguous():
                _refuse_gaps(name, f"{name}.contiguous()")
            if array.is_cuda:
                torch.cuda.synchronize(array.device)
            dtype = str(array.dtype).removeprefix("torch.")
            host = array.detach().cpu()
            values = (host.float() if dtype in BITS else host).numpy()
        elif cupy is not None and isinstance(array, cupy.ndarray):
            if not (gaps or array.flags.c_contiguous):
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
    if values.dtype.name in BITS:  # of ml_dtypes, as JAX has it
        dtype, values = values.dtype.name, values.astype(np.float32)
    values = values.astype(values.dtype.newbyteorder("="), copy=False)  # a kernel reads this machine's bytes
    if gaps:
        values = np.ascontiguousarray(values)
    if not values.flags.c_contiguous:
        _refuse_gaps(name, f"numpy.ascontiguousarray({name})")
    if values.size == 0:
        raise UsageError(
            f"{name} has no elements: its shape is {values.shape}", "pass an array with elements"
        )
    if (dtype := dtype or values.dtype.name) not in ITEMSIZE:
        kinds = [values.dtype[one].base.name for one in values.dtype.names or ()]
        fitting = next(
            word for word in ("uint32", "uint16", "uint8") if values.itemsize % ITEMSIZE[word] == 0
        )
        word = kinds[0] if len(set(kinds)) == 1 and kinds[0] in ITEMSIZE else fitting
        remedy = f"{name}.view({word!r}): its words" if kinds else f"one of {', '.join(ITEMSIZE)}"
        raise UsageError(f"{name} is {dtype}", f"pass {remedy}")
    return values, dtype


def _refuse_gaps(name: str, remedy: str) -> None:
    raise UsageError(f"{name} is not contiguous, and a kernel gets its address alone", f"pass {remedy}")


def pointed_to(name: str, array: NDArray[Any], dtype: str, of: CType) -> tuple[NDArray[Any], str]:
    """Return an array and its dtype as a kernel's pointer points to them: complex numbers to float* are pairs.

    Raises:
        UsageError: it points to something else.
    """
    if (part := PARTS.get(dtype)) is not None and of.dtype == part:
        if of.lanes == 2:
            return array, dtype
        array, dtype = array.view(part).reshape(*array.shape, 2), part
    if of.dtype is not None and of.dtype != dtype:
        remedy = f"pass {name}.astype({of.dtype!r})" if of.dtype not in BITS else f"pass a {of.dtype} tensor"
        raise UsageError(f"{name} is {dtype}, and the kernel takes {of.text}", remedy)
    if array.size % of.lanes:
        raise UsageError(f"{name} has {array.size} numbers, which are no whole {of.base}", "pass whole ones")
    return array, dtype


def struct_of(name: str, value: Any) -> dict[str, Any]:
    """Return the numbers of a struct of NumPy's, those of arrays one by one, of a vector or complex number, by name."""
    if is_complex(value):
        value = [value.real, value.imag]
    if isinstance(value, np.void) and value.dtype.names:
        parts = {f"{name}_{member}": np.ravel(value[member]) for member in value.dtype.names}
        return {
            f"{member}_{place}" if len(part) > 1 else member: one
            for member, part in parts.items()
            for place, one in enumerate(part)
        }
    if isinstance(value, list | tuple | np.ndarray) and np.ndim(value) == 1:
        return {f"{name}_{_LETTERS[place : place + 1] or place}": one for place, one in enumerate(value)}
    return {}


def is_complex(value: Any) -> bool:
    """Return whether a value is a complex number, of Python or NumPy."""
    return isinstance(value, complex | np.complexfloating)


def members(
    name: str, value: Any, of: CType, declared: Sequence[Parameter] = ()
) -> dict[str, tuple[str, Value]]:
    """Return dtype and value of each member of a struct by value: a vector of CUDA's, one of NumPy's structs, or the
    parts of a complex number.

    Args:
        name: the parameter's.
        value: what is passed.
        of: its type.
        declared: the members in the source; none where they are not known.

    Raises:
        UsageError: it is none, or has other members.
    """
    as_array = ", ".join(f"({one.name!r}, {one.type.dtype!r})" for one in declared)
    if isinstance(value, np.void) and value.dtype.names:
        found = {}
        for member, one in struct_of(name, value).items():
            dtype = one.dtype.name
            if dtype not in ITEMSIZE or DTYPES[dtype].kind == "complex":
                raise UsageError(f"{member} is {dtype}", "pass members that are numbers")
            found[member] = (dtype, int(one) if dtype == "bool" else one.item())
        pairs = [(member.removeprefix(f"{name}_"), dtype) for member, (dtype, _) in found.items()]
        if declared and not _same_members(pairs, declared):
            has = ", ".join(f"{kind} {one}" for one, kind in pairs)
            wants = ", ".join(f"{one.type.text} {one.name}" for one in declared)
            remedy = f"pass np.array((...), [{as_array}])[()]"
            raise UsageError(f"{name} has {has}; and {of.text} {wants}", remedy)
        return found
    if is_complex(value) and of.dtype is not None:
        of = replace(of, base="double" if of.dtype == "complex128" else "float", lanes=2)
        value = [value.real, value.imag]
    if of.base.startswith(("cudaTexture", "cudaSurface")):
        raise UsageError(f"{name} is {of.text}, which the tuner cannot pass", remedy_for(of))
    if of.lanes == 1 or of.base not in DTYPE_OF:
        example = f"((...), [{as_array}])" if declared else "((1, 0.5), [('count', 'i4'), ('factor', 'f4')])"
        raise UsageError(
            f"{name} is {_what(value)}, and the kernel takes {of.text} by value",
            f"pass a struct of NumPy's: np.array{example}[()]",
        )
    if np.shape(value) != (of.lanes,):
        raise UsageError(
            f"{name} is {_what(value)}, and the kernel takes {of.text}", f"pass {of.lanes} numbers"
        )
    one = replace(of, lanes=1, text=of.base)
    return {member: number(member, part, one) for member, part in struct_of(name, value).items()}


def _same_members(given: Sequence[tuple[str, str]], declared: Sequence[Parameter]) -> bool:
    """Return whether names and dtypes may be those of a struct: other names will do, not the same in another order."""
    names, own = [name for name, _ in given], [one.name for one in declared]
    same = names == own or (len(names) == len(own) and set(names) != set(own))
    kinds = ((kind, str(one.type.dtype)) for (_, kind), one in zip(given, declared, strict=False))
    return same and all(
        DTYPES[kind].whole == DTYPES[of].whole and ITEMSIZE[kind] == ITEMSIZE[of] for kind, of in kinds
    )


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
    if DTYPES[dtype].whole:
        if isinstance(plain, float) and not plain.is_integer():
            raise UsageError(f"{name} is {plain}, and the kernel takes {of.text}", "pass a whole number")
        if dtype == "int64" and of.base in DTYPE_OF and plain >= 2**63:
            dtype = DTYPE_OF[of.base]
        low, high = DTYPES[dtype].limits
        if not low <= plain <= high:
            raise UsageError(
                f"{name} is {plain}, which {of.text} does not hold", "take a wider type in the kernel"
            )
        return dtype, int(plain)
    if not abs(plain) <= sys.float_info.max:
        raise UsageError(f"{name} is {plain}, and the kernel takes {of.text}", "pass a finite number")
    return dtype, float(plain)


def _what(value: object) -> str:
    return typed(value) if not isinstance(value, str) else repr(value)
