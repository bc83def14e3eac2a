"""The ceilings that a problem's times are compared with: of its roofline, and as measured on the GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tuner.core.conditions import Calibration, Mode
from tuner.core.model import Gpu, Problem
from tuner.kernel.plan import tensors_of
from tuner.kernel.roofline import Roof
from tuner.kernel.spec import KernelSpec

COPY_SHARE = 0.1
"""Share of a problem's bytes that are written, above which a copy is what its bandwidth is compared with."""


@dataclass(frozen=True)
class Ceiling:
    """What one of the tuner's own kernels reached on this GPU, as the time that the problem would take at that rate."""

    name: str
    """``copy``, ``read``, ``matrix`` or ``vector``."""
    time_ns: float


def roof_under(roof: Roof, mode: Mode) -> Roof:
    """Return a roof with the ceilings that hold in a mode; the others become infinite, as unknown ones are."""
    if mode is not Mode.WARM:
        return roof
    # With warm caches the bytes need not come from memory: shares of its rate can be several hundred per cent, and the
    # rate of the caches is not known. Arithmetic has the same ceiling as before, but where it is not the bound, its
    # share says nothing about how good a time is: then there is none at all.
    flops = roof.peak_flops if roof.bound == "compute" else math.inf
    return replace(roof, peak_flops=flops, peak_bytes_per_s=math.inf)


def ceiling_of(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, roof: Roof, calibration: Calibration | None
) -> Ceiling | None:
    """Return the measured ceiling that a problem is to be compared with; None where none was measured."""
    if calibration is None:
        return None
    work: float
    if roof.bound == "compute":
        work, dtype = roof.flops, problem.dtype
        matrix = kernel.work.pipe == "matrix" and dtype in ("float16", "bfloat16")
        name = "matrix" if matrix else "vector"
        rate = calibration.matrix_flops if matrix else calibration.vector_flops * (dtype == "float32")
    else:
        tensors = tensors_of(kernel, problem, gpu)
        written = sum(tensor.size_bytes for tensor in tensors if tensor.role != "input")
        work = roof.bytes
        copies = written > COPY_SHARE * sum(tensor.size_bytes for tensor in tensors)
        name = "copy" if copies else "read"
        rate = calibration.copy_bytes_per_s if copies else calibration.read_bytes_per_s
    return Ceiling(name, work / rate * 1e9) if rate > 0 and work > 0 else None
