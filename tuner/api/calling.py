"""A call of a tuned kernel with the arguments that its C function takes, in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuner.api.arrays import is_array, on_host, struct_of
from tuner.core.errors import CallError, typed
from tuner.kernel.spec import KernelSpec
from tuner.runtime.arrays import one_or_all
from tuner.runtime.dtypes import DTYPES
from tuner.runtime.launches import OUTPUTS
from tuner.runtime.libraries import DeviceCopy
from tuner.runtime.operation import Operation


def launch(operation: Operation, kernel: KernelSpec, values: Mapping[str, Any], stream: Any = None) -> Any:
    """Launch a kernel, and return its output, or a tuple of several, as the arrays that were passed.

    Arrays of NumPy are copied to the GPU, and what the kernel writes is copied back into them.

    Args:
        operation: the kernel's winners.
        kernel: says which value is a tensor, a size or a scalar.
        values: by the names of the C function's parameters.
        stream: where it is launched; by default the current stream of the arrays' library.

    Raises:
        CallError: they are not what the kernel takes.
        DeviceError: the driver refuses.
    """
    given = arrays = {name: values[name] for name in kernel.tensors if name in values}
    if wrong := next((name for name, array in arrays.items() if not is_array(array)), None):
        raise CallError(f"{wrong} is {typed(arrays[wrong])}", "pass an array")
    arrays = {name: _as_pairs(array, kernel.tensors[name].dtype, kernel) for name, array in arrays.items()}
    copies = {name: copied(name, array) for name, array in arrays.items() if isinstance(array, np.ndarray)}
    values = {
        **values,
        **{part: one for name in values for part, one in struct_of(name, values[name]).items()},
    }
    passed = {**arrays, **copies}
    written = [name for name, tensor in kernel.tensors.items() if tensor.role in OUTPUTS]
    outs = [passed[name] for name, tensor in kernel.tensors.items() if tensor.role == "output"]
    operation(
        *(passed[name] for name, tensor in kernel.tensors.items() if tensor.role != "output"),
        out=outs or None,
        stream=stream,
        sizes={name: int(values[name]) for name in kernel.sizes if name in values},
        **{name: np.asarray(values[name]).item() for name in kernel.scalars if name in values},
    )
    for name in written:
        if name in copies:
            copies[name].read(arrays[name].ctypes.data)
    return one_or_all([given[name] for name in written])


def _as_pairs(array: Any, dtype: str, kernel: KernelSpec) -> Any:
    """Return complex numbers of the host as pairs of floats where a tensor has these."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "c" or not array.flags.c_contiguous:
        return array
    dtypes = kernel.dtypes.get(dtype, dtype)
    if any(
        one in DTYPES and DTYPES[one].kind == "complex"
        for one in ([dtypes] if isinstance(dtypes, str) else dtypes)
    ):
        return array
    return array.view(array.real.dtype).reshape(*array.shape, 2)


def copied(name: str, array: Any) -> DeviceCopy:
    """Return an array of the host on the GPU."""
    values, dtype = on_host(name, array)
    return DeviceCopy(values.ctypes.data, values.nbytes, dtype, values.shape)


def named(arguments: Mapping[str, str], args: Sequence[Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names in the kernel's file, which ``arguments`` has by those in C.

    Raises:
        CallError: there are too many or too few, or one has another name.
    """
    by_name = {arguments.get(name, name): value for name, value in others.items()}
    values = {**dict(zip(arguments.values(), args, strict=False)), **by_name}
    if len(args) > len(arguments) or values.keys() != set(arguments.values()):
        raise CallError(f"it takes {', '.join(arguments)}", "pass these, in this order or by name")
    return values
