"""What ``tune init`` reads from a CUDA source: sizes, shapes, roles, dtypes, arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.init_sources import (
    CASTS,
    DIVIDED,
    GATHER,
    INDEX_FUNCTIONS,
    INDEX_MACROS,
    KEPT,
    LOOP,
    MASKED,
    NO_VARIABLE,
    ONE_BLOCK,
    PAIRS,
    PARTS,
    PLANES,
    ROWS,
    SELECTED,
    SOFTMAX,
    SPARSE,
    STENCIL,
    STRIDES,
    TILED,
    TOTAL,
    VECTORS,
    VOLUME,
    WARPS,
    WHOLE_BLOCKS,
    WHOLE_TILES,
    WIDE,
    init,
    launch,
    shapes,
)
from tests.commands import said_by

pytestmark = pytest.mark.usefixtures("in_empty_folder")


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
    WHOLE_BLOCKS: (
        {"a": "n input", "b": "n input", "c": "n output"},
        ["ceil_div(n, BLOCK)"],
        ["BLOCK"],
    ),
    INDEX_MACROS: (
        {"in_": "h w input", "out": "h w output"},
        ["ceil_div(w, M_TILE)", "ceil_div(h, SIZE_Y)"],
        ["M_TILE", "SIZE_Y"],
    ),
    INDEX_FUNCTIONS: (
        {"a": "d h w input", "b": "d h w output", "first": "2 inout zeros"},
        ["ceil_div(w, block_x)", "ceil_div(h, block_y)", "d"],
        ["block_x", "block_y"],
    ),
    ONE_BLOCK: ({"x": "128 input", "sum": "1 inout"}, ["1"], ["128"]),
    DIVIDED: (
        {"logits": "B T V input", "targets": "B T input {'uniform': [0, 'V - 1']}", "loss": "B T output"},
        ["ceil_div(B * T, block_size)"],
        ["block_size"],
    ),
    WIDE: (
        {"a": "n inout", "b": "n input", "c": "n output"},
        ["ceil_div(n, 4 * block_size)"],
        ["block_size"],
    ),
}


@pytest.mark.parametrize("text", CASES)
def test_shapes_roles_and_launches_are_read_from_the_code(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors, grid, block = CASES[text]
    data, _ = init(capsys, text)
    assert (shapes(data), launch(data)["grid"], launch(data)["block"]) == (tensors, grid, block)
    assert "TODO:" not in Path("kernel.toml").read_text()


def test_what_the_code_compares_with_nothing_has_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(capsys, WHOLE_TILES)
    assert shapes(data) == {"in_": "height width input", "out": "width height output"}
    assert launch(data)["grid"] == ["ceil_div(width, 32)", "ceil_div(height, 8)"]
    constraints = data["variants"]["main"]["constraints"]
    assert [*constraints.values()] == ["width % 32 == 0", "height % 8 == 0"]
    data, _ = init(capsys, NO_VARIABLE, "--force")
    assert (shapes(data)["b"], launch(data)["grid"]) == ("rows 256 output", ["rows"])
    data, _ = init(capsys, PAIRS, "--force")
    assert shapes(data) == {"ends": "n 2 input", "out": "n output"}
    data, _ = init(capsys, ROWS, "--force")
    assert shapes(data) == {"m": "rows COLS input", "s": "rows output"}
    assert (launch(data)["grid"], data["problem"]["sizes"]["rows"]) == (["rows"], 4096)
    data, said = init(capsys, PARTS, "--force")
    assert (shapes(data)["part"], launch(data)["grid"]) == ("blocks output", ["blocks"])
    assert "depends on a block's size" in said.err


def test_arrays_are_as_long_as_their_largest_index(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(capsys, PLANES)
    assert shapes(data) == {"p": "3 * n input", "table": "max(m, n) input", "y": "n output"}
    assert "repeat" in data["scalars"]


def test_sizes_fit_the_arrays_of_the_code_and_the_grid(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(capsys, KEPT)
    assert data["variants"]["main"]["constraints"] == {
        "the code keeps width numbers in an array": "width <= 32"
    }
    assert data["problem"]["sizes"]["width"] == 32
    text = "__global__ void k(float* x, int n) { int i = blockIdx.y; if (i < n) x[i] = 1; }"
    data, _ = init(capsys, text, "--force")
    assert (launch(data)["grid"], data["problem"]["sizes"]) == (["1", "n"], {"n": 2**15})


def test_strides_are_rows_lengths(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(capsys, STRIDES)
    assert shapes(data) == {"A": "M K input", "B": "K N input", "C": "M N output"}
    assert [one["value"] for one in data["scalars"].values()] == ["K", "N", "N"]
    assert "TODO:" not in Path("kernel.toml").read_text()


def test_a_macro_that_begins_a_loop_is_that_loop(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(capsys, LOOP, "--entry", "half")
    assert shapes(data) == {"a": "m input", "b": "m * n 2 output"}
    assert launch(data)["grid"] == ["ceil_div(m * n, block_size)"]
    assert said_by(capsys, "check", "./kernel.toml", "--configurations", "1", "--cc", "90").code == 0


def test_a_source_that_is_not_utf_8_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    Path("old.cu").write_bytes("// größe\n".encode("latin-1") + STENCIL.encode())
    assert said_by(capsys, "init", "old.cu").code == 0
    assert said_by(capsys, "render", "./old.toml").code == 0


def test_conditions_on_what_is_read_leave_an_output_whole(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(capsys, SELECTED)
    assert shapes(data)["y"] == "n output"
    early = SELECTED.replace("if (i >= n)", "if (i >= n || mask[i] == 0)")
    assert shapes(init(capsys, early, "--force")[0])["y"] == "n inout zeros"


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
    text = text.replace("extern __shared__ float part[];", "").replace(
        "__global__", "extern __shared__ float part[];\n__global__"
    )
    data, said = init(capsys, text.replace("t * sizeof(float)", "512"), "--force")
    assert launch(data)["shared_bytes"] == "512" and "a guess: bytes" in said.err


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


def test_expressions_of_c_become_those_of_kernel_files(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    __global__ void wave(float* x, int log_n, int offset) {
        const int n = 1 << log_n;
        for (int i = blockIdx.x * ceil() + threadIdx.x; i < n; i += 1 << 10) x[i] = offset ? 1.0f : x[i];
    }
    """
    data, _ = init(capsys, text)
    assert data["tensors"]["x"] == {"shape": ["2 ** log_n"], "dtype": "float32", "role": "inout"}


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


def test_rows_behind_each_other_have_offsets_that_are_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a variable keeps the offsets, and a number of the entries is passed."""
    data, said = init(capsys, SPARSE)
    name, offsets = next(iter(data["tensors"].items()))
    assert (offsets["shape"], offsets["init"]) == (["rows + 1"], {"range": [0, "per_row"]})
    assert data["problem"]["sizes"]["per_row"] > 1 and f'init = "inputs.py:{name}"' in said.err
    data, _ = init(
        capsys,
        """\
#define LOAD(at) __ldg(at)
__global__ void gather(const int* first, const int* edges, const double* in, double* out, int nodes, int nnz) {
    const int node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= nodes) return;
    const int begin = first[node], end = first[node + 1];
    double sum = 0;
    for (int e = begin; e != end; ++e) sum += LOAD(in + edges[e]);
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


def test_a_struct_by_value_is_its_members(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(
        capsys,
        """\
struct View { int columns, rows; float scale; int corner[2]; };
__global__ void scaled(const float* x, float* y, View view, float2 shift) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y;
    if (i < view.columns && j < view.rows)
        y[j * view.columns + i] = view.scale * x[j * view.columns + i] + shift.x;
}
void run(const float* x, float* y, View view) {
    scaled<<<dim3((view.columns + 127) / 128, view.rows), 128>>>(x, y, view, make_float2(1.5f, -2));
}
""",
    )
    assert list(data["problem"]["sizes"]) == ["view_columns", "view_rows"]
    members = ["view_columns", "view_rows", "view_scale", "view_corner_0", "view_corner_1"]
    assert launch(data)["arguments"][2:] == [{"fields": members}, {"fields": ["shift_x", "shift_y"]}]
    assert launch(data)["grid"][1] == "view_rows"


def test_a_kernel_in_a_header_of_the_program_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With what the program declares before it, and the structs of other headers."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "span.h").write_text(
        "#pragma once\nnamespace of { struct Span { int n; float by; }; }\n"
    )
    (tmp_path / "parts" / "scale.cuh").write_text(
        """\
#ifndef SCALE_CUH
#define SCALE_CUH 1
#include "span.h"
template <int TILE> __global__ void scale(const float* x, float* y, const of::Span span) {
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
    of::Span span = {atoi(argv[1]), 1.5f};
    scale<4><<<span.n / 1024, 256>>>(x, y, span);
}
""",
    )
    assert (launch(data)["template"], launch(data)["entry"]) == ("kernel.cu", "scale<{{ TILE }}>")
    assert list(data["variants"]["main"]["parameters"]) == ["TILE", "block_size"], said.out
    assert (data["problem"]["sizes"], data["scalars"]["span_by"]["value"]) == ({"span_n": "2**24"}, 0.5)
    source = said_by(capsys, "render", "kernel.toml").out
    assert "float twice" in source and "main()" not in source and "#define TILE" not in source
