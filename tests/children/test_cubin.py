"""What a cubin says without being run."""

from __future__ import annotations

from tuner.children.cubin import calls_malloc, device_variables, source_name
from tuner.children.nvrtc import compile_source

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
    names = device_variables(compile_source(SOURCE, "kernel", "sm_90").cubin)
    assert {source_name(name) for name in names} == {"count", "kept", "hidden", "counted", "inside"}


def test_memory_of_the_heap_is_found() -> None:
    source = 'extern "C" __global__ void kernel(int** x) { *x = %s; }'
    found = {
        call: calls_malloc(compile_source(source % call, "kernel", "sm_90").cubin)
        for call in ("*x + 1", "(int*)malloc(4096)", "new int[1024]")
    }
    assert found == {"*x + 1": False, "(int*)malloc(4096)": True, "new int[1024]": True}
