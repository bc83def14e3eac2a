"""What ``tune init`` makes a parameter of, and the conditions that keep its values valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.init_sources import SELECTED, SPARSE, VOLUME, init, launch, shapes
from tests.commands import assert_refused, said_by
from tuner.expressions.arithmetic import parse

pytestmark = pytest.mark.usefixtures("in_empty_folder")


PRODUCT = """
__global__ void product(const float* a, const float* b, float* c, int n) {
    __shared__ float rows[TILE * 16][DEPTH + 1], columns[DEPTH][16];
    const int row = blockIdx.y * 16 * TILE + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    for (int k = 0; k < n; k += DEPTH) {
        for (int d = 0; d < DEPTH; ++d) rows[threadIdx.y][d] = a[row * n + k + d];
        for (int d = 0; d < DEPTH; ++d) columns[d][threadIdx.x] = b[(k + d) * n + column];
    }
    if (row < n && column < n) c[row * n + column] = rows[0][0];
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
    assert data["problem"]["sizes"] == {"width": 1024} and "options" not in data["problem"]
    assert data["problem"]["dtypes"] == {"real": ["float32"]}
    parameters = data["variants"]["main"]["parameters"]
    assert {name: one["values"][:2] for name, one in parameters.items()} == {
        "threads": [32, 64],
        "unroll": [1, 2],
        "use_shared": [0, 1],
    }
    assert re.search(r"kernel.toml:\d+: a guess: a size that is a macro", said.err)


@pytest.mark.parametrize(("bound", "defaults"), [("512", (32, 8)), ("2 * 64", (32, 4)), ("16", (16, 1))])
def test_a_block_keeps_within_the_launch_bounds(
    bound: str, defaults: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    data, _ = init(capsys, VOLUME.replace("void scale", f"void __launch_bounds__({bound}) scale"))
    (limit,) = data["variants"]["main"]["constraints"].values()
    assert limit == f"block_x * block_y <= {128 if '*' in bound else bound}"
    parameters = data["variants"]["main"]["parameters"]
    assert (parameters["block_x"]["default"], parameters["block_y"]["default"]) == defaults


TURNED = """
__global__ void turned(const float* x, float* y, int width, int height) {
    __shared__ float tile[TILE_DIM][TILE_DIM + 1];
    const int i = blockIdx.x * TILE_DIM + threadIdx.x, j = blockIdx.y * TILE_DIM + threadIdx.y;
    for (int r = 0; r < TILE_DIM; r += BLOCK_ROWS)
        if (i < width && j + r < height) y[(j + r) * width + i] = x[(j + r) * width + i];
}
"""


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
    assert "tuned: nothing yet" in said.out and "#ifndef THREADS" in said.err


@pytest.mark.parametrize("name", ["domain", "grid", "image"])
def test_width_and_height_of_what_is_computed_are_sizes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    width, height = f"{name}_width", f"{name}_height"
    text = f"""
    __global__ void twice(const float* x, float* y) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
        if (i < {width} && j < {height}) y[j * {width} + i] = 2 * x[j * {width} + i] / gridDim.x / grid_size;
    }}
    """
    data, _ = init(capsys, text)
    assert data["problem"]["sizes"].keys() == {width, height}
    assert data["tensors"]["y"]["shape"] == [height, width]
    assert "grid_size" in data["variants"]["main"]["parameters"]


@pytest.mark.parametrize("name", ["THREADS_PER_BLOCK", "LOCAL_SIZE", "ELEMENTS_PER_BLOCK"])
def test_what_a_block_has_by_its_name_is_no_size_of_the_problem(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"""
    #define {name} 256
    __global__ void twice(const float* x, float* y, int n) {{
        int i = blockIdx.x * {name} + threadIdx.x;
        if (i < n) y[i] = 2 * x[i];
    }}
    void run(const float* x, float* y, int n) {{ twice<<<(n + {name} - 1) / {name}, {name}>>>(x, y, n); }}
    """
    data, said = init(capsys, text)
    assert (launch(data)["grid"], launch(data)["block"]) == (["ceil_div(n, 256)"], ["256"])
    assert (f"To tune {name}: #ifndef {name}" in said.err) == (name != "ELEMENTS_PER_BLOCK")


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


def test_a_class_of_functions_is_that_of_the_launch_and_passed_as_its_only_byte(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = """
    struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };
    template <typename T, class F> __global__ void joined(const T* a, T* b, int n, F join) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) b[i] = join(a[i], b[i]);
    }
    """
    Path("joined.cu").write_text(text)
    assert_refused(said_by(capsys, "init", "joined.cu"), 2, "class F of joined")
    data, _ = init(
        capsys, f"{text} void run(float* a) {{ joined<float, Sum><<<1, 128>>>(a, a, 128, Sum()); }}"
    )
    assert launch(data)["entry"] == "joined<input_type, Sum>"
    assert launch(data)["arguments"] == ["a", "b", "n", {"value": "0", "dtype": "uint8"}]
    said = said_by(capsys, "check", "kernel.toml", "--configurations", "1")
    assert said.code == 0, said.out


def test_structs_are_words_and_a_missing_type_is_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    #define AXES 3
    struct Body { double mass; float at[AXES]; char kind; };
    struct Limits { float low; int most; };
    __constant__ Limits limits;
    __global__ void fall(Body* bodies, const vertex_t* of, vertex_t count, real_t g) {
        vertex_t i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < count) bodies[of[i]].at[2] -= g * limits.low;
    }
    """
    data, said = init(capsys, text)
    assert data["tensors"]["bodies"] == {"shape": ["count", "6"], "dtype": "uint32", "role": "inout"}
    assert data["tensors"]["limits"] == {"shape": ["2"], "dtype": "uint32"}
    assert (data["tensors"]["of"]["dtype"], data["scalars"]["g"]["dtype"]) == ("int32", "float32")
    assert data["problem"]["options"] == {"vertex_t": ["int"], "real_t": ["float"]}
    assert said.err.count("as words of struct") == 2


def test_void_is_what_the_code_casts_it_to_and_vectors_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    __global__ void k(const void* x, void* __restrict__ y, int n) {
        const int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
        if (i < n) *reinterpret_cast<float4*>((float*)y + i) = *(const float4 *)&((const float*)x)[i];
    }
    """
    data, _ = init(capsys, text)
    assert shapes(data) == {"x": "n input", "y": "n output"}
    assert data["variants"]["main"]["constraints"] == {"n is a whole number of vectors": "n % 4 == 0"}
    assert launch(data)["grid"] == ["ceil_div(n, 4 * block_size)"]


def test_a_source_of_windows_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sizes.h").write_bytes(b"\xef\xbb\xbf#define WIDTH 4\r\nstruct Box { explicit Box(int); };\r\n")
    text = """\ufeff#ifdef __CUDACC__
    #include "sizes.h"
    #endif
    __global__ void k(float* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[WIDTH * i] = 0;
    }
    """
    data, _ = init(capsys, text.replace("\n", "\r\n"))
    assert shapes(data) == {"x": "n 4 output"}


def test_macros_of_a_build_are_no_parameters_and_whole_numbers_have_whole_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = """
    #if _WIN32
    #include <windows.h>
    #endif
    template <typename T> __global__ void fill(T* x, int n, T value) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] = value;
    #if DEBUG
        printf("%d", i);
    #endif
    }
    void run(int* x, int n, int value) { fill<int><<<n / 128, 128>>>(x, n, value); }
    """
    data, _ = init(capsys, text)
    assert [*data["variants"]["main"]["parameters"]] == ["block_size"]
    assert data["scalars"]["value"]["value"] == 1


def test_arrays_of_the_code_limit_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    """But not where a comparison leaves threads out, nor for what another index has."""
    text = """
    #define WARPS 16
    __global__ void blur(const float* x, float* y, int w, int h) {
        extern __shared__ float rows[];
        __shared__ float tile[10][200], first[4], of_warp[WARPS];
        int tx = threadIdx.x, ty = threadIdx.y, c = blockIdx.x * blockDim.x + tx, r = blockIdx.y * blockDim.y + ty;
        if (c >= w || r >= h) return;
        tile[ty + 2][2 * tx] = x[r * w + c];
        if (tx < 4) first[tx] = 0;
        if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = 1;
        rows[tx] = tile[ty + 2][2 * tx];
        y[r * w + c] = rows[tx];
    }
    void run(const float* x, float* y, int w, int h) {
        blur<<<dim3((w + 31) / 32, (h + 15) / 16), dim3(32, 16), w * sizeof(float)>>>(x, y, w, h);
    }
    """
    data, _ = init(capsys, text)
    constraints = data["variants"]["main"]["constraints"]
    room = {why: what for why, what in constraints.items() if "have room" in why}
    assert room == {"arrays of the code have room for 8 threads along y": "block_y <= 8"}
    assert data["variants"]["main"]["parameters"]["block_y"]["default"] == 8
    assert data["problem"]["sizes"]["w"] == 1024 and launch(data)["shared_bytes"] == "w * 4"


def test_sizes_of_shared_memory_and_exponents_begin_small(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(
        capsys,
        """
        __global__ void walk(const float* x, float* y, int log2n, int rows, int columns) {
            extern __shared__ float kept[];
            const int n = 1 << log2n;
            for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = x[i] + kept[i % (rows * columns)];
        }
        void run(const float* x, float* y, int log2n, int rows, int columns) {
            walk<<<rows, 256, rows * columns * sizeof(float)>>>(x, y, log2n, rows, columns);
        }
        """,
    )
    sizes = data["problem"]["sizes"]
    assert sizes["log2n"] <= 12 and 4 * sizes["rows"] * sizes["columns"] <= 48 * 1024


def test_shared_memory_beside_a_number_that_is_divided_has_its_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, _ = init(
        capsys,
        """#define R 17
        #define BORDER (R / 2 * 2)
        __global__ void k(float* y, const float* x, int n) {
            __shared__ float tile[BLOCK * TILE + BORDER][64];
            int i = blockIdx.x * BLOCK + threadIdx.x;
            for (int t = 0; t < TILE; ++t) tile[threadIdx.x + t * BLOCK][t] = i < n ? x[i] : 0;
            if (i < n) y[i] = tile[threadIdx.x][0];
        }""",
    )
    constraints = data["variants"]["main"]["constraints"]
    (limit,) = (text for text in constraints.values() if "49152" in text)
    left, _, most = limit.partition(" <= ")
    values = {"BLOCK": 64, "TILE": 2}
    assert parse(left).number(values) == 4 * 64 * (64 * 2 + 16) and int(most) == 48 * 1024


def test_numbers_of_an_enumeration_are_cast_and_have_its_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They were 1, 2, 4 and 8, which no template takes for one."""
    kernel = """
namespace md {
enum class Electrostatics : int { Cut, Field = 4, Ewald };
template <Electrostatics electrostatics, bool energies>
__global__ void forces(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = electrostatics == Electrostatics::Field ? 2 * x[i] : energies ? x[i] + x[i] : x[i] / 0.5f;
}
}
"""
    host = "void run(float* x, float* y, int n) { md::forces<md::Electrostatics::Field, true><<<n, 64>>>(x, y, n); }"
    data, _ = init(capsys, kernel + host)
    one = data["variants"]["main"]["parameters"]["electrostatics"]
    assert one["values"] == [0, 4, 5] and one["default"] == 4
    assert (
        said_by(capsys, "check", "./kernel.toml", "--configurations", "1", "--cc", "90", "--no-cpu").code == 0
    )
