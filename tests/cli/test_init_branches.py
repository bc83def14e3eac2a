"""What ``tune init`` makes of conditionals: the branch that counts, and the values that choose one."""

from __future__ import annotations

import pytest

from tests.cli.init_sources import init, launch

pytestmark = pytest.mark.usefixtures("in_empty_folder")


@pytest.mark.parametrize(
    ("before", "condition", "holds"),
    [
        ("#define WIDE 0", "WIDE", False),
        ("#define WIDE 1", "!WIDE", False),
        ("#define WIDE 2", "WIDE == 2", True),
        ("#define WIDE 2", "WIDE != 2 || WIDE > 2", False),
        ("#define WIDE ALSO\n#define ALSO (1 << 4)", "WIDE % 16 + 1 < 1", False),
        ("#define WIDE 0x10u", "defined(WIDE) && WIDE / 8 <= 1", False),
        ("#ifndef WIDE\n#define WIDE 0\n#endif", "WIDE", False),
        ("#define WIDE 1\n#undef WIDE\n#define WIDE 0", "WIDE", False),
        ("#if WIDE\n#endif\n#define ALSO 0\n#define WIDE ALSO", "WIDE", False),
        ("#define WIDE A0\n#if WIDE\n#endif\n#define A0 0", "WIDE", False),
        ("\n".join(f"#define A{n} A{n + 1}" for n in range(5000)), "A0", True),
        ("#define WIDE 0", "WIDE && UNKNOWN", False),
        ("#define WIDE 0", "WIDE || UNKNOWN", True),
        ("#define WIDE WIDE", "WIDE == 1", True),
        ("#define WIDE 1", "WIDE / 0", True),
    ],
)
def test_the_branch_counts_that_the_macros_choose(
    before: str, condition: str, holds: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first where that takes a name without a value."""
    text = f"""{before}
#if {condition}
typedef double real;
#else
typedef float real;
#endif
__global__ void twice(const real* x, real* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}}
"""
    data, _ = init(capsys, text)
    assert data["tensors"]["y"]["dtype"] == ("float64" if holds else "float32")


def test_of_kernels_of_one_name_that_counts_whose_branch_is_chosen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = """
    #define LOCAL 1
    #if LOCAL == 0
    __global__ void copied(const float* x, float* y, int n) { y[blockIdx.x] = x[blockIdx.x]; }
    #endif
    #if LOCAL == 1
    __global__ void copied(const float* x, double* y) { y[blockIdx.x] = x[blockIdx.x]; }
    #endif
    """
    data, _ = init(capsys, text)
    assert launch(data)["arguments"] == ["x", "y"]
    assert data["tensors"]["y"]["dtype"] == "float64"


@pytest.mark.parametrize(
    ("before", "conditions", "values", "default"),
    [
        ("", ["METHOD == 0", "METHOD == 1", "2 == METHOD"], [0, 1, 2], 0),
        ("#define FAST 3", ["METHOD == 1", "METHOD == 2", "METHOD == FAST"], [1, 2, 3], 1),
        ("#ifndef METHOD\n#define METHOD 0\n#endif", [f"METHOD == {n}" for n in range(4)], [0, 1, 2, 3], 0),
        ("#ifndef METHOD\n#define METHOD 64\n#endif", ["METHOD == 32", "METHOD == 64"], [32, 64], 64),
        ("#ifndef METHOD\n#define METHOD 8\n#endif", ["METHOD == 4", "1"], [0, 4, 8], 8),
        ("", ["METHOD"], [0, 1], 0),
        ("", ["!METHOD && n_passes > 1"], [0, 1], 0),
        ("", ["METHOD == 2", "METHOD"], [0, 1, 2], 0),
        ("", ["METHOD != 0"], [0, 1], 0),
        ("", ["METHOD > 1"], [1, 2, 4, 8], 1),
        ("__constant__ float of[METHOD] = {};", ["METHOD == 2", "1"], [1, 2, 4, 8], 1),
        ("__constant__ float of[METHOD] = {};", ["METHOD == 3", "METHOD == 5"], [3, 5], 3),
    ],
)
def test_values_are_those_that_choose_a_branch(
    before: str, conditions: list[str], values: list[int], default: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for a name that the code uses, too, and compares with one number at most."""
    branches = "\n#el".join(f"if {one}\n y[i] = {n} * x[i];" for n, one in enumerate(conditions))
    text = f"""{before}
__global__ void scaled(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#{branches}
#endif
}}
"""
    data, _ = init(capsys, text)
    parameter = data["variants"]["main"]["parameters"]["METHOD"]
    assert (parameter["values"], parameter["default"]) == (values, default)


def test_what_unrolls_a_loop_has_more_values_than_those_of_a_condition(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = """__global__ void scaled(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#if UNROLL == 0
    #pragma unroll 1
#else
    #pragma unroll UNROLL
#endif
    for (int j = 0; j < 8; j++) if (i < n) y[i] += x[i];
}
"""
    data, _ = init(capsys, text)
    assert data["variants"]["main"]["parameters"]["UNROLL"]["values"] == [1, 2, 4, 8]


@pytest.mark.parametrize("default", [0, 1])
def test_constant_memory_of_all_branches_is_filled(default: int, capsys: pytest.CaptureFixture[str]) -> None:
    """But not what only other kernels use, or the host."""
    text = f"""
    #ifndef PRE
    #define PRE {default}
    #endif
    __constant__ float c[6];
    __constant__ float by_function[3], by_branch[4], of_other[5], of_host[2];
    __device__ float scaled(float x) {{ return x * by_function[0]; }}
    #if PRE == 0
    __device__ float added(float x) {{ return x; }}
    #else
    __device__ float added(float x) {{ return x + by_branch[0]; }}
    #endif
    __global__ void k(const float* x, float* y, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
    #if PRE == 0
        y[i] = x[i];
    #else
        y[i] = scaled(x[i]) + c[i % 6];
    #endif
        y[i] = added(y[i]);
    }}
    __global__ void other(float* y) {{
    #if PRE == 0
        y[threadIdx.x] = of_other[1];
    #else
        y[threadIdx.x] = of_other[2];
    #endif
    }}
    #ifdef WITH_MAIN
    int main() {{ cudaMemcpyToSymbol(of_host, 0, 8); }}
    #endif
    """
    data, _ = init(capsys, text, "--entry", "k")
    filled = ["c", "by_function", "by_branch"]
    assert launch(data)["constants"] == dict(zip(filled, filled, strict=True))
    assert data["tensors"]["c"]["shape"] == ["6"]


def test_what_only_another_branch_uses_is_a_parameter_too(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    #ifndef STAGED
    #define STAGED 0
    #endif
    #ifndef TILE
    #define TILE 16
    #endif
    #ifndef REPEATS
    #define REPEATS 10
    #endif
    __global__ void copied(const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
    #if STAGED
        __shared__ float kept[TILE];
    #endif
        if (i < n) y[i] = x[i];
    }
    #ifdef WITH_MAIN
    int main() { for (int i = 0; i < REPEATS; i++) run(); }
    #endif
    """
    data, _ = init(capsys, text)
    assert [*data["variants"]["main"]["parameters"]] == ["STAGED", "TILE", "block_size"]
