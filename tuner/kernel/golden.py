"""Golden files: outputs that are known beforehand, which other references must give, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tuner.core.errors import KernelError
from tuner.kernel.reference import Expected, SettledReference, as_output, in_full
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
            value = np.load(file, allow_pickle=False)
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
        with np.errstate(all="ignore"):
            rough = ROUGH if other.probes else 1
            allowed = (
                rough * bound.coefficient * other.magnitude + bound.unit * np.abs(other.value) + bound.tiny
            )
            near = np.abs(mine - other.value) <= allowed
        off = ~(near | (mine == other.value) | (np.isnan(mine) & np.isnan(other.value)))
        if off.any():
            index = tuple(int(i) for i in np.argwhere(off)[0])
            raise GoldenDiffersError(
                f"the references of {name} differ at {list(index)}: its golden file {in_full(mine[index], 9)}, "
                f"the other {in_full(other.value[index], 9)}",
                "correct one of them",
            )
