"""What ``tune init`` makes of indices that are written out, compared with numbers, or count vectors; and of macros and
templates that hide them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.init_sources import init, launch, shapes
from tests.commands import said_by

pytestmark = pytest.mark.usefixtures("in_empty_folder")
AT = "blockIdx.x * blockDim.x + threadIdx.x"
READ = {
    "a quotient of a size": (
        """__global__ void gather(float* y, const int* which, const float* table, int B, int T, int C) {
            int quads = C / 4, i = AT;
            if (i >= B * T * quads) return;
            int row = i / quads, k = i % quads;
            ((float4*)y)[row * quads + k] = ((const float4*)table)[which[row] * quads + k];
        }""",
        {"y": "B * T C output", "which": "B * T input {'uniform': [0, 'rows - 1']}", "table": "rows C input"},
        ["ceil_div(C // 4 * B * T, block_size)"],
    ),
    "rows of vectors beside rows of elements": (
        """__global__ void twice(float* y, const float* x, int rows, int cols) {
            const int quads = cols >> 2, c = AT, r = blockIdx.y;
            if (c >= quads) return;
            float4 v = (reinterpret_cast<const float4*>(x) + r * quads)[c];
            reinterpret_cast<float4*>(y + (size_t)r * cols)[c] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
        }""",
        {"y": "rows cols output", "x": "rows cols input"},
        ["ceil_div(cols // 4, block_size)", "rows"],
    ),
    "no variable": (
        "__global__ void twice(float* y, const float* x) { y[AT] = 2 * x[AT]; }",
        {"y": "n output", "x": "n input"},
        ["ceil_div(n, block_size)"],
    ),
    "no variable along a row of a number": (
        """__global__ void twice(float* y, const float* x) {
            const int row = blockIdx.y * blockDim.y + threadIdx.y;
            y[row * 1024 + AT] = 2 * x[row * 1024 + AT];
        }""",
        {"y": "rows 1024 output", "x": "rows 1024 input"},
        ["ceil_div(1024, block_x)", "ceil_div(rows, block_y)"],
    ),
    "numbers as sizes": (
        """__global__ void twice(float* y, const float* x) {
            const int c = AT, r = blockIdx.y * blockDim.y + threadIdx.y;
            if (c >= 640 || r > 479) return;
            y[r * 640 + c] = 2 * x[r * 640 + c];
        }""",
        {"y": "480 640 output", "x": "480 640 input"},
        ["ceil_div(640, block_x)", "ceil_div(480, block_y)"],
    ),
    "a table of bytes": (
        """__global__ void mapped(const unsigned char* x, const float* table, float* y, int n) {
            const int i = AT;
            if (i < n) y[i] = table[x[i]];
        }""",
        {"x": "n input", "table": "256 input", "y": "n output"},
        ["ceil_div(n, block_size)"],
    ),
    "warps of a built-in variable": (
        """__global__ void first(const float* x, float* y, int height, int width) {
            const int row = (AT) / warpSize, lane = threadIdx.x % warpSize;
            if (row < height && lane == 0) for (int c = 0; c < width; ++c) y[row] += x[row * width + c];
        }""",
        {"x": "height width input", "y": "height inout"},
        ["ceil_div(32 * height, block_size)"],
    ),
    "an integer type of a template": (
        """template <typename T, typename Index> __global__ void sums(const T* x, T* y, Index n, Index width) {
            const Index i = AT;
            if (i >= n) return;
            T sum = 0;
            for (Index k = 0; k < width; ++k) sum += x[i * width + k];
            y[i] = sum;
        }""",
        {"x": "n width input", "y": "n output"},
        ["ceil_div(n, block_size)"],
    ),
    "an index that is divided in two ways": (
        """__global__ void below(const float* x, float* y, int many, int rows, int columns) {
            const int at = AT;
            if (many > 0) {
                if (at >= many * rows * columns) return;
                const int k = at % columns, row = (at - k) / columns % rows;
                y[(at - columns * row - k) + columns * row + k] = row > k ? 0 : x[at];
            } else {
                const int row = at / columns;
                y[row * columns + at % columns] = row > at % columns ? 0 : x[at];
            }
        }""",
        {"x": "columns * many * rows input", "y": "many * rows columns output"},
        ["ceil_div(columns * many * rows, block_size)"],
    ),
    "a histogram, whose loops have variables of one name": (
        """__global__ void count(const unsigned char* x, unsigned* counts, int n) {
            __shared__ unsigned own[256];
            for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
            __syncthreads();
            const int step = gridDim.x * blockDim.x;
            for (int i = AT; i < n; i += step) { const int at = x[i]; atomicAdd(&own[at], 1u); }
            __syncthreads();
            for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&counts[i], own[i]);
        }""",
        {"x": "n input {'uniform': [0, 255]}", "counts": "256 inout"},
        ["ceil_div(n, block_size)"],
    ),
    "indices that are set again": (
        """__global__ void turned(float* y, const float* x, int columns, int rows) {
            __shared__ float tile[TILE][TILE + 1];
            int c = blockIdx.x * TILE + threadIdx.x, r = blockIdx.y * TILE + threadIdx.y;
            if (c < columns && r < rows) tile[threadIdx.y][threadIdx.x] = x[r * columns + c];
            __syncthreads();
            c = blockIdx.y * TILE + threadIdx.x;
            r = blockIdx.x * TILE + threadIdx.y;
            if (c < rows && r < columns) y[r * rows + c] = tile[threadIdx.x][threadIdx.y];
        }""",
        {"x": "rows columns input", "y": "columns rows output"},
        ["ceil_div(columns, TILE)", "ceil_div(rows, TILE)"],
    ),
    "a place within a tile of a fixed size": (
        """#define T 16
        __global__ void product(const float* a, const float* b, float* c, int M, int N, int K) {
            __shared__ float as[T][T], bs[T][T];
            const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * T + ty, col = blockIdx.x * T + tx;
            float sum = 0;
            for (int t = 0; t < (K + T - 1) / T; ++t) {
                as[ty][tx] = row < M && t * T + tx < K ? a[row * K + t * T + tx] : 0;
                bs[ty][tx] = col < N && t * T + ty < K ? b[(t * T + ty) * N + col] : 0;
                __syncthreads();
                for (int k = 0; k < T; ++k) sum += as[ty][k] * bs[k][tx];
                __syncthreads();
            }
            if (row < M && col < N) c[row * N + col] = sum;
        }
        int main() { product<<<dim3(64, 64), dim3(T, T)>>>(0, 0, 0, 1024, 1024, 1024); }""",
        {"a": "M K input", "b": "K N input", "c": "M N output"},
        ["ceil_div(N, 16)", "ceil_div(M, 16)"],
    ),
    "channels of a batch": (
        """__global__ void add(float* x, const float* bias, int batch, int channels, int hw) {
            const int i = AT, c = blockIdx.y, b = blockIdx.z;
            if (i < hw) x[(b * channels + c) * hw + i] += bias[c];
        }""",
        {"x": "batch channels hw inout", "bias": "channels input"},
        ["ceil_div(hw, block_size)", "channels", "batch"],
    ),
    "heads that the code does not name, and a loop up to a block": (
        """__global__ void scores(const float* q, const float* k, float* out, int heads, int tokens, int dim) {
            const int h = blockIdx.y, t = blockIdx.x;
            for (int j = threadIdx.x; j <= t; j += blockDim.x) {
                float s = 0;
                for (int d = 0; d < dim; ++d) s += q[(h * tokens + t) * dim + d] * k[(h * tokens + j) * dim + d];
                out[(h * tokens + t) * tokens + j] = s;
            }
        }""",
        {"q": "heads tokens dim input", "k": "heads tokens dim input", "out": "heads tokens tokens output"},
        ["tokens", "heads"],
    ),
    "an index that is divided by what is computed": (
        """__global__ void cropped(const float* x, float* y, int N, int C, int W, int R) {
            const int left = W - R + 1, at = AT;
            if (at >= N * C * left) return;
            const int k = at % left, c = at / left % C, n = at / (left * C);
            y[at] = x[(n * C + c) * W + k];
        }""",
        {"x": "N C W input", "y": "C * N * W - C * N * R + C * N output"},
        ["ceil_div(C * N * W - C * N * R + C * N, block_size)"],
    ),
    "blocks of a variable that the program passes": (
        """__global__ void halved(const float* x, float* y, int N, int C) {
            const int row = blockIdx.x;
            for (int i = threadIdx.x; i < C; i += blockDim.x) y[row * C + i] = x[row * C + i] / 2;
        }
        void run(float* x, float* y) { int N = 8192, C = 768; halved<<<N, 256>>>(x, y, N, C); }""",
        {"x": "N C input", "y": "N C output"},
        ["N"],
    ),
    "macros of any arguments": (
        """#define PLACE(...) place(__VA_ARGS__, n)
        #define ELEMENT(p, ...) p[PLACE(__VA_ARGS__)]
        __device__ int place(int y, int x, int n) { return y * n + x; }
        __global__ void twice(const float* x, float* y, int m, int n) {
            const int c = AT, r = blockIdx.y;
            if (c < n && r < m) ELEMENT(y, r, c) = 2 * ELEMENT(x, r, c);
        }""",
        {"x": "m n input", "y": "m n output"},
        ["ceil_div(n, block_size)", "m"],
    ),
}


@pytest.mark.parametrize("what", READ)
def test_indices_are_understood(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, of, grid = READ[what]
    data, said = init(capsys, re.sub(r"\bAT\b", AT, text))
    assert {name: shape.replace(" zeros", "") for name, shape in shapes(data).items()} == of
    assert launch(data)["grid"] == grid
    assert "a guess" not in said.err


def test_an_array_with_an_element_for_each_thread_says_how_many_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = f"""__global__ void dot(const float* a, const float* b, float* sum, int n) {{
        ARRAY;
        const int t = threadIdx.x;
        float s = 0;
        for (int i = {AT}; i < n; i += gridDim.x * blockDim.x) s += a[i] * b[i];
        kept[t] = s;
        __syncthreads();
        for (int k = blockDim.x / 2; k > 0; k /= 2) {{ if (t < k) kept[t] += kept[t + k]; __syncthreads(); }}
        if (t == 0) atomicAdd(sum, kept[0]);
    }}"""
    data, said = init(capsys, text.replace("ARRAY", "__shared__ float kept[THREADS]"))
    assert launch(data)["block"] == ["THREADS"] and "a guess" not in said.err
    assert data["variants"]["main"]["parameters"]["THREADS"]["default"] == 256
    Path("kernel.toml").unlink()
    named = text.replace("__global__", "template <int NUM_THREADS> __global__").replace(
        "ARRAY", "__shared__ float kept[1024]"
    )
    assert launch(init(capsys, named)[0])["block"] == ["NUM_THREADS"]
    Path("kernel.toml").unlink()
    data, said = init(capsys, text.replace("ARRAY", "extern __shared__ float kept[]"))
    assert launch(data)["shared_bytes"] == "4 * 1024" and "a guess: bytes of dynamic" in said.err


def test_a_block_is_as_large_as_the_program_launches_it(capsys: pytest.CaptureFixture[str]) -> None:
    data, said = init(
        capsys,
        """#define OUT 16
        #define IN (OUT + 2)
        __global__ void blurred(const float* x, float* y, int n) {
            __shared__ float tile[IN];
            const int at = blockIdx.x * OUT + threadIdx.x, from = at - 1;
            tile[threadIdx.x] = from >= 0 && from < n ? x[from] : 0;
            __syncthreads();
            if (threadIdx.x < OUT && at < n) y[at] = tile[threadIdx.x] + tile[threadIdx.x + 1] + tile[threadIdx.x + 2];
        }
        void run(float* x, float* y, int n) { dim3 block(IN); blurred<<<(n + OUT - 1) / OUT, block>>>(x, y, n); }""",
    )
    assert (launch(data)["grid"], launch(data)["block"]) == (["ceil_div(n, 16)"], ["18"])
    assert "a guess" not in said.err


def test_pooling_has_no_rows_of_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    data, said = init(
        capsys,
        """__global__ void pooled(const float* x, float* y, int channels, int h, int w) {
            const int c = blockIdx.x * BX + threadIdx.x, r = blockIdx.y * BY + threadIdx.y, oh = h / 2, ow = w / 2;
            if (c >= ow || r >= oh) return;
            const float* p = x + (blockIdx.z * h + 2 * r) * w + 2 * c;
            y[(blockIdx.z * oh + r) * ow + c] = p[0] + p[1] + p[w] + p[w + 1];
        }""",
    )
    assert shapes(data) == {"x": "channels h w input", "y": "channels h // 2 w // 2 output"}
    assert said.err.count("a guess: ") == 1 and "a guess: the shape" in said.err


@pytest.mark.parametrize(
    ("loop", "known"),
    [
        ("for (int k = 0; k < many; ++k)", True),
        ("for (int k = many; k > 0; --k)", False),
        ("while (many--)", False),
    ],
)
def test_a_pointer_that_a_loop_moves_by_its_variable_has_a_shape_and_another_is_marked(
    capsys: pytest.CaptureFixture[str], loop: str, known: bool
) -> None:
    data, said = init(
        capsys,
        f"""__global__ void sums(const float* x, float* y, int n, int many) {{
            const int i = {AT};
            if (i >= n) return;
            float sum = 0;
            {loop} {{ sum += x[i]; x += n; }}
            y[i] = sum;
        }}""",
    )
    assert (data["tensors"]["x"]["shape"] == ["many", "n"]) == known
    assert ("a guess: the shape: a loop moves its pointer" in said.err) != known


def test_elements_that_a_thread_takes_together_are_a_whole_number(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"""__global__ void doubled(float* x, int n) {{
        const int i = ({AT}) * EACH;
        if (i < n) for (int k = 0; k < EACH; ++k) x[i + k] *= 2;
    }}"""
    data, _ = init(capsys, text)
    assert data["variants"]["main"]["constraints"] == {"n is a whole number of EACH": "n % EACH == 0"}
    Path("kernel.toml").unlink()
    data, _ = init(capsys, text.replace("++k) x", "++k) if (i + k < n) x"))
    assert "constraints" not in data["variants"]["main"]


def test_what_the_file_does_not_know_leaves_enough_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    data, said = init(
        capsys,
        f"""struct Pack {{ static constexpr int size = 16 / sizeof(float); }};
        __global__ void twice(const float* x, float* y, int n) {{
            const int first = ({AT}) * Pack::size;
            if (first < n) for (int k = 0; k < Pack::size; ++k) y[first + k] = 2 * x[first + k];
        }}""",
    )
    assert launch(data)["grid"] == ["ceil_div(n, block_size)"] and "a guess" in said.err


def test_kernels_that_macros_make_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    Path("kernel.cu").write_text(
        f"""#define FAST __attribute__((always_inline)) inline
        #define CHECK(call) do {{ if (call) printf("%s", #call); }} while (0)
        #define EACH(NAME, ...) __global__ void NAME##_all(const float* x, float* y, int n) {{ \\
            const int i = {AT};                                                              \\
            if (i >= n) return;                                                              \\
            const float v = x[i];                                                            \\
            y[i] = __VA_ARGS__;                                                              \\
        }}
        __host__ __device__ FAST uint64_t cubed(uint64_t v) {{ return v * v * v; }}
        EACH(cube, cubed(v))
        EACH(larger, fmaxf(v, 0.5f))
        int main() {{ CHECK(run()); cube_all<<<4, 256>>>(0, 0, 1024); }}
        """
    )
    assert "cube_all, larger_all" in said_by(capsys, "init", "kernel.cu").err
    said = said_by(capsys, "init", "kernel.cu", "--entry", "larger_all")
    assert said.code == 0 and said.out == "kernel.toml: larger_all(x, y, n); tuned: block_size\n"


@pytest.mark.parametrize("fixed", ["constexpr int THREADS = 128;", "#define THREADS 128"])
def test_a_loop_by_a_fixed_number_has_so_many_threads_and_rows_are_those_passed(
    fixed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, said = init(
        capsys,
        f"""{fixed}
        __global__ void halved(const float* x, float* y, int rows, int columns) {{
            const float* row = x + (size_t)blockIdx.x * columns;
            for (int i = threadIdx.x; i < columns; i += THREADS) y[blockIdx.x * columns + i] = row[i] / 2;
        }}""",
    )
    assert shapes(data) == {"x": "rows columns input", "y": "rows columns output"}
    assert (launch(data)["grid"], launch(data)["block"]) == (["rows"], ["128"])
    assert "a guess" not in said.err and set(data["problem"]["sizes"]) == {"rows", "columns"}


def test_the_default_fits_in_shared_memory(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(
        capsys,
        """__global__ void turned(float* m, int n) {
            __shared__ float tile[BLOCK][BLOCK];
            for (int i = 0; i < BLOCK; i++) tile[i][threadIdx.x] = m[i * n + threadIdx.x];
            __syncthreads();
            for (int i = 0; i < BLOCK; i++) m[i * n + threadIdx.x] = tile[threadIdx.x][i];
        }""",
    )
    assert data["variants"]["main"]["parameters"]["BLOCK"]["default"] == 64


def test_pixels_of_channels_without_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    """A row's length is what y has more than x; a limit is in no array."""
    data, _ = init(
        capsys,
        """
        __device__ int weight(int v) { return v * v; }
        __global__ void gray(const float* rgb, float* out, int w, int channels, int h, int limit, int bright) {
            int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
            float v = rgb[w * channels * y + x * channels] + rgb[w * channels * y + x * channels + 2];
            if (x != 0 && y != h - 1 && v < limit && weight(y) < bright) v = 1;
            out[w * channels * y + x * channels + 1] = v;
        }
        """,
    )
    assert shapes(data) == {"rgb": "h w channels input", "out": "h w channels inout zeros"}
    assert launch(data)["grid"] == ["ceil_div(w, block_x)", "ceil_div(h, block_y)"]
    marked = [line for line in Path("kernel.toml").read_text().splitlines() if "no array has it" in line]
    assert len(marked) == 1 and marked[0].startswith("sizes.limit") and "bright" in data["scalars"]


def test_qualifiers_by_macros(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    #if CONST_POINTERS == 1
    #define RESTRICT __restrict__
    #else
    #define RESTRICT
    #endif
    extern "C" __global__ void copy(const float* RESTRICT from, float* RESTRICT to, const int n) {
        const int i = blockIdx.x * WGS + threadIdx.x;
        if (i < n) to[i] = from[i];
    }
    """
    data, _ = init(capsys, text)
    assert shapes(data) == {"from_": "n input", "to": "n output"}
    assert launch(data)["arguments"] == ["from_", "to", "n"]
