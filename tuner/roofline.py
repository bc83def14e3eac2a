"""Work and ceilings -> what bounds a problem and how fast it could be; and how full a kernel fills an SM."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.expressions import ceil_div, round_up
from tuner.kernel import KernelSpec
from tuner.model import Gpu, Problem

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10

# Sources: limits per SM from "Technical Specifications per Compute Capability" in the CUDA programming
# guide; SMs, L2, highest clock and bandwidth from the architecture white papers and data sheets. H200: 6144
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
            clock_hz=1.98e9, memory_bytes_per_s=4.917e12),
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
# A40 (86), 362 for L40S (89), 989 for H100, 2250 for B200, 504 for RTX PRO 6000 (120). cc 7.5 has no
# bfloat16.
_MATRIX = {75: 1024, 80: 2048, 86: 1024, 89: 1024, 90: 4096, 100: 8192, 120: 1024}


def peak_flops(gpu: Gpu, dtype: str, pipe: str) -> float:
    """Give the most FLOP/s at the highest clock; infinite when the clock is not known.

    Matrix units count for float16 and bfloat16 only: tensor cores would round float32 to tf32, which no
    kernel here does, and float64 is taken at its vector rate. A compute capability that is not in the
    tables counts as the nearest one below.

    Args:
        gpu: its compute capability, SMs and clock.
        dtype: of the operands; an integer type counts as float32.
        pipe: ``vector`` or ``matrix``.
    """
    if not gpu.clock_hz:
        return math.inf
    cc = max((known for known in _VECTOR if known <= gpu.cc), default=min(_VECTOR))
    if pipe == "matrix" and dtype in ("float16", "bfloat16") and (cc, dtype) != (75, "bfloat16"):
        rate = _MATRIX[cc]
    else:
        rate = _VECTOR[cc][_COLUMNS.get(dtype, 0)]
    return rate * gpu.sm_count * gpu.clock_hz


@dataclass(frozen=True)
class Roof:
    """The least work of a problem and the ceilings of a GPU (Williams, Waterman, Patterson 2009)."""

    flops: float
    bytes: float
    peak_flops: float
    """FLOP/s."""
    peak_bytes_per_s: float

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: FLOP for each byte that must move."""
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

    @property
    def speed_of_light_ns(self) -> float:
        """The least time that the ceilings allow."""
        return max(self.flops / self.peak_flops, self.bytes / self.peak_bytes_per_s) * 1e9


def roof_of(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> Roof:
    """Settle a kernel's work for a problem, under the ceilings of a GPU; unknown ceilings are infinite."""
    names = kernel.environment(problem, gpu)
    return Roof(
        float(kernel.work.flops.evaluate(names)),
        float(kernel.work.bytes.evaluate(names)),
        peak_flops(gpu, problem.dtype, kernel.work.pipe),
        gpu.memory_bytes_per_s or math.inf,
    )


WARP = 32
PARTITIONS = 4
"""An SM's registers and schedulers come in four parts, and a warp lives in one of them."""
REGISTER_UNIT = 256
"""Registers are given to a warp in units of this many."""


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel an SM holds at once, and what keeps it from holding more."""

    active_blocks: int
    limiter: str
    """``threads``, ``blocks``, ``registers`` or ``shared memory``."""
    fraction: float
    """Active warps over the most that the SM can hold."""


def occupancy(gpu: Gpu, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Count the blocks that fit on one SM, by the rules of NVIDIA's ``cuda_occupancy.h``.

    Args:
        gpu: its limits.
        threads: of one block.
        registers: of one thread.
        shared_bytes: of one block, static and dynamic together; the largest carve-out is assumed.
    """
    warps = ceil_div(threads, WARP)
    registers_a_warp = round_up(registers * WARP, REGISTER_UNIT)
    limits = {
        "threads": gpu.max_threads_per_sm // WARP // warps if threads <= gpu.max_threads_per_block else 0,
        "blocks": gpu.max_blocks_per_sm,
    }
    if registers:
        # A launch is checked as if its warps filled all partitions evenly.
        fits = registers_a_warp * round_up(warps, PARTITIONS) <= gpu.registers_per_sm
        warps_that_fit = gpu.registers_per_sm // PARTITIONS // registers_a_warp * PARTITIONS
        limits["registers"] = warps_that_fit // warps if fits else 0
    if shared_bytes > gpu.shared_bytes_optin:
        limits["shared memory"] = 0
    else:
        taken = round_up(shared_bytes + gpu.reserved_shared_bytes, 128 if gpu.cc >= 80 else 256)
        limits["shared memory"] = gpu.shared_bytes_per_sm // taken if taken else gpu.max_blocks_per_sm
    limiter = min(limits, key=lambda name: limits[name])
    active = limits[limiter]
    return Occupancy(active, limiter, active * warps * WARP / gpu.max_threads_per_sm)
