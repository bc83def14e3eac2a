import math
from dataclasses import replace

import pytest

from tuner.formats.recording import find_recording, read_recording
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES, Roof, peak_flops, roof_of


@pytest.mark.parametrize(
    ("cc", "dtype", "pipe", "teraflops"),
    # The makers' data sheets, in TFLOP/s.
    [
        (75, "float16", "matrix", 65), (80, "float32", "vector", 19.5), (80, "float16", "vector", 78),
        (80, "bfloat16", "vector", 39), (80, "bfloat16", "matrix", 312), (90, "float32", "vector", 66.9),
        (90, "float64", "vector", 33.5),
    ],
)  # fmt: skip
def test_peaks_match_the_data_sheets(cc, dtype, pipe, teraflops):
    assert peak_flops(ARCHITECTURES[cc], dtype, pipe) == pytest.approx(teraflops * 1e12, rel=0.01)


def test_the_typical_h200_is_as_fast_as_a_recorded_one():
    """Figures without a GPU and figures with one are shares of the same roof."""
    path = find_recording("gemm")
    assert path is not None
    typical, recorded = ARCHITECTURES[90], read_recording(path).gpu
    assert (typical.name, typical.sm_count) == (recorded.name, recorded.sm_count)
    assert (typical.memory_bytes_per_s, typical.clock_hz) == (recorded.memory_bytes_per_s, recorded.clock_hz)


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
