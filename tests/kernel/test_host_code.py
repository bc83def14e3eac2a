"""A source with code of the CPU is compiled as nvcc would compile its kernels."""

from __future__ import annotations

import pytest

from tuner.children.headers import headers_of
from tuner.children.nvrtc import compile_source
from tuner.kernel.source.device_part import device_part

PROGRAM = r"""
#include <cstdio>
#include <vector>
#include "cuda_runtime.h"
using namespace std;
#define CHECK(call) do { if ((call) != cudaSuccess) { printf("failed {\n"); exit(1); } } while (0)
#define SQUARE(x) square(x)
float square(float x) { return x * half_of(2 * x); }
static inline float half_of(float x)
{
    return x / 2;
}
template <class T> T first(const std::vector<T>& values) { return values[0]; }
__global__ void squares(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] = SQUARE(x[i]); }
void run(float* x, int n) { squares<<<1, 32>>>(x, n); CHECK(cudaDeviceSynchronize()); }
int main(int argc, char** argv) {
    float* x;
    cudaMalloc(&x, 128);
    run(x, 32);
    printf("%g }\n", first(std::vector<float>{1.0f}));
}
"""


@pytest.fixture
def program() -> str:
    return PROGRAM.replace("float square", "float half_of(float);\nfloat square")


def test_a_program_compiles_without_its_host_code(program: str) -> None:
    part = device_part(program)
    assert compile_source(part, "squares", "sm_90").entry
    assert "main" not in part and "std::vector" not in part
    assert part.count("\n") == program.count("\n")
    line = program.split("\n").index(next(one for one in program.split("\n") if "void squares" in one))
    assert part.split("\n")[line] == program.split("\n")[line]


def test_what_only_another_branch_calls_stays(program: str) -> None:
    """Which branch a configuration takes is not known."""
    branches = "\n#if WIDE\n x[i] = 2 * x[i];\n#else\n x[i] = once(x[i]);\n#endif\n"
    once = "__device__ float once(float x) { return x; }\n"
    part = device_part(once + program.replace("x[i] = SQUARE(x[i]);", branches))
    assert compile_source(part, "squares", "sm_90").entry


def test_a_parameter_hides_a_function_of_its_name(program: str) -> None:
    text = program.replace("squares(float* x, int n)", "squares(float* run, int n)").replace("x[i]", "run[i]")
    part = device_part(text)
    assert compile_source(part, "squares", "sm_90").entry and "cudaDeviceSynchronize" not in part


def test_what_only_branches_of_the_host_need_is_left_out(program: str) -> None:
    kept = "class Log { public: std::vector<int> lines; };\nstruct Pair { float a, b; };\n"
    of_host = "#ifdef SHOW\n  Log(x);\n#endif\n"
    other = '#ifdef SHOW\nvoid show(Log log) { printf("%d", log.lines[0]); }\n#endif\n'
    text = kept + program.replace("    run(x, 32);\n", of_host) + other
    assert "Log" not in device_part(text).replace(of_host, "").replace(other, "")
    needed = text.replace("x[i] = SQUARE", "\n#if WIDE\nPair p;\n#endif\nx[i] = SQUARE")
    assert "struct Pair" in device_part(needed) and "struct Pair" not in device_part(text)


def test_a_source_without_host_code_stays_as_it_is(program: str) -> None:
    """What comments and directives say beside is none."""
    kernels = program[: program.index("void run")]
    comments = (
        "// run<<<1, 32>>>(x, n);",
        "/* int main() {} */",
        "#define N 2  // main() { run<<<1, N>>>(x); }",
        '__device__ const char* usage = "main(<<<";',
    )
    for beside in ("", *comments):
        assert device_part(f"{beside}\n{kernels}") == f"{beside}\n{kernels}"


@pytest.mark.parametrize("cut", range(0, len(PROGRAM), 61))
def test_damaged_programs_are_read_to_their_end(cut: int, program: str) -> None:
    damaged = f"<<<{program[:cut]}{program[cut + 2 :]}"
    assert device_part(damaged).count("\n") == damaged.count("\n")


@pytest.mark.parametrize("header", ["torch/extension.h", "cublas_v2.h"])
def test_code_around_torch_is_left_out(header: str) -> None:
    text = """
    #include <HEADER>
    #define BIND(kind, type) \\
      void relu_##kind(torch::Tensor x) { relu<<<1, 256>>>(x.data_ptr(), x.numel()); }
    __global__ void relu(const void* in, half* out, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) out[i] = __hmax(__float2half(0.0f), static_cast<const half*>(in)[i]);
    }
    void done(cublasStatus_t status, int line) { exit(line); }
    #define done(status) { done((status), __LINE__); }
    BIND(f16, torch::kHalf)
    BIND(
        f32, torch::kFloat32)
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("relu", &relu_f16); }
    """
    text = text.replace("HEADER", header)
    part = device_part(text, "relu")
    assert part.count("\n") == text.count("\n") and "#define BIND(kind, type)" in part
    assert "torch::kHalf" not in part and "PYBIND" not in part
    assert compile_source(part, "relu", "sm_90", headers=headers_of(part, ())).cubin
