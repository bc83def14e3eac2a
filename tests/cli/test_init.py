"""``tune init``: the command, what it refuses and marks, and what its files are good for."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.cli.init_sources import STENCIL, TILED, init, launch
from tests.commands import assert_refused, said_by
from tests.faults.command_line import Fake

pytestmark = pytest.mark.usefixtures("in_empty_folder")


def test_a_file_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    init(capsys, STENCIL)
    Path("kernel.toml").write_text("mine")
    assert_refused(said_by(capsys, "init", "kernel.cu"), 1, "kernel.toml exists", "--force")
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("int main() { return 0; }", ("no __global__ function",)),
        (
            "typedef float (*Map)(float);\ntemplate <Map map> __global__ void k(float *y) { y[0] = map(y[0]); }",
            ("template parameter Map map of k cannot be chosen by itself",),
        ),
        ("__kernel void k(__global float *y) { y[get_global_id(0)] = 1; }", ("OpenCL", "not served")),
        (
            "__global__ void k(float *y, int n);",
            ("k is only declared here", "give the file that has its body"),
        ),
        (
            "struct P { float* x; int id; };\n__global__ void k(P* p, int n) { p[0].id = n; }",
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


def test_a_file_that_is_not_read_as_it_is_ends_with_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    macros = "".join(f"#ifndef TILE_{i}\n#define TILE_{i} 2\n#endif\n" for i in range(70))
    added = " + ".join(f"TILE_{i}" for i in range(70))
    Path("kernel.cu").write_text(f"{macros}__global__ void k(float* y) {{ y[threadIdx.x] = {added}; }}")
    said = said_by(capsys, "init", "kernel.cu")
    assert said.code == 1 and "parameters; have at most 64" in said.err and Path("kernel.toml").exists()


def test_what_is_guessed_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    #ifndef RADIUS
    #define RADIUS 3
    #endif
    constexpr int TILE = 32, UNROLL = 4;
    __constant__ float weights[2 * RADIUS + 1];
    __device__ float smooth(const float* x, int i);
    __global__ void blend(const float* x, float* parts, int n, int stride) {
        parts[blockIdx.x] = weights[0] * smooth(x, threadIdx.x + blockIdx.x * TILE * UNROLL);
    }
    """
    _, said = init(capsys, text)
    written = Path("kernel.toml").read_text()
    for mark in (
        "Fixed in the source, and so not tuned: TILE, UNROLL",
        "TODO: nothing fills the __constant__ memory weights",
    ):
        assert mark in written
    assert "#ifndef TILE, #define TILE 32, #endif" in said.err
    assert said.err.count("a guess: ") == written.count("# TODO: ") >= 2


def test_a_loop_over_the_grid_is_launched_with_the_blocks_of_the_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So that the default is what the program runs; fewer where the problem is small."""
    text = """__global__ void twice(const float* x, float* y, int n) {
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = 2 * x[i];
    }
    int main() { float *x, *y; twice<<<640, 256>>>(x, y, 1 << 24); }"""
    data, _ = init(capsys, text)
    assert launch(data)["grid"] == ["min(ceil_div(n, block_size), grid_size)"]
    assert data["variants"]["main"]["parameters"]["grid_size"]["default"] == 640
    assert said_by(capsys, "show", "kernel.toml").code == 0


def test_the_dtype_of_a_problem_is_that_of_the_first_output(capsys: pytest.CaptureFixture[str]) -> None:
    text = """__global__ void gather(const int* from, const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[from[i]];
    }"""
    data, _ = init(capsys, text)
    assert list(data["problem"]["dtypes"].values()) == [["float32"]]


@pytest.mark.parametrize("defined", ["#define width 4096", "#ifndef width\n#define width 4096\n#endif", ""])
def test_a_size_that_is_a_macro_is_a_size(defined: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the source gives it a number: the problem's takes its place."""
    data, _ = init(
        capsys,
        f"{defined}\n__global__ void k(const float* x, float* y, int rows) {{\n"
        "    const int i = blockIdx.x * BLOCK + threadIdx.x;\n"
        "    if (i < rows * width) y[i] = 2 * x[i];\n}\n",
    )
    assert set(data["problem"]["sizes"]) == {"rows", "width"} and "options" not in data["problem"]
    assert data["problem"]["sizes"]["width"] == (4096 if defined else 1024)
    assert data["variants"]["main"]["launches"][0]["grid"] == ["ceil_div(rows * width, BLOCK)"]


def test_damaged_text_is_read_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the text is: a file or one line."""
    cuts = [TILED[:cut] + '"' + TILED[cut + 3 :] for cut in range(0, len(TILED), 41)]
    for text in [*cuts, STENCIL.replace("blockIdx.x * BLOCK", "blockIdx.xthreadIdx.x"), f"for {STENCIL}"]:
        Path("kernel.cu").write_text(text)
        said = said_by(capsys, "init", "kernel.cu", "--force")
        assert said.code in (0, 2), text


def test_a_kernel_without_an_array_has_nothing_to_compare(capsys: pytest.CaptureFixture[str]) -> None:
    Path("kernel.cu").write_text("__global__ void wait(int n) { while (n) n /= 2; }")
    assert_refused(said_by(capsys, "init", "kernel.cu"), 2, "kernel.cu:1: wait takes no array")


def test_three_commands_lead_to_a_winner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a device that simulates the GPU: from a source without ``extern "C"`` in a folder with nothing else."""
    init(capsys, STENCIL)
    checked = said_by(capsys, "check", "kernel.toml", "--configurations", "1", "--cc", "90")
    assert checked.code == 0, checked.out + checked.err
    said = Fake(tmp_path, "kernel.toml", "--trials", "6", sleep_s=0.0).ends()
    assert said.code == 0, said.err
    assert "winner" in said.out and "default" in said.out


def test_an_undefined_name_is_told_from_a_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    init(capsys, STENCIL)
    Path("kernel.cu").write_text(STENCIL.replace("0.2f", "weight"))
    said = said_by(capsys, "check", "kernel.toml", "--configurations", "1", "--cc", "90")
    assert said.code == 1
    assert 'identifier "weight" is undefined; if it is a value to tune, add it to parameters' in said.out


@pytest.mark.parametrize(("name", "more"), [("matmul", ()), ("rms_norm", ("--no-cpu",))])
def test_the_examples_need_no_edit(
    name: str, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The second, whose shapes are those of ``WARPS``, takes 5 s on the CPU."""
    source = Path(__file__).parents[2] / "docs" / "examples" / name / f"{name}.cu"
    init(capsys, source.read_text())
    assert "TODO:" not in Path("kernel.toml").read_text()
    said = said_by(capsys, "check", "kernel.toml", "--configurations", "1", "--cc", "90", *more)
    assert said.code == 0, said.out + said.err


@pytest.mark.parametrize(
    ("parameters", "code", "line", "words"),
    [
        ("const char* x, int* y", "int seen[9]; seen[x[i] + 1]++; y[i] = seen[i % 9];", "x", "are indices"),
        ("long* x", "long next; next = x[i]; x[i] = x[next >> 8];", "x", "are indices"),
        ("const int* x, float* y", "y[i] /= (float)x[i];", "x", "divides by its elements"),
        ("const float* x, float* y", "const float v = x[i]; y[i] = logf(v);", "x", "root or logarithm"),
        ("const float* x, float* y", "y[i] = sqrtf(x[i] * x[i]);", "x", ""),
        ("const float* x, const int* at, float* y", "const float v = x[at[i]]; y[i] = v / 3;", "at", ""),
    ],
)
def test_inputs_that_not_all_values_suit_are_marked(
    parameters: str, code: str, line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    index = "const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
    init(capsys, f"__global__ void k({parameters}, int n) {{ {index} {code} }}")
    lines = Path("kernel.toml").read_text().splitlines()
    (at,) = (number for number, one in enumerate(lines) if one.startswith(f"{line} = "))
    marked = "\n".join(one for one in lines[at - 1 : at + 1] if "TODO" in one)
    assert words in marked if words else not marked


def test_a_shape_that_a_passed_step_decides_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    printed = init(
        capsys,
        """__global__ void thin(const float* x, float* y, int step, int wide, int rows, int cols) {
            const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
            if (c >= cols || r >= rows) return;
            const int begin = step * c;
            float sum = 0;
            for (int k = 0; k < wide; ++k) sum += x[r * wide + begin + k];
            y[r * cols + c] = sum;
        }
        int main() { int step = 2; thin<<<grid, block>>>(x, y, step, wide, rows, cols); }""",
    )
    assert "multiples of a number that the kernel is passed" in Path("kernel.toml").read_text(), printed


BOUND = "const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
READ: dict[str, tuple[str, list[str]]] = {
    "a launch by the runtime's function": (
        f"""__global__ void k(const float* x, float* y, int n) {{ {BOUND} y[i] = x[i]; }}
        void run(float* x, float* y) {{ int n = 1 << 20; dim3 grid((n + 127) / 128), block(128);
            void* args[] = {{&x, (void*)&y, &n}};
            cudaLaunchKernel(reinterpret_cast<const void*>(&k), grid, block, args, 0, nullptr); }}""",
        ["sizes = { n = 1048576 }", "default = 128", 'grid = ["ceil_div(n, block_size)"]'],
    ),
    "defaults of a function": (
        f"__global__ void k(float* y, int n, float eps = 1e-5f, int rounds = 3) {{ {BOUND} y[i] += eps * rounds; }}",
        ['eps = { dtype = "float32", value = 1e-05 }', 'rounds = { dtype = "int32", value = "3" }'],
    ),
    "numbers of the host that are divided": (
        f"""__global__ void k(float* y, int n, float f) {{ {BOUND} y[i] *= f; }}
        void run(float* y) {{ const int H = 56, S = 2, P = H / S, n = 8 * P * P; k<<<n / 64, 64>>>(y, n, 2.f); }}""",
        ["sizes = { n = 6272 }"],
    ),
    "vectors of other bytes": (
        """__global__ void k(const half* x, half* y, const signed char* w, int n) {
            const int i = blockIdx.x * 256 + threadIdx.x; const int* w4 = (const int*)w;
            if (i < n / 8) { ((uint4*)y)[i] = reinterpret_cast<const uint4*>(x)[i]; y[0] = w4[2 * i + 1]; } }""",
        ['x = { shape = ["n"]', 'y = { shape = ["n"]', '"n % 8 == 0"', 'w = { shape = ["n"]'],
    ),
    "rows of half2": (
        """__global__ void k(half2* x, int hidden) { const int half = hidden / 2; x += (size_t)blockIdx.x * half;
            for (int i = threadIdx.x; i < half; i += blockDim.x) x[i] = __hadd2(x[i], x[i]); }""",
        ['x = { shape = ["rows", "hidden"]', 'grid = ["rows"]'],
    ),
    "an element for each warp": (
        """template <int WARPS> __global__ void k(const float* x, float* y, int rows) {
            __shared__ float part[WARPS]; part[threadIdx.x / 32] = x[blockIdx.x * rows + threadIdx.x];
            __syncthreads(); if (threadIdx.x == 0) y[blockIdx.x] = part[WARPS - 1]; }
        void run(float* x, float* y, int rows) { k<4><<<rows, 4 * 32>>>(x, y, rows); }""",
        ['block = ["32 * WARPS"]', "WARPS = { values = [1, 2, 4, 8, 16], default = 4"],
    ),
    "rows of a block by its threads along y": (
        """template <int ROWS, int VEC> __global__ void k(const float* x, float* y, int rows, int dim) {
            const int row = blockIdx.x * ROWS + threadIdx.y; if (row >= rows) return;
            for (int c = threadIdx.x * VEC; c < dim; c += 32 * VEC)
                for (int v = 0; v < VEC; ++v) y[row * dim + c + v] = x[row * dim + c + v]; }""",
        ['block = ["32", "ROWS"]\n', 'grid = ["ceil_div(rows, ROWS)"]'],
    ),
    "the place of the best": (
        f"""__global__ void k(const float* x, float* sums, int* count, int n, int m, int threshold) {{ {BOUND}
            int best = 0; for (int j = 0; j < m; ++j) if (x[j] > x[best] && x[j] > threshold) best = j;
            atomicAdd(&sums[best * 3 + 1], x[i]); atomicAdd(count + best, 1); }}""",
        ['count = { shape = ["m"]', "added to\n", 'threshold = { dtype = "int32", value = "1" }'],
    ),
    "what a border leaves out": (
        """#ifndef RADIUS
        #define RADIUS 2
        #endif
        __global__ void k(const float* x, float* y, int width, int height, size_t pitch) {
            const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
            if (c < RADIUS || r < RADIUS || c >= width - RADIUS || r >= height - RADIUS) return;
            y[r * pitch + c] = x[(r - RADIUS) * pitch + c + RADIUS]; }""",
        [
            'x = { shape = ["height", "width"]',
            'role = "inout", init = "zeros"',
            'value = "width"',
            "ceil_div(width, block_x)",
        ],
    ),
    "rows and their number by the template": (
        f"""template <int K, int DIM> __global__ void k(const float* x, float* y, int n) {{ {BOUND} float d[K] = {{}};
            for (int j = 0; j < DIM; ++j) d[j % K] += x[i * DIM + j];
            for (int k = 0; k < K; ++k) y[k * n + i] = d[k]; }}""",
        [
            "sizes.DIM = 64  # TODO",
            "sizes.K = 64  # TODO",
            'x = { shape = ["n", "DIM"]',
            'y = { shape = ["K", "n"]',
        ],
    ),
    "vectors and tiles below an end": (
        """const int TILE = 16; __global__ void k(float* x, const half* a, float* c, int n, int incx) {
            const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i * 4 >= n) return;
            ((float4*)x)[i].x = 1; x[i * incx] = 2;
            wmma::load_matrix_sync(of, a + i * TILE, n); wmma::store_matrix_sync(c + i * 4, of, n); }""",
        [
            'x = { shape = ["n"]',
            'a = { shape = ["n // 4", "16"], dtype = "float16" }\n',
            'c = { shape = ["n"], dtype = "float32", role = "output" }\n',
            'grid = ["ceil_div(n // 4, block_size)"]',
            'incx = { dtype = "int32", value = "1" }',
        ],
    ),
    "pictures of channels": (
        f"""__global__ void k(const float* x, float* y, int n, int C, int H, int W) {{ {BOUND}
            const int w = i % W, h = i / W % H, c = i / W / H % C, b = i / W / H / C;
            y[i] = x[((b * C + c) * H + h) * W + w]; }}""",
        ['x = { shape = ["ceil_div(n, C * H * W)", "C", "H", "W"]'],
    ),
    "names that become one": (
        f"__global__ void k(float* y, int n, float \u03b1, float \u03b2) {{ {BOUND} y[i] = \u03b1 * y[i] + \u03b2; }}",
        ['arguments = ["y", "n", "_", "__"]'],
    ),
}


@pytest.mark.parametrize("what", READ)
def test_what_sources_say_in_other_ways_is_read(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, expected = READ[what]
    init(capsys, text)
    written = Path("kernel.toml").read_text()
    assert [one for one in expected if one not in written] == [], written


def test_a_number_of_the_template_is_called_no_macro(capsys: pytest.CaptureFixture[str]) -> None:
    init(
        capsys,
        "template <int TILE> __global__ void k(float* y, int n) { y[threadIdx.x * TILE] = 1 2; }",
    )
    said = said_by(capsys, "check", "kernel.toml", "--configurations", "1", "--no-cpu")
    assert 'expected a ";"' in said.out and "macro" not in said.out


def test_headers_of_another_folder_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What one would define is not tuned instead; the file has the folder for all other commands."""
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "shape.h").write_text("#define TILE 16\n")
    source = """\
#include "shape.h"
#include <cuda_runtime.h>
#include <vector>
__global__ void scale(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = TILE * x[i];
}
"""
    data, said = init(capsys, source)
    assert "TILE" in data["variants"]["main"]["parameters"] and "compile" not in data
    assert "shape.h not found" in said.err and "-I FOLDER" in said.err and "vector" not in said.err
    data, said = init(capsys, source, "-I", "common", "--force")
    assert list(data["variants"]["main"]["parameters"]) == ["block_size"] and "not found" not in said.err
    assert data["compile"]["include"] == ["common"]
    assert "kernel.cu" not in said_by(capsys, "check", "kernel.toml", "--configurations", "1").out
    absent = said_by(capsys, "init", "kernel.cu", "-I", "nowhere")
    assert absent.code == 2 and "nowhere" in absent.err
