"""Outputs that a user's function returns instead of writing to those of the problem: where they lie after a capture.

They are copied for comparing, outside of what is timed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.core.errors import CallError, TunerError
from tuner.gpu.arrays import TensorView
from tuner.gpu.candidate import Region
from tuner.runtime.arrays import read_dlpack
from tuner.runtime.dtypes import ITEMSIZE

RESULTS = "what it returns"


@dataclass(frozen=True)
class Returned:
    """An output in memory of a captured call, and where it belongs."""

    address: int
    target: int
    size_bytes: int

    @property
    def region(self) -> Region:
        """The memory, which lives from launch to launch."""
        return Region(RESULTS, self.address, self.size_bytes)

    @property
    def piece(self) -> tuple[int, int, int]:
        """As it is copied."""
        return self.target, self.address, self.size_bytes


def returned(value: object, outputs: Mapping[str, TensorView], stream: int, text: str) -> list[Returned]:
    """Return where outputs lie that a call has returned, in the order in which the task has them.

    Args:
        value: an array, or several, or arrays by the outputs' names.
        outputs: those that the call was not given.
        stream: on which it was captured.
        text: names the call.

    Raises:
        TunerError: they are others, or not as memory of the problem has them.
    """
    if not outputs:
        return []
    several: Sequence[object] = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, Mapping):
        several = [value.get(name) for name in outputs]
    if len(several) != len(outputs) or any(one is None for one in several):
        names = ", ".join(outputs)
        raise TunerError(
            f"{text} neither takes nor returns {names}", f"take {names} as parameters, or return them"
        )
    return [
        _placed(one, name, view, stream) for one, (name, view) in zip(several, outputs.items(), strict=True)
    ]


def _placed(array: object, name: str, view: TensorView, stream: int) -> Returned:
    torch = sys.modules.get("torch")
    if torch and isinstance(array, torch.Tensor) and type(array) not in (torch.Tensor, torch.nn.Parameter):
        kind = type(array).__name__
        raise TunerError(
            f"{kind} is returned for {name}", "return a torch.Tensor, which computes nothing later"
        )
    try:
        address, layout = read_dlpack(array, stream)
    except CallError as error:
        raise TunerError(
            f"what is returned for {name}: {error.problem}", "return an array on the GPU"
        ) from None
    shape = view.shape[::-1] if view.transposed else view.shape
    if layout.device < 0 or (layout.dtype, layout.shape or (1,)) != (view.dtype, shape):
        where = "" if layout.device >= 0 else f" in {layout.memory}"
        raise TunerError(
            f"{layout.dtype} {list(layout.shape)}{where} is returned for {name}",
            f"return {view.dtype} {list(shape)} on the GPU",
        )
    if not (layout.is_column_major() if view.transposed else layout.is_row_major()):
        raise TunerError(f"what is returned for {name} has gaps, or another order", "return it contiguous")
    return Returned(address, view.address, math.prod(shape) * ITEMSIZE[view.dtype])
