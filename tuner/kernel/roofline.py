"""The roofline: what bounds a problem, its minimum time on a GPU, the bytes in flight that this takes, and by it how
long tuning takes, roughly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tuner.core.conditions import Calibration, Mode
from tuner.core.errors import ExpressionError
from tuner.core.model import Gpu, Problem
from tuner.expressions.arithmetic import Expression
from tuner.kernel.plan import tensors_of
from tuner.kernel.spec import KernelSpec
from tuner.runtime.dtypes import ITEMSIZE, PARTS
from tuner.runtime.launches import OUTPUTS

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10

# Sources: limits per SM from "Technical Specifications per Compute Capability" in the CUDA programming
# guide; SMs, L2, highest clock and bandwidth from the architecture white papers and data sheets. H200: 6016
# bit at 3201 MHz, both edges, as the driver reports it (the data sheet rounds to 4.8 TB/s).
ARCHITECTURES: dict[int, Gpu] = {
    75: Gpu("Tesla T4", 75, 40, 4 * MIB, 16 * GIB, 65536, 64 * KIB,
            max_threads_per_sm=1024, max_blocks_per_sm=16, reserved_shared_bytes=0,
            clock_hz=1.59e9, memory_bytes_per_s=320e9),
    80: Gpu("NVIDIA A100-SXM4-80GB", 80, 108, 40 * MIB, 80 * GIB, 166912, 164 * KIB,
            clock_hz=1.41e9, memory_bytes_per_s=2.039e12),
    86: Gpu("NVIDIA GeForce RTX 3090", 86, 82, 6 * MIB, 24 * GIB, 101376, 100 * KIB,
            max_threads_per_sm=1536, max_blocks_per_sm=16,
            clock_hz=1.695e9, memory_bytes_per_s=936.2e9),
    89: Gpu("NVIDIA GeForce RTX 4090", 89, 128, 72 * MIB, 24 * GIB, 101376, 100 * KIB,
            max_threads_per_sm=1536, max_blocks_per_sm=24,
            clock_hz=2.52e9, memory_bytes_per_s=1.008e12),
    90: Gpu("NVIDIA H200", 90, 132, 60 * MIB, 141 * 10**9, 232448, 228 * KIB,
            clock_hz=1.98e9, memory_bytes_per_s=4.814304e12),
    100: Gpu("NVIDIA B200", 100, 148, 126 * MIB, 180 * 10**9, 232448, 228 * KIB,
             clock_hz=1.965e9, memory_bytes_per_s=8.0e12),
    120: Gpu("NVIDIA GeForce RTX 5090", 120, 170, 96 * MIB, 32 * GIB, 101376, 100 * KIB,
             max_threads_per_sm=1536, max_blocks_per_sm=24,
             clock_hz=2.407e9, memory_bytes_per_s=1.792e12),
}  # fmt: skip
"""One typical card for each compute capability, for tests and for compiling without a GPU."""

# FLOP per clock and SM, two for a fused multiply-add. From "Throughput of Native Arithmetic Instructions"
# in the CUDA programming guide, checked against the data sheets: 2 x cores x clock, as 82.6 TFLOP/s for 89,
# 66.9 for 90.
_VECTOR = {
    #      float32  float64  float16  bfloat16 (the latter two in pairs, half2)
    75:    (128,      4,      256,     128),
    80:    (128,     64,      512,     256),
    86:    (256,      4,      256,     256),
    89:    (256,      4,      256,     256),
    90:    (256,    128,      512,     512),
    100:   (256,    128,      512,     512),
    120:   (256,      4,      256,     256),
}  # fmt: skip
_COLUMNS = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}
# Tensor cores on dense float16 and bfloat16, accumulating in float32, as data-centre cards do it (GeForce
# cards do half): data sheet rates over SMs and highest clock, as 65 TFLOP/s for T4, 312 for A100, 150 for
# A40 (86), 362 for L40S (89), 989 for H100, 2250 for B200, 504 for RTX PRO 6000 (120).
_MATRIX = {75: 1024, 80: 2048, 86: 1024, 89: 1024, 90: 4096, 100: 8192, 120: 1024}
_MATRIX_SINCE = {"float16": 75, "bfloat16": 80, "float8_e4m3fn": 89}
COPY_SHARE = 0.1
"""Share of a problem's bytes that are written, above which a copy is what its bandwidth is compared with."""


def peak_flops(gpu: Gpu, dtype: str, pipe: str) -> float:
    """Return the peak FLOP/s at the highest clock; infinite if the clock is unknown.

    Matrix units count for float16, bfloat16 and at twice their rate float8 only: tensor cores would round float32 to
    tf32, which no kernel here does, and float64 counts at its vector rate. A compute capability that is not in the
    tables counts as the nearest lower one.

    Args:
        gpu: its compute capability, SMs and clock.
        dtype: of the operands; an integer type counts as float32.
        pipe: ``vector`` or ``matrix``.
    """
    if not gpu.clock_hz:
        return math.inf
    cc = _nearest(gpu)
    matrix = pipe_of(gpu, dtype, pipe) == "matrix"
    rate = (
        _MATRIX[cc] * (2 // ITEMSIZE[dtype])
        if matrix
        else _VECTOR[cc][_COLUMNS.get(PARTS.get(dtype, dtype), 0)]
    )
    return rate * gpu.sm_count * gpu.clock_hz


def pipe_of(gpu: Gpu, dtype: str, pipe: str) -> str:
    """Return the units whose rate is the ceiling: ``matrix`` if these support the dtype, else ``vector``."""
    since = _MATRIX_SINCE.get(dtype)
    supported = since is not None and _nearest(gpu) >= since
    return "matrix" if pipe == "matrix" and supported else "vector"


def _nearest(gpu: Gpu) -> int:
    return max((listed for listed in _VECTOR if listed <= gpu.cc), default=min(_VECTOR))


@dataclass(frozen=True)
class Roof:
    """The minimum work of a problem and the ceilings of a GPU (Williams, Waterman, Patterson 2009)."""

    flops: float
    bytes: float
    peak_flops: float
    """FLOP/s."""
    peak_bytes_per_s: float

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: FLOP per byte that must be moved."""
        return self.flops / self.bytes if self.bytes else math.inf

    @property
    def ridge(self) -> float:
        """The intensity above which the arithmetic takes longer than the memory."""
        if math.isinf(self.peak_bytes_per_s):
            return 0.0
        return self.peak_flops / self.peak_bytes_per_s

    @property
    def bound(self) -> str:
        """What takes longer: ``memory`` or ``compute``."""
        return "memory" if self.intensity < self.ridge else "compute"

    @cached_property
    def speed_of_light_ns(self) -> float:
        """The minimum time under the ceilings."""
        return max(self.flops / self.peak_flops, self.bytes / self.peak_bytes_per_s) * 1e9


def _amount(expression: Expression, names: Mapping[str, Any]) -> float:
    if (amount := expression.number(names)) < 0:
        raise ExpressionError(f"{expression.where}: {expression.text} = {amount:g}", "it must be 0 or more")
    return amount


def roof_of(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Roof:
    """Return a problem's minimum work and the ceilings of a GPU; unknown ceilings are infinite."""
    names = kernel.environment(problem, gpu)
    return Roof(
        _amount(kernel.work.flops, names),
        _amount(kernel.work.bytes, names),
        peak_flops(gpu, problem.dtype, kernel.work.pipe),
        gpu.memory_bytes_per_s or math.inf,
    )


# -- Little's law: bytes in flight = rate x latency

LATENCY_NS = (600.0, 800.0)
"""Latency of a load from DRAM, as commonly observed on data-centre cards at full bandwidth; it is lower when memory is
idle. It is not measured here, so results based on it are orders of magnitude."""


def bytes_in_flight(bytes_per_s: float, latency_ns: float, sm_count: int) -> float:
    """Return the bytes in flight of each SM that keep the memory busy all the time (Little 1961)."""
    return bytes_per_s * latency_ns * 1e-9 / sm_count


def customary_bytes_in_flight(gpu: Gpu) -> int:
    """Return the bytes in flight of an SM by which CUB chooses the items of a thread: a rule of thumb.

    Source: NVIDIA CCCL, ``cub/device/dispatch/tuning/tuning_transform.cuh``, ``arch_to_min_bytes_in_flight``: 12 KB up
    to V100, 16 KB for A100, 48 KB for H200 (32 for H100, by its comment), 64 KB for B200 and later.
    """
    if gpu.cc >= 100:
        return 64 * KIB
    if gpu.cc >= 90:
        return (32 if "H100" in gpu.name else 48) * KIB
    return (16 if gpu.cc >= 80 else 12) * KIB


TYPICAL = replace(ARCHITECTURES[90], memory_bytes_per_s=4e12)
"""The GPU that estimates are for: the same everywhere, so that all hosts deal out a list in the same way."""
OPENING_S = 4.0
"""Inputs, the reference, the race, fresh processes and edge-case sizes: a search of gemm on an H200 spends about so
long beside its trials."""
TRIAL_S = 0.055
"""Of a candidate whose calls take no time: compiling, verifying and recording it (15 to 19 trials a second)."""
CALLS = 60.0
"""Calls at the speed of light that a trial takes: two dozen samples, most of them slower, and pauses between them."""


def tuning_seconds(kernel: KernelSpec, problem: Problem, trials: int) -> float:
    """Return the seconds that a run of so many trials takes, by the problem's minimum work.

    Raises:
        TunerError: the kernel's file says of the work what cannot be evaluated.
    """
    call_s = roof_of(kernel, problem, TYPICAL).speed_of_light_ns * 1e-9
    return OPENING_S + trials * (TRIAL_S + CALLS * call_s)


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
        rate = (
            calibration.matrix_flops
            if matrix
            else calibration.vector_flops * (dtype in ("float32", "complex64"))
        )
    else:
        tensors = tensors_of(kernel, problem, gpu)
        written = sum(tensor.size_bytes for tensor in tensors if tensor.role in OUTPUTS)
        work = roof.bytes
        copies = written > COPY_SHARE * sum(tensor.size_bytes for tensor in tensors)
        name = "copy" if copies else "read"
        rate = calibration.copy_bytes_per_s if copies else calibration.read_bytes_per_s
    return Ceiling(name, work / rate * 1e9) if rate > 0 and work > 0 else None
