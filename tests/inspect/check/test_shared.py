"""Shared memory wherever C++ lets a kernel declare it: each block has its own, which starts as NaNs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.check.cpu_run import CpuChild, cpu_run
from tuner.inspect.check.host_worker import HostResult
from tuner.inspect.emulator.building import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")
KERNEL = """\
kernel = { name = "turned" }
problem = { sizes = { n = 320 }, dtypes = { input = "float32" } }
tensors.x = { shape = ["n"], dtype = "input" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
reference = { numpy = "2 * x" }
variants.v.parameters.block_size = { values = [64] }
[[variants.v.launches]]
template = "k.cu"
entry = "ENTRY"
arguments = ["x", "y", "n"]
grid = ["ceil_div(n, block_size)"]
block = ["block_size"]
shared_bytes = "256"
"""
GLOBAL = 'extern "C" __global__ void k(const float* x, float* y, int n) {'
PLACES = {
    "a template kernel": (
        "template <typename T, int N> __global__ void k(const T* x, T* y, int n) { __shared__ T a[N]; BODY }",
        "k<float, 64>",
    ),
    "two instances of a template": (
        "template <typename T, int N, int WHICH> __device__ T turn(const T* x, int n)"
        " { __shared__ T a[N]; T out; { T* y = &out - at(n); BODY } return out; }"
        f"{GLOBAL} const int i = at(n); const float one = turn<float, 64, 0>(x, n);"
        " const float two = turn<float, 64, 1>(x, n); if (i < n) y[i] = (one + two) / 2; }",
        "k",
    ),
    "a member function": (
        "template <int N> struct Tile { __device__ void run(const float* x, float* y, int n)"
        f" {{ static __shared__ float a[N]; BODY }} }}; {GLOBAL} Tile<64>().run(x, y, n); }}",
        "k",
    ),
    "a member of a plain struct": (
        "struct Tile { __device__ static void run(const float* x, float* y, int n)"
        f" {{ __shared__ alignas(16) float a[64]; BODY }} }}; {GLOBAL} Tile::run(x, y, n); }}",
        "k",
    ),
    "a lambda": (f"{GLOBAL} [&](auto one) {{ __shared__ float a[64]; BODY }}(1); }}", "k"),
    "an inline function": (
        "inline __device__ void run(const float* x, float* y, int n) { __shared__ float a[64]; BODY }"
        f" {GLOBAL} run(x, y, n); }}",
        "k",
    ),
    "dynamic memory": (f"{GLOBAL}\nextern __align__(16) __shared__ float a[];\nBODY }}", "k"),
    "a file": (f"__shared__ float a[64]; {GLOBAL} BODY }}", "k"),
}
BODY = """
    const int t = threadIdx.x, i = at(n);
    a[63 - t] = i < n ? x[i] : 0;
    __syncthreads();
    a[63 - t] += a[63 - t];
    __syncthreads();
    if (i < n) y[i] = a[63 - t];
"""
AT = "__device__ int at(int n) { return blockIdx.x * block_size + threadIdx.x; }\n"


def ran(child: CpuChild, folder: Path, code: str, entry: str) -> HostResult:
    folder.mkdir()
    (folder / "k.cu").write_text(AT + code)
    (folder / "k.toml").write_text(KERNEL.replace("ENTRY", entry))
    return cpu_run(child, folder / "k.toml")


@pytest.mark.parametrize("place", PLACES)
def test_each_block_has_its_own_and_it_starts_as_nans(place: str, child: CpuChild, tmp_path: Path) -> None:
    code, entry = PLACES[place]
    assert ran(child, tmp_path / "right", code.replace("BODY", BODY), entry) == HostResult()
    unset = BODY.replace("a[63 - t] = i < n", "if (t % 8) a[63 - t] = i < n")
    assert "is nan, expected" in ran(child, tmp_path / "unset", code.replace("BODY", unset), entry).fault
