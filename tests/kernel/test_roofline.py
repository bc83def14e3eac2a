import math
from dataclasses import replace

import pytest

from tuner.formats.recording import find_recording, read_recording
from tuner.kernel.load import load_kernel
from tuner.kernel.occupancy import occupancy
from tuner.kernel.roofline import ARCHITECTURES, Roof, peak_flops, roof_of


@pytest.mark.parametrize(
    ("cc", "dtype", "pipe", "teraflops"),
    # The makers' data sheets, in TFLOP/s.
    [
        (75, "float32", "vector", 8.1),
        (75, "float16", "matrix", 65),
        (80, "float32", "vector", 19.5),
        (80, "float64", "vector", 9.7),
        (80, "float16", "vector", 78),
        (80, "bfloat16", "vector", 39),
        (80, "bfloat16", "matrix", 312),
        (86, "float32", "vector", 35.6),
        (89, "float32", "vector", 82.6),
        (90, "float32", "vector", 66.9),
        (90, "float64", "vector", 33.5),
        (120, "float32", "vector", 104.8),
    ],
)
def test_peaks_match_the_data_sheets(cc, dtype, pipe, teraflops):
    assert peak_flops(ARCHITECTURES[cc], dtype, pipe) == pytest.approx(teraflops * 1e12, rel=0.01)


def test_h200_matrix_peak_at_the_clock_of_its_data_sheet():
    gpu = replace(ARCHITECTURES[90], clock_hz=1.83e9)
    assert peak_flops(gpu, "float16", "matrix") == pytest.approx(989.4e12, rel=0.001)


def test_the_typical_h200_is_as_fast_as_a_recorded_one():
    """Figures without a GPU and figures with one are shares of the same roof."""
    path = find_recording("gemm")
    assert path is not None
    typical, recorded = ARCHITECTURES[90], read_recording(path).gpu
    assert (typical.name, typical.sm_count) == (recorded.name, recorded.sm_count)
    assert (typical.memory_bytes_per_s, typical.clock_hz) == (recorded.memory_bytes_per_s, recorded.clock_hz)


def test_float32_does_not_use_the_tensor_cores():
    gpu = ARCHITECTURES[90]
    for dtype in ("float32", "float64"):
        assert peak_flops(gpu, dtype, "matrix") == peak_flops(gpu, dtype, "vector")
    assert peak_flops(gpu, "float16", "matrix") == 16 * peak_flops(gpu, "float32", "vector")
    assert peak_flops(ARCHITECTURES[75], "bfloat16", "matrix") == peak_flops(
        ARCHITECTURES[75], "bfloat16", "vector"
    )


def test_an_unknown_capability_counts_as_the_nearest_below():
    gpu = ARCHITECTURES[100]
    assert peak_flops(replace(gpu, cc=103), "float16", "matrix") == peak_flops(gpu, "float16", "matrix")
    assert peak_flops(replace(gpu, cc=99), "float16", "matrix") == peak_flops(gpu, "float16", "matrix") / 2
    assert peak_flops(replace(gpu, cc=70), "float32", "vector") == 128 * gpu.sm_count * gpu.clock_hz


def test_roof():
    roof = Roof(flops=100.0, bytes=50.0, peak_flops=1e12, peak_bytes_per_s=1e11)
    assert (roof.intensity, roof.ridge, roof.bound) == (2.0, 10.0, "memory")
    assert roof.speed_of_light_ns == pytest.approx(0.5)
    roof = replace(roof, bytes=1.0)
    assert roof.bound == "compute"
    assert roof.speed_of_light_ns == pytest.approx(0.1)


def test_roof_of_vector_add():
    kernel, gpu = load_kernel("vector_add"), ARCHITECTURES[90]
    roof = roof_of(kernel, kernel.problem({"n": 1 << 26}), gpu)
    assert roof.bytes == 3 * 4 * (1 << 26)
    assert roof.bound == "memory"
    assert roof.speed_of_light_ns == pytest.approx(3 * 4 * (1 << 26) / 4.814304e12 * 1e9)
    half = roof_of(kernel, kernel.problem({"n": 1 << 26}, {"": "float16"}), gpu)
    assert half.bytes == roof.bytes / 2


def test_unknown_ceilings_bound_nothing():
    kernel = load_kernel("vector_add")
    gpu = replace(ARCHITECTURES[90], clock_hz=0.0)
    roof = roof_of(kernel, kernel.problem(), gpu)
    assert roof.bound == "memory"
    assert roof.speed_of_light_ns == roof.bytes / gpu.memory_bytes_per_s * 1e9
    gpu = replace(gpu, memory_bytes_per_s=0.0)
    assert roof_of(kernel, kernel.problem(), gpu).speed_of_light_ns == 0
    assert math.isinf(peak_flops(gpu, "float32", "vector"))


@pytest.mark.parametrize(
    ("cc", "threads", "registers", "shared", "blocks", "limiter", "fraction"),
    [
        # CUDA C++ Best Practices Guide, "Occupancy": 37 registers on an SM with 65,536 and 2048 threads.
        (80, 128, 37, 0, 12, "registers", 0.75),
        (80, 320, 37, 0, 4, "registers", 0.625),
        (90, 256, 32, 0, 8, "threads", 1.0),
        (90, 32, 32, 0, 32, "blocks", 0.5),
        (86, 1024, 32, 0, 1, "threads", 2 / 3),
        (86, 32, 32, 0, 16, "blocks", 1 / 3),
        (89, 32, 32, 0, 24, "blocks", 0.5),
        (75, 512, 64, 0, 2, "threads", 1.0),
        # 1 KiB of each block is the system's: 164 KiB hold 3 x (53 + 1), but not 3 x (54 + 1).
        (80, 128, 32, 100 * 1024, 1, "shared memory", 4 / 64),
        (80, 128, 32, 53 * 1024, 3, "shared memory", 12 / 64),
        (80, 128, 32, 54 * 1024, 2, "shared memory", 8 / 64),
        (75, 128, 32, 32 * 1024, 2, "shared memory", 8 / 32),
        (90, 128, 32, 227 * 1024, 1, "shared memory", 4 / 64),
        (90, 128, 32, 227 * 1024 + 1, 0, "shared memory", 0.0),
        (90, 1024, 65, 0, 0, "registers", 0.0),
        (90, 1025, 32, 0, 0, "threads", 0.0),
        # Rounding as in cuda_occupancy.h: 33 registers cost 40, and 100 threads four warps.
        (90, 1024, 33, 0, 1, "registers", 0.5),
        (90, 100, 128, 0, 4, "registers", 0.25),
    ],
)
def test_occupancy(cc, threads, registers, shared, blocks, limiter, fraction):
    result = occupancy(ARCHITECTURES[cc], threads, registers, shared)
    assert (result.active_blocks, result.limiter) == (blocks, limiter)
    assert result.fraction == pytest.approx(fraction)


def test_architectures_are_named_by_their_capability():
    assert set(ARCHITECTURES) == {75, 80, 86, 89, 90, 100, 120}
    for cc, gpu in ARCHITECTURES.items():
        assert gpu.cc == cc
        assert gpu.shared_bytes_optin + gpu.reserved_shared_bytes == gpu.shared_bytes_per_sm
