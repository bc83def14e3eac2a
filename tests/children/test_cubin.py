"""What a cubin says without being run."""

from __future__ import annotations

import re

import pytest

from tuner.children.cubin import calls_malloc, filled_variable, source_name, variables
from tuner.children.nvrtc import compile_source
from tuner.core.errors import KernelError

SOURCE = """
__device__ int count;
static __device__ float kept[4] = {1.0f};
namespace { __device__ int hidden; }
__constant__ float weights[4];
template <int N> __device__ int counted = N;
extern "C" __global__ void kernel(int* x) {
    static __device__ int inside;
    __shared__ int tile[32];
    tile[threadIdx.x] = *x;
    *x = ++count + ++hidden + ++inside + ++counted<3> + tile[0] + int(kept[threadIdx.x]++ + weights[threadIdx.x]);
}
"""


def test_variables_in_global_memory_are_found_with_their_names() -> None:
    names = [
        one.symbol for one in variables(compile_source(SOURCE, "kernel", "sm_90").cubin) if not one.constant
    ]
    assert {source_name(name) for name in names} == {"count", "kept", "hidden", "counted", "inside"}


FILLED = """
__constant__ float weights[5];
static __constant__ signed char bytes[3];
extern "C" __constant__ int table[2];
__device__ double rows[4] = {1.0, 2.0};
__constant__ float begun[2] = {0.5f, 1.0f};
namespace filters { __constant__ int taps[6]; namespace { __device__ int rest[7]; } }
extern "C" __global__ void kernel(float* y) {
    const int i = threadIdx.x;
    y[i] = weights[i] + bytes[i] + table[i] + rows[i] + begun[i] + filters::taps[i] + filters::rest[i];
}
"""


def test_variables_that_launches_fill_are_found_by_their_names_in_cpp() -> None:
    cubin = compile_source(FILLED, "kernel", "sm_90").cubin
    assert {one.name: (one.size_bytes, one.constant, one.zero) for one in variables(cubin)} == {
        "weights": (20, True, True),
        "bytes": (3, True, True),
        "table": (8, True, True),
        "rows": (32, False, False),
        "begun": (8, True, False),
        "filters::taps": (24, True, True),
        "filters::rest": (28, False, True),
    }
    for name in ("weights", "::weights", "filters::taps", "_ZN7filters4tapsE", "filters::rest"):
        assert filled_variable(cubin, name, 20).size_bytes >= 20
    for name, size, said in (
        ("wieghts", 20, "no such .*; did you mean weights\\?"),
        ("taps", 20, "no such .*did you mean|no such .*filters::taps"),
        ("weights", 24, "the variable has 20 bytes, and the tensor 24"),
    ):
        with pytest.raises(KernelError) as caught:
            filled_variable(cubin, name, size)
        assert re.search(said, str(caught.value))


def test_memory_of_the_heap_is_found() -> None:
    source = """extern "C" __device__ void* __nv_aligned_device_malloc(size_t, size_t);
        extern "C" __global__ void kernel(int** x) { *x = %s; }"""
    aligned = "(int*)__nv_aligned_device_malloc(4096, 64)"
    found = {
        call: calls_malloc(compile_source(source % call, "kernel", "sm_90").cubin)
        for call in ("*x + 1", "(int*)malloc(4096)", "new int[1024]", aligned)
    }
    assert found == {"*x + 1": False, "(int*)malloc(4096)": True, "new int[1024]": True, aligned: True}
