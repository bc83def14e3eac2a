"""Golden files, which are outputs that are known beforehand, and whether references agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.core.errors import KernelError
from tuner.kernel.contents import stored_array
from tuner.kernel.reference import Expected, SettledReference, Tolerance, as_output, in_full
from tuner.runtime.launches import Buffer

ROUGH = 1000.0
"""How much more may be off where magnitudes are but guessed: what is wrong mostly is by far."""


class GoldenDiffersError(KernelError):
    """A golden file has other numbers than another reference."""


def from_files(files: Mapping[str, Path], outputs: Mapping[str, Buffer]) -> dict[str, Expected]:
    """Return the content of golden files by output; the magnitude of a number is its absolute value.

    Raises:
        KernelError: a file cannot be read, or does not fit its output.
    """
    expected = {}
    for output, file in files.items():
        try:
            value = stored_array(file)
            magnitude = np.abs(value if value.dtype.kind == "c" else value.astype(np.float64))
        except (OSError, ValueError) as error:
            raise KernelError(f"golden file {file}: {error}") from None
        shape, dtype = outputs[output].meant_shape, outputs[output].dtype
        if value.shape != shape:
            raise KernelError(f"golden file {file} has shape {value.shape}", f"this problem needs {shape}")
        expected[output] = as_output(output, dtype, value, magnitude, f"golden file {file.name}")
    return expected


def require_same(
    golden: Mapping[str, Expected],
    computed: Mapping[str, Expected],
    reference: SettledReference,
    outputs: Mapping[str, Buffer],
) -> None:
    """Raise an error where a golden file has other numbers than another reference gives for the same output.

    It may be off by as much as a kernel's output: it may hold what one has computed.

    Args:
        golden: what files have, by output.
        computed: what other references give.
        reference: says how far an output may be off.
        outputs: their tensors.
    """
    for name in golden.keys() & computed.keys():
        mine, other = golden[name].value, computed[name]
        bound = reference.tolerance_of(outputs[name].dtype, other)
        if other.probes:
            bound = replace(bound, coefficient=ROUGH * bound.coefficient)
        if (index := first_beyond(bound, mine, other)) is not None:
            raise GoldenDiffersError(
                f"the references of {name} differ at {list(index)}: its golden file {in_full(mine[index], 9)}, "
                f"the other {in_full(other.value[index], 9)}",
                "correct one of them",
            )


def disagreement(bound: Tolerance, cuda: NDArray[Any], other: Expected) -> tuple[int, ...] | None:
    """Return the index of the first element in which two references disagree; None if they agree.

    Both are float64 or complex128: a tenth of the kernel's allowance is far beyond their rounding. Integers must be
    equal.
    """
    tenth = replace(bound, coefficient=0.1 * bound.coefficient, unit=1e-9, tiny=1e-300)
    return first_beyond(tenth, cuda, other)


def first_beyond(bound: Tolerance, values: NDArray[Any], other: Expected) -> tuple[int, ...] | None:
    """Return the index of the first element that is further off than a bound allows; None if there is none."""
    near = np.zeros(other.value.shape, bool)
    if other.value.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            near = np.abs(values - other.value) <= bound.allowed(other)
    off = ~(near | (values == other.value) | (np.isnan(values) & np.isnan(other.value)))
    return tuple(int(i) for i in np.argwhere(off)[0]) if off.any() else None
