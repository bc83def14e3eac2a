"""``tune init``: from a CUDA source to a kernel's file, in the ways that people write kernels."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Said, assert_refused, said_by
from tests.faults.command_line import Fake
from tuner.expressions.arithmetic import parse

STENCIL = """\
// A five-point stencil in one dimension {
__global__ void stencil5(const float* x, float* y, int n) {
    const int first = blockIdx.x * BLOCK * TILE + threadIdx.x;
    for (int t = 0; t < TILE; ++t) {
        const int i = first + t * BLOCK;
        if (i >= 2 && i < n - 2) {
            y[i] = 0.2f * (x[i - 2] + x[i - 1] + x[i] + x[i + 1] + x[i + 2]);
        }
    }
}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(capsys: pytest.CaptureFixture[str], text: str, *options: str) -> tuple[dict[str, Any], Said]:
    """Return what the file holds that is written for a source, and what was said."""
    Path("kernel.cu").write_text(text)
    said = said_by(capsys, "init", "kernel.cu", *options)
    assert said.code == 0, said.err
    return tomllib.loads(Path("kernel.toml").read_text()), said


def launch(data: dict[str, Any]) -> dict[str, Any]:
    return data["variants"]["main"]["launches"][0]  # type: ignore[no-any-return]


def shapes(data: dict[str, Any]) -> dict[str, str]:
    """Return shape and role of each tensor, as a short text."""
    return {
        name: " ".join([*one["shape"], one.get("role", "input"), str(one.get("init", ""))]).strip()
        for name, one in data["tensors"].items()
    }


def test_a_stencil_needs_no_edit(capsys: pytest.CaptureFixture[str]) -> None:
    data, said = init(capsys, STENCIL)
    assert data["reference"] == "default"
    assert data["problem"]["sizes"] == {"n": "2**24"}
    assert shapes(data) == {"x": "n input", "y": "n inout zeros"}
    parameters = data["variants"]["main"]["parameters"]
    assert list(parameters) == ["BLOCK", "TILE"]
    assert (parameters["BLOCK"]["default"], parameters["TILE"]["values"]) == (256, [1, 2, 4, 8])
    assert (launch(data)["grid"], launch(data)["block"]) == (["ceil_div(n, BLOCK * TILE)"], ["BLOCK"])
    assert launch(data)["entry"] == "stencil5"
    assert "TODO:" not in Path("kernel.toml").read_text()
    assert said.out == "kernel.toml: stencil5(x, y, n); tuned: BLOCK, TILE\n"
    assert "next: tune check kernel.toml, then tune kernel.toml" in said.err


def test_a_file_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    init(capsys, STENCIL)
    Path("kernel.toml").write_text("mine")
    assert_refused(said_by(capsys, "init", "kernel.cu"), 2, "kernel.toml exists", "--force")
    assert Path("kernel.toml").read_text() == "mine"
    assert said_by(capsys, "init", "kernel.cu", "-o", "other.toml").code == 0
    assert_refused(said_by(capsys, "init", "kernel.cu", "-o", "other.cu", "--force"), 2, "other.cu", ".toml")
    assert_refused(said_by(capsys, "init", "kernel.toml"), 2, "kernel.toml is no CUDA source")
    assert_refused(said_by(capsys, "init", "none.cu"), 2, "no file none.cu")
    assert said_by(capsys, "init", "kernel.cu", "--force").code == 0
    assert Path("kernel.toml").read_text() == Path("other.toml").read_text()


def test_a_file_elsewhere_finds_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    Path("kernel.cu").write_text(STENCIL)
    assert said_by(capsys, "init", "kernel.cu", "-o", "folder/stencil.toml").code == 0
    data = tomllib.loads(Path("folder/stencil.toml").read_text())
    assert launch(data)["template"] == "../kernel.cu"


@pytest.mark.parametrize(
    "arguments", [("kernel.cu",), ("check", "kernel.cu"), ("show", "./kernel.cu"), ("check", "kernel.toml")]
)
def test_errors_name_the_command(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    Path("kernel.cu").write_text(STENCIL)
    assert_refused(said_by(capsys, *arguments), 2, "tune init", "kernel.cu")


TILED = """
#ifndef TILE
#define TILE 16
#endif
__global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0.f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        a[ty][tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.f;
        b[ty][tx] = (col < N && k0 + ty < K) ? B[(k0 + ty) * N + col] : 0.f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += a[ty][k] * b[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}
"""
SOFTMAX = """
__global__ void softmax(const half* in, half* out, int cols) {
    const half* row = in + blockIdx.x * (long long)cols;
    half* to = &out[blockIdx.x * (size_t)cols];
    for (int j = threadIdx.x; j < cols; j += block_size) { to[j] = row[j]; }
}
"""
WARPS = """
__global__ void norm(const float *__restrict__ x, float *__restrict__ y, const int rows, const int columns)
{
    const int row = blockIdx.x * warps + threadIdx.x / 32;
    if (row >= rows) return;
    x += (size_t)row * columns;
    y += (size_t)row * columns;
    float sum = 0;
    for (int i = threadIdx.x % 32; i < columns; i += 32) sum += x[i];
    for (int i = threadIdx.x % 32; i < columns; i += 32) y[i] = sum * x[i];
}
"""
VOLUME = """
__global__ void scale(const double volatile* u, double* v, unsigned nx, unsigned ny, unsigned nz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
    if (x >= nx || y >= ny || z >= nz) return;
    size_t at = ((size_t)z * ny + y) * nx + x;
    v[at] = 2 * u[at];
}
"""
GATHER = """
__global__ void gather(const float* table, const int* at, float* y, long long n, int m) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = table[at[i]];
}
"""
TOTAL = """
__global__ void total(const float* x, float* sum, size_t n) {
    float part = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) part += x[i];
    atomicAdd(sum, part);
}
"""
VECTORS = """
struct Colour { unsigned char r, g, b; };
__global__ void paint(const float4* in, Colour* out, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) { out[i].r = in[i].x; }
}
"""
CASTS = """
__global__ void copy4(const float* from, float* to, int n) {
    const float4* in = reinterpret_cast<const float4*>(from);
    float4* out = (float4*)to;
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n / 4) out[i] = in[i];
}
"""
MASKED = """
__global__ void positive(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) y[i] = x[i];
}
"""
CASES = {
    CASTS: ({"from_": "n input", "to": "n output"}, ["ceil_div(n // 4, 128)"], ["128"]),
    MASKED: ({"x": "n input", "y": "n inout zeros"}, ["ceil_div(n, block_size)"], ["block_size"]),
    TILED: (
        {"A": "M K input", "B": "K N input", "C": "M N output"},
        ["ceil_div(N, TILE)", "ceil_div(M, TILE)"],
        ["TILE", "TILE"],
    ),
    SOFTMAX: ({"in_": "rows cols input", "out": "rows cols output"}, ["rows"], ["block_size"]),
    WARPS: (
        {"x": "rows columns input", "y": "rows columns output"},
        ["ceil_div(rows, warps)"],
        ["32 * warps"],
    ),
    VOLUME: (
        {"u": "nz ny nx input", "v": "nz ny nx output"},
        ["ceil_div(nx, block_x)", "ceil_div(ny, block_y)", "nz"],
        ["block_x", "block_y"],
    ),
    GATHER: (
        {"table": "m input", "at": "n input {'uniform': [0, 'm - 1']}", "y": "n output"},
        ["ceil_div(n, block_size)"],
        ["block_size"],
    ),
    TOTAL: ({"x": "n input", "sum": "1 inout zeros"}, ["ceil_div(n, block_size)"], ["block_size"]),
    VECTORS: ({"in_": "n 4 input", "out": "n 3 output"}, ["ceil_div(n, 256)"], ["256"]),
}


@pytest.mark.parametrize("text", CASES)
def test_shapes_roles_and_launches_are_read_from_the_code(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors, grid, block = CASES[text]
    data, _ = init(capsys, text)
    assert (shapes(data), launch(data)["grid"], launch(data)["block"]) == (tensors, grid, block)
    assert "TODO:" not in Path("kernel.toml").read_text()


def test_a_template_is_called_with_a_role_and_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    namespace image {
    template <typename T, int BLOCK, unsigned VEC = 4>
    __global__ void __launch_bounds__(BLOCK) scale(const T* x, T* y, T alpha, size_t count) {
        size_t i = (size_t)blockIdx.x * BLOCK * VEC + threadIdx.x;
        for (int v = 0; v < VEC; ++v, i += BLOCK) if (i < count) y[i] = alpha * x[i];
    }
    }
    void run(double* x, double* y) { image::scale<double, 128><<<1, 128>>>(x, y, 2.0, 1 << 20); }
    """
    data, _ = init(capsys, text)
    assert launch(data)["entry"] == "image::scale<input_type, {{ BLOCK }}, {{ VEC }}>"
    assert launch(data)["arguments"] == ["x", "y", "alpha", {"value": "count", "dtype": "int64"}]
    assert launch(data)["grid"] == ["ceil_div(count, BLOCK * VEC)"]
    assert data["problem"] == {"sizes": {"count": 2**20}, "dtypes": {"input": ["float64"]}}
    assert data["variants"]["main"]["parameters"]["BLOCK"]["default"] == 128


def test_sizes_and_launches_of_the_calling_code_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    #include <cstdio>
    #define N 300000
    __global__ void halve(float* data, int count) {
        extern __shared__ float part[];
        part[threadIdx.x] = data[threadIdx.x + blockDim.x * blockIdx.x];
        data[threadIdx.x + blockDim.x * blockIdx.x] = part[threadIdx.x] / 2;
    }
    int main(int argc, char** argv) {
        float* d; int n = N, t = 64;
        cudaMalloc((void**)&d, n * sizeof(float));
        dim3 grid((n + t - 1) / t);
        halve<<<grid, t, t * sizeof(float)>>>(d, n);
    }
    """
    data, _ = init(capsys, text)
    assert data["problem"]["sizes"] == {"count": 300000}
    assert launch(data)["grid"] == ["ceil_div(count, block_size)"]
    assert launch(data)["shared_bytes"] == "block_size * 4"
    assert data["variants"]["main"]["parameters"]["block_size"]["default"] == 64


def test_macros_are_sizes_types_switches_or_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    #define PER_BLOCK (threads * 2)
    #if use_shared
    #endif
    __global__ void add(const real_type* x, real_type* y) {
        int i = blockIdx.x * threads + threadIdx.x;
        #pragma unroll unroll
        #pragma nv_diag_suppress 177
        for (int u = 0; u < 4; u++) { if (i < width) y[i] = x[i] + PER_BLOCK; }
    }
    """
    data, said = init(capsys, text)
    assert data["problem"]["options"] == {"width": [1024]}
    assert data["problem"]["dtypes"] == {"real": ["float32"]}
    parameters = data["variants"]["main"]["parameters"]
    assert {name: one["values"][:2] for name, one in parameters.items()} == {
        "threads": [32, 64],
        "unroll": [1, 2],
        "use_shared": [0, 1],
    }
    assert re.search(r"kernel.toml:\d+: a size that is a macro: a guess", said.err)


def test_several_kernels_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("kernel.cu").write_text(f"{STENCIL}{TOTAL}{TOTAL.replace('float*', 'double*')}")
    assert_refused(said_by(capsys, "init", "kernel.cu"), 2, "3 kernels", "--entry: stencil5, total")
    assert_refused(said_by(capsys, "init", "kernel.cu", "--entry", "total"), 2, "total is overloaded")
    assert_refused(
        said_by(capsys, "init", "kernel.cu", "--entry", "x"), 2, "no kernel 'x'", "stencil5, total"
    )
    assert said_by(capsys, "init", "kernel.cu", "--entry", "stencil5").code == 0


SMOOTH = """
__global__ void smooth(const float* in, float* out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = 0.5f * (in[i] + in[i > 0 ? i - 1 : 0]);
}
__global__ void scale(const float* x, float* y, long n, float in) {
    long i = (blockIdx.x * blockDim.x + threadIdx.x) * TILE;
    for (int t = 0; t < TILE; ++t) if (i + t < n) y[i + t] = in * x[i + t];
}
"""


def test_kernels_that_follow_on_each_other_are_one_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Arrays have the names that the calling function has for them; each kernel has a block of its own."""
    run = """void run(const float* first, float* kept, float* last, int n) {
        smooth<<<n / 256, 256>>>(first, kept, n);
        scale<<<n / 1024, 256>>>(kept, last, n, 3.0f);
    }"""
    data, said = init(capsys, f"{SMOOTH}{run}__global__ void other(float* x) {{ x[0] = 1; }}")
    assert "smooth(in, out, count), then scale(x, y, n, in)" in said.out and "left out: other" in said.err
    assert shapes(data) == {"first": "n input", "kept": "n output", "last": "n output"}
    first, second = data["variants"]["main"]["launches"]
    assert first["arguments"] == ["first", "kept", "n"]
    assert second["arguments"] == ["kept", "last", {"value": "n", "dtype": "int64"}, "in_"]
    assert (first["entry"], second["entry"], data["scalars"]["in_"]["value"]) == ("smooth", "scale", 3.0)
    assert (
        first["block"] != second["block"]
        and {*first["block"], *second["block"]} < data["variants"]["main"]["parameters"].keys()
    )
    assert said_by(capsys, "check", "kernel.toml", "--configurations", "0").code == 0


def test_what_kernels_of_a_file_share_is_what_they_are_passed(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(
        capsys,
        """\
struct View { int rows, columns; };
__global__ void first(const float* x, float* y, View v, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < v.rows) y[i] = by * x[i];
}
__global__ void second(const float* x, float* y, View w, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < w.rows) y[i] = by + x[i];
}
int main() {
    View view{64, 32};
    first<<<1, 256>>>(a, b, view, 2.0f);
    second<<<1, 256>>>(b, a, view, 3.0f);
}
""",
    )
    assert data["problem"]["sizes"] == {"view_rows": 64, "view_columns": 32}
    assert shapes(data) == {"a": "view_rows inout", "b": "view_rows output"}
    passed = [one["arguments"] for one in data["variants"]["main"]["launches"]]
    assert passed[0][2] == passed[1][2] == {"fields": ["view_rows", "view_columns"]}
    assert [data["scalars"][arguments[3]]["value"] for arguments in passed] == [2.0, 3.0]


@pytest.mark.parametrize(
    "run",
    [
        "smooth<<<n / 256, 256>>>(a, b, n); scale<<<n / 256, 256>>>(a, b, n, 2);",  # compared with each other
        "smooth<<<n / 256, 256>>>(a, b, n); if (n > 9) scale<<<n / 256, 256>>>(b, a, n, 2);",
        "smooth<<<n / 256, 256>>>(a, b, n); for (int t = 0; t < 9; ++t) scale<<<n / 256, 256>>>(b, a, n, t);",
        "smooth<<<1, 256>>>(a, b, n); scale<<<1, 256>>>(b, a, n, 2); smooth<<<1, 256>>>(a, b, n);",
    ],
)
def test_other_kernels_of_a_file_are_named(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("kernel.cu").write_text(f"{SMOOTH}void run(float* a, float* b, int n) {{ {run} }}")
    assert_refused(said_by(capsys, "init", "kernel.cu"), 2, "2 kernels", "--entry: smooth, scale")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("int main() { return 0; }", ("no __global__ function",)),
        (
            "struct P { float x; int id; };\n__global__ void k(P* p, int n) { p[0].id = n; }",
            (":2: p of k is P*",),
        ),
        ("__global__ void k(float** rows, int n) { rows[0][0] = n; }", ("rows of k is float**",)),
        (
            "__global__ void k(cudaTextureObject_t t, float* y) { *y = 1; }",
            ("t of k is cudaTextureObject_t",),
        ),
        ("template <class... T> __global__ void k(float* y, T... t) { *y = 1; }", ("template parameter",)),
    ],
)
def test_what_cannot_be_passed_is_named(
    text: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("kernel.cu").write_text(text)
    assert_refused(said_by(capsys, "init", "kernel.cu"), 2, "kernel.cu", *words)
    assert not Path("kernel.toml").exists()


def test_what_is_guessed_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    #ifndef RADIUS
    #define RADIUS 3
    #endif
    const int TILE = 32;
    __constant__ float weights[2 * RADIUS + 1];
    __device__ float smooth(const float* x, int i);
    __global__ void blend(const float* x, float* parts, int n, int stride) {
        parts[blockIdx.x] = weights[0] * smooth(x, threadIdx.x + blockIdx.x * TILE);
    }
    """
    _, said = init(capsys, text)
    written = Path("kernel.toml").read_text()
    for mark in (
        "Fixed in the source, and so not tuned: TILE",
        "TODO: nothing fills the __constant__ memory weights",
    ):
        assert mark in written
    assert said.err.count("a guess, to be corrected") == written.count("# TODO: ") >= 2


@pytest.mark.parametrize(("bound", "defaults"), [("512", (32, 8)), ("2 * 64", (32, 4)), ("16", (16, 1))])
def test_a_block_keeps_within_the_launch_bounds(
    bound: str, defaults: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    data, _ = init(capsys, VOLUME.replace("void scale", f"void __launch_bounds__({bound}) scale"))
    (limit,) = data["variants"]["main"]["constraints"].values()
    assert limit == f"block_x * block_y <= {128 if '*' in bound else bound}"
    parameters = data["variants"]["main"]["parameters"]
    assert (parameters["block_x"]["default"], parameters["block_y"]["default"]) == defaults


def test_an_integer_that_bounds_nothing_is_no_size(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    typedef struct pair_of { int a; float b; } pair;
    __device__ float shifted(const cg::group &all, const pair* p, char** names);
    float on_cpu(int n);
    __global__ void add(int* x, const int summand, signed char flag, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] += tex2D<int>(all, 0, 0) + flag + summand;
    }
    int main() { add<<<1, 2>>>(0, 7, 1, 3000); }
    """
    data, _ = init(capsys, text)
    assert data["problem"]["sizes"] == {"n": 3000}
    assert data["scalars"]["summand"] == {"dtype": "int32", "value": "7"}
    assert data["scalars"]["flag"]["dtype"] == "int8"
    assert list(data["variants"]["main"]["parameters"]) == ["block_size"]


def test_constant_memory_is_filled(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    #define RADIUS 3
    __constant__ float weights[2 * RADIUS + 1];
    __constant__ float known[2] = {1.0f, 2.0f};
    __constant__ int4 unused_here[8];
    __global__ void smooth(const float* x, float* y, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        float sum = known[0];
        for (int r = -RADIUS; r <= RADIUS; r++) sum += weights[r + RADIUS] * x[min(max(i + r, 0), n - 1)];
        y[i] = sum;
    }
    """
    data, _ = init(capsys, text)
    assert data["tensors"]["weights"] == {"shape": ["7"], "dtype": "float32"}
    assert launch(data)["constants"] == {"weights": "weights"}
    assert "unused_here" not in data["tensors"]


def test_types_of_cuda_have_their_dtypes(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    #include <cuComplex.h>
    __global__ void mix(const cuFloatComplex* a, double2* b, const bool* mask, ushort4* s, unsigned long long* h,
                        float2 gain, uchar4 colour, bool twice, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        b[i] = make_double2(gain.x * a[i].x, mask[i] ? gain.y : twice);
        s[i] = make_ushort4(colour.x, colour.y, colour.z, colour.w);
        h[i] = i;
    }
    """
    data, _ = init(capsys, text)
    kinds = {name: (tensor["dtype"], tensor["shape"][1:]) for name, tensor in data["tensors"].items()}
    assert kinds == {
        "a": ("complex64", []), "b": ("float64", ["2"]), "mask": ("bool", []), "s": ("uint16", ["4"]),
        "h": ("uint64", []),
    }  # fmt: skip
    assert data["scalars"]["twice"]["dtype"] == "bool"
    assert data["scalars"]["gain_y"] == {"dtype": "float32", "value": 0.5}
    gain, colour = (
        {"fields": [f"{name}_{one}" for one in of]} for name, of in (("gain", "xy"), ("colour", "xyzw"))
    )
    assert launch(data)["arguments"][5:] == [gain, colour, "twice", "n"]


def test_damaged_text_is_read_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the text is: a file or one line."""
    for cut in range(0, len(TILED), 7):
        Path("kernel.cu").write_text(TILED[:cut] + '"' + TILED[cut + 3 :])
        said = said_by(capsys, "init", "kernel.cu", "--force")
        assert said.code in (0, 2), TILED[:cut]


def test_a_kernel_without_an_array_has_nothing_to_compare(capsys: pytest.CaptureFixture[str]) -> None:
    Path("kernel.cu").write_text("__global__ void wait(int n) { while (n) n /= 2; }")
    assert_refused(said_by(capsys, "init", "kernel.cu"), 2, "kernel.cu:1: wait takes no array")


def test_expressions_of_c_become_those_of_kernel_files(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    __global__ void wave(float* x, int log_n, int offset) {
        const int n = 1 << log_n;
        for (int i = blockIdx.x * ceil() + threadIdx.x; i < n; i += 1 << 10) x[i] = offset ? 1.0f : x[i];
    }
    """
    data, _ = init(capsys, text)
    assert data["tensors"]["x"] == {"shape": ["2 ** log_n"], "dtype": "float32", "role": "inout"}


def test_three_commands_lead_to_a_winner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a device that simulates the GPU: from a source without ``extern "C"`` in a folder with nothing else."""
    init(capsys, STENCIL)
    checked = said_by(capsys, "check", "kernel.toml", "--configurations", "2", "--cc", "90")
    assert checked.code == 0, checked.out + checked.err
    said = Fake(tmp_path, "kernel.toml", "--trials", "6", sleep_s=0.0).ends()
    assert said.code == 0, said.err
    assert "winner" in said.out and "default" in said.out


PRODUCT = """
__global__ void product(const float* a, const float* b, float* c, int n) {
    __shared__ float rows[TILE * 16][DEPTH + 1], columns[DEPTH][16];
    const int row = blockIdx.y * 16 * TILE + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    for (int k = 0; k < n; k += DEPTH) {
        for (int d = 0; d < DEPTH; ++d) rows[threadIdx.y][d] = a[row * n + k + d];
    }
    if (row < n && column < n) c[row * n + column] = rows[0][0];
}
"""
SPARSE = """
__global__ void sparse(const int* begins, const float* values, float* y, int rows) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / THREADS_PER_ROW;
    if (row >= rows) return;
    float sum = 0;
    for (int j = begins[row]; j < begins[row + 1]; j += THREADS_PER_ROW) sum += values[j];
    y[row] = __shfl_down_sync(~0u, sum, 1, THREADS_PER_ROW);
}
"""
TURNED = """
__global__ void turned(const float* x, float* y, int width, int height) {
    __shared__ float tile[TILE_DIM][TILE_DIM + 1];
    const int i = blockIdx.x * TILE_DIM + threadIdx.x, j = blockIdx.y * TILE_DIM + threadIdx.y;
    for (int r = 0; r < TILE_DIM; r += BLOCK_ROWS)
        if (i < width && j + r < height) y[(j + r) * width + i] = x[(j + r) * width + i];
}
"""
SELECTED = """
__global__ void selected(const float* x, const int* mask, float* y, int n, int m) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int k = 0; k < m; ++k) {
        if (mask[k] == 0) continue;
        if (i + k >= 2 && i + k < n - 2) sum += x[i + k];
    }
    y[i] = sum;
}
"""


def test_what_the_code_chooses_is_a_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(capsys, PRODUCT)
    parameters = data["variants"]["main"]["parameters"]
    assert parameters["DEPTH"] == {"values": [8, 16, 32], "default": 16}
    assert "options" not in data["problem"] and "TODO:" not in Path("kernel.toml").read_text()
    assert data["problem"]["sizes"] == {"n": 1024}
    unrolled = SELECTED.replace("for (int k", "#pragma unroll COUNT\n    for (int k")
    data, _ = init(capsys, unrolled, "--force")
    assert data["variants"]["main"]["parameters"]["COUNT"] == {"values": [1, 2, 4, 8], "default": 1}


def test_static_shared_memory_keeps_within_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(capsys, TURNED)
    limits = list(data["variants"]["main"]["constraints"].values())
    assert "4 * TILE_DIM * TILE_DIM + 4 * TILE_DIM <= 49152" in limits
    assert "TILE_DIM % BLOCK_ROWS == 0" in limits


def test_threads_of_a_block_are_told_from_steps_and_widths(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(capsys, TURNED)
    assert launch(data)["block"] == ["TILE_DIM", "BLOCK_ROWS"]
    data, _ = init(capsys, SPARSE, "--force")
    assert launch(data)["block"] == ["block_size"]
    assert launch(data)["grid"] == ["ceil_div(THREADS_PER_ROW * rows, block_size)"]
    assert max(data["variants"]["main"]["parameters"]["THREADS_PER_ROW"]["values"]) == 32


def test_rows_behind_each_other_have_offsets_that_are_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a variable keeps the offsets, and a number of the entries is passed."""
    data, said = init(capsys, SPARSE)
    name, offsets = next(iter(data["tensors"].items()))
    assert (offsets["shape"], offsets["init"]) == (["rows + 1"], {"range": [0, "per_row"]})
    assert data["problem"]["sizes"]["per_row"] > 1 and f'init = "inputs.py:{name}"' in said.err
    data, _ = init(
        capsys,
        """\
__global__ void gather(const int* first, const int* edges, const double* in, double* out, int nodes, int nnz) {
    const int node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= nodes) return;
    const int begin = first[node], end = first[node + 1];
    double sum = 0;
    for (int e = begin; e != end; ++e) sum += in[edges[e]];
    out[node] = sum;
}
""",
        "--force",
    )
    assert shapes(data) == {
        "first": "nodes + 1 input {'range': [0, 'per_row']}",
        "edges": "nodes * per_row input {'uniform': [0, 'nodes - 1']}",
        "in_": "nodes input",
        "out": "nodes output",
    }
    assert data["scalars"]["nnz"]["value"] == "nodes * per_row"
    assert said_by(capsys, "check", "kernel.toml", "--configurations", "0").code == 0


def test_conditions_on_what_is_read_leave_an_output_whole(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(capsys, SELECTED)
    assert shapes(data)["y"] == "n output"
    early = SELECTED.replace("if (i >= n)", "if (i >= n || mask[i] == 0)")
    assert shapes(init(capsys, early, "--force")[0])["y"] == "n inout zeros"


def test_an_undefined_name_is_told_from_a_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    init(capsys, STENCIL)
    Path("kernel.cu").write_text(STENCIL.replace("0.2f", "weight"))
    said = said_by(capsys, "check", "kernel.toml", "--configurations", "1", "--cc", "90")
    assert said.code == 1
    assert 'identifier "weight" is undefined; if it is a value to tune, add it to parameters' in said.out


@pytest.mark.parametrize("name", ["matmul", "rms_norm"])
def test_the_examples_need_no_edit(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    source = Path(__file__).parents[2] / "docs" / "examples" / name / f"{name}.cu"
    init(capsys, source.read_text())
    assert "TODO:" not in Path("kernel.toml").read_text()
    said = said_by(capsys, "check", "kernel.toml", "--configurations", "4", "--cc", "90")
    assert said.code == 0, said.out + said.err


def test_a_block_that_the_code_does_not_ask_for_stays_as_it_is_launched(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, said = init(
        capsys,
        """\
#define THREADS 128
__global__ void row_max(const float* x, float* y, int rows, int columns) {
    __shared__ float most[THREADS];
    float m = -1e30f;
    for (int c = threadIdx.x; c < columns; c += THREADS) m = fmaxf(m, x[blockIdx.x * columns + c]);
    most[threadIdx.x] = m;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) most[threadIdx.x] = fmaxf(most[threadIdx.x], most[threadIdx.x + s]);
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = most[0];
}
void run(const float* x, float* y, int rows, int columns) {
    row_max<<<rows, THREADS>>>(x, y, rows, columns);
}
""",
    )
    assert (launch(data)["grid"], launch(data)["block"]) == (["rows"], ["128"])
    assert "parameters" not in data["variants"]["main"]
    assert "tuned: nothing yet" in said.out and "#ifndef" in said.out


def test_what_a_loop_around_the_launch_changes_is_no_size(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(
        capsys,
        """\
__global__ void sort_step(float* keys, int n, int j, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ j;
    if (other > i && i < n && (keys[i] > keys[other]) == ((i & k) == 0)) {
        float kept = keys[i];
        keys[i] = keys[other];
        keys[other] = kept;
    }
}
void sort(float* keys, int n) {
    for (int k = 2; k <= n; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) sort_step<<<n / 256, 256>>>(keys, n, j, k);
}
""",
    )
    assert set(data["problem"]["sizes"]) == {"n"} and "scalars" not in data
    outer, inner = launch(data)["repeat"]
    for n in (2, 512, 4096):
        seen = []
        for first in range(int(parse(outer["count"]).evaluate({"n": n}))):
            names = {"n": n, outer["name"]: first}
            for second in range(int(parse(inner["count"]).evaluate(names))):
                passes = {**names, inner["name"]: second}
                seen.append(
                    [int(parse(one["value"]).evaluate(passes)) for one in launch(data)["arguments"][2:]]
                )
        level = [2**exponent for exponent in range(1, n.bit_length())]
        assert seen == [[k >> by, k] for k in level for by in range(1, k.bit_length())]


@pytest.mark.parametrize(
    ("loop", "steps", "count"),
    [
        ("for (int t = 0; t < steps; ++t) { CALL; std::swap(a, b); }", "TODO", "steps"),
        ("int t; for (t = 9; t >= 1; t--) { CALL; float* c = a; a = b; b = c; }", None, "passes"),
        ("const int steps = 5; for (int t = 1; t <= steps; t += 1) { CALL; swap(a, b); }", 5, "steps"),
        (
            "for (int run = 0; run < 3; run++) for (int t = 0; t != LAPS; ++t) { CALL; swap(a, b); }",
            4,
            "LAPS",
        ),
    ],
)
def test_buffers_that_a_loop_exchanges_take_turns(
    loop: str, steps: object, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loops that repeat the same are a benchmark's."""
    data, said = init(
        capsys,
        f"""\
#define LAPS 4
__global__ void heat(const float* u, float* v, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) v[i] = 0.5f * (u[i - 1] + u[i + 1]);
}}
void run(float* a, float* b, int n, int steps) {{ {loop.replace("CALL", "heat<<<n / 64, 64>>>(a, b, n)")} }}
""",
    )
    ((repeat),) = launch(data)["repeat"]
    assert repeat["count"] == count
    assert (steps == "TODO") == ("passes of a loop" in said.err)
    assert steps in (None, "TODO", data["problem"]["sizes"][count])
    assert [(one["one_of"], one["index"]) for one in launch(data)["arguments"][:2]] == [
        (["u", "v"], f"{repeat['name']} % 2"),
        (["v", "u"], f"{repeat['name']} % 2"),
    ]
    assert {one["role"] for one in data["tensors"].values()} == {"inout"}


@pytest.mark.parametrize(
    "loop",
    [
        "while (far > 0) { shift<<<n / 64, 64>>>(x, n, far); far /= 2; }",
        "for (int i = 0; i < 9; ++i) { shift<<<n / 64, 64>>>(x, n, far); far = next(far); }",
        "for (int i = 0; i < 9; ++i) if (i != 3) shift<<<n / 64, 64>>>(x, n, i);",
        "for (int i = 1; i < 99; i *= 3) shift<<<n / 64, 64>>>(x, n, i);",
        "for (int i = 0; i < 99; ++i) shift<<<n / 64, 64>>>(x + i, n, i);",
    ],
)
def test_other_loops_are_left_to_the_user(loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    data, said = init(
        capsys,
        f"""\
__global__ void shift(float* x, int n, int far) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += far;
}}
void run(float* x, int n, int far) {{ {loop} }}
""",
    )
    assert "repeat" not in launch(data) and "describe the loop by repeat" in said.err
    assert "far" in data["scalars"]


def test_a_loop_over_sizes_leaves_them_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(
        capsys,
        """\
__global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
void measure(const float* x, float* y) {
    for (int n = 1024; n <= 1 << 20; n *= 2) twice<<<n / 256, 256>>>(x, y, n);
}
""",
    )
    assert list(data["problem"]["sizes"]) == ["n"] and "scalars" not in data


def test_tiles_of_cooperative_groups_are_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(
        capsys,
        """\
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
template <int TILE>
__global__ void row_sums(const float* x, float* sums, int rows, int columns) {
    auto tile = cg::tiled_partition<TILE>(cg::this_thread_block());
    int row = blockIdx.x * (blockDim.x / TILE) + tile.meta_group_rank();
    if (row >= rows) return;
    float sum = 0;
    for (int c = tile.thread_rank(); c < columns; c += TILE) sum += x[row * columns + c];
    sum = cg::reduce(tile, sum, cg::plus<float>());
    if (tile.thread_rank() == 0) sums[row] = sum;
}
""",
    )
    assert launch(data)["entry"] == "row_sums<{{ TILE }}>"
    assert data["variants"]["main"]["parameters"]["TILE"]["values"] == [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize(
    "written",
    [
        "View view = {640, 480, 0.25f, {3, 4}};",
        "const View view{640, 480, 0.25f};",
        "View view = {.rows = 480, .columns = 640, .scale = 0.25f};",
        "View view; view.columns = 640; view.rows = 480; view.scale = 0.25f;",
    ],
)
def test_a_struct_by_value_is_its_members(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes among them are such ones, and the others have the values that the source passes."""
    more = ["corner_0", "corner_1"] if "3, 4" in written else []
    data, _ = init(
        capsys,
        f"""\
struct View {{ int columns, rows; float scale; {"int corner[2];" if more else ""} }};
__global__ void scaled(const float* x, float* y, View view, float2 shift) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y;
    if (i < view.columns && j < view.rows)
        y[j * view.columns + i] = view.scale * x[j * view.columns + i] + shift.x;
}}
void run(const float* x, float* y) {{
    {written}
    scaled<<<dim3((view.columns + 127) / 128, view.rows), 128>>>(x, y, view, make_float2(1.5f, -2));
}}
""",
    )
    assert data["problem"]["sizes"] == {"view_columns": 640, "view_rows": 480}
    values = {name: one["value"] for name, one in data["scalars"].items()}
    assert values["view_scale"] == 0.25 and (values["shift_x"], values["shift_y"]) == (1.5, -2)
    members = ["view_columns", "view_rows", "view_scale", *(f"view_{one}" for one in more)]
    assert launch(data)["arguments"][2:] == [{"fields": members}, {"fields": ["shift_x", "shift_y"]}]
    assert [int(values[f"view_{one}"]) for one in more] == ([3, 4] if more else [])
    assert launch(data)["grid"][1] == "view_rows"


def test_a_kernel_in_a_header_of_the_program_is_read(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    """With what the program declares before it, and the structs of other headers."""
    (here / "parts").mkdir()
    (here / "parts" / "span.h").write_text("#pragma once\nstruct Span { int n; float by; };\n")
    (here / "parts" / "scale.cuh").write_text(
        """\
#ifndef SCALE_CUH
#define SCALE_CUH 1
#include "span.h"
template <int TILE> __global__ void scale(const float* x, float* y, Span span) {
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * TILE;
    for (int t = 0; t < TILE; ++t) if (first + t < span.n) y[first + t] = span.by * twice(x[first + t]);
}
#endif
"""
    )
    data, said = init(
        capsys,
        """\
#include <vector>
__device__ float twice(float x) { return 2 * x; }
#include "parts/scale.cuh"
int main() {
    Span span = {4096, 1.5f};
    scale<4><<<span.n / 1024, 256>>>(x, y, span);
}
""",
    )
    assert (launch(data)["template"], launch(data)["entry"]) == ("kernel.cu", "scale<{{ TILE }}>")
    assert list(data["variants"]["main"]["parameters"]) == ["TILE", "block_size"], said.out
    assert (data["problem"]["sizes"], data["scalars"]["span_by"]["value"]) == ({"span_n": 4096}, 1.5)
    source = said_by(capsys, "render", "kernel.toml").out
    assert "float twice" in source and "main()" not in source and "#define TILE" not in source
