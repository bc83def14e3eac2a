"""What a kernel's reference expects of its outputs, computed on the host: no GPU is needed.

A NumPy expression, a Python function and golden files are such references. The measuring process uses them, and so does
whatever checks a kernel without a GPU. A Python function runs with the user's rights: never call this in the head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tuner.core.errors import KernelError
from tuner.core.model import Value
from tuner.expressions.array import Array, ArrayExpression
from tuner.kernel.python_reference import run_function
from tuner.kernel.reference import Expected, SettledReference
from tuner.runtime.launches import Buffer


def expected_on_host(
    reference: SettledReference,
    tensors: Sequence[Buffer],
    inputs: Mapping[str, Array],
    numbers: Mapping[str, Value],
) -> dict[str, Expected]:
    """Return what is expected of each output that has a reference on the host; CUDA references are not run.

    Args:
        reference: of one problem, see :func:`tuner.kernel.reference.settle_reference`.
        tensors: of the problem, see :func:`tuner.kernel.plan.tensors_of`.
        inputs: values of the inputs and inouts before the run, as rounded to their dtypes, in float64, in the shape
            that the kernel means (of a transposed tensor not the one in memory).
        numbers: the problem's sizes, and its scalars as rounded to their dtypes.

    Raises:
        KernelError: a reference fails, does not fit its output, or a file cannot be read.
    """
    outputs = {tensor.name: tensor.meant_shape for tensor in tensors if tensor.role != "input"}
    golden = from_files({name: file for name, file in reference.golden.items() if name in outputs}, outputs)
    computed = from_expressions(reference.numpy, outputs, {**inputs, **numbers})
    if reference.python is not None:
        wanted = [name for name in outputs if name not in computed]
        computed |= run_function(
            reference.python, tensors, wanted, inputs, numbers, reduction=reference.reduction
        )
    return {**golden, **computed}


def from_expressions(
    expressions: Mapping[str, ArrayExpression],
    outputs: Mapping[str, tuple[int, ...]],
    names: Mapping[str, Any],
) -> dict[str, Expected]:
    """Return the values of NumPy expressions by output.

    Args:
        expressions: by output.
        outputs: the shape of each output, as the kernel means it.
        names: values of tensors, sizes and scalars.

    Raises:
        KernelError: one cannot be evaluated, or does not fit its output.
    """
    expected = {}
    for output, expression in expressions.items():
        value, magnitude = expression.evaluate(names)
        try:
            value, magnitude = (np.broadcast_to(array, outputs[output]) for array in (value, magnitude))
        except ValueError:
            raise KernelError(
                f"the numpy reference of {output} has shape {value.shape}, not {outputs[output]}"
            ) from None
        expected[output] = Expected(value, magnitude)
    return expected


def from_files(files: Mapping[str, Path], outputs: Mapping[str, tuple[int, ...]]) -> dict[str, Expected]:
    """Return the content of golden files by output; the magnitude of a number is its absolute value.

    Raises:
        KernelError: a file cannot be read, or does not fit its output.
    """
    expected = {}
    for output, file in files.items():
        try:
            value = np.load(file, allow_pickle=False).astype(np.float64)
        except (OSError, ValueError) as error:
            raise KernelError(f"golden file {file}: {error}") from None
        if value.shape != outputs[output]:
            raise KernelError(
                f"golden file {file} has shape {value.shape}", f"this problem needs {outputs[output]}"
            )
        expected[output] = Expected(value, np.abs(value))
    return expected
