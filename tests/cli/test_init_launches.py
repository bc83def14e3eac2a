"""What ``tune init`` makes of several kernels, and of how the source launches one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tree_sitter import Node

from tests.cli.init_sources import STENCIL, TOTAL, init, launch, shapes
from tests.commands import assert_refused, said_by
from tuner.expressions.arithmetic import parse
from tuner.kernel.source import launches, tree
from tuner.kernel.source.preprocessor import preprocessed

pytestmark = pytest.mark.usefixtures("in_empty_folder")


def test_a_function_is_searched_once_for_all_its_launches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand launches took 16 s."""
    searched: list[str] = []

    def walk(node: Node | None, *kinds: str) -> Iterator[Node]:
        searched.append(node.type if node is not None else "")
        return tree.walk(node, *kinds)

    monkeypatch.setattr(launches, "walk", walk)
    kernel = "__global__ void k(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 1; }\n"
    init(capsys, f"{kernel}void run(float* x, int n) {{ {'k<<<1, 64>>>(x, n); ' * 20} }}")
    assert 0 < searched.count("function_definition") < 20


def test_a_number_that_is_called_has_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    """It is no C++; the draft goes by the code."""
    kernel = (
        "__global__ void k(float* x, int n) { int i = blockIdx.x * 64 + threadIdx.x; if (i < n) x[i] = 1; }"
    )
    data, _ = init(
        capsys, f"{kernel}\nvoid run(float* x, int n) {{ const int grid(9); k<<<grid(n), 64>>>(x, n); }}"
    )
    assert launch(data)["grid"] == ["ceil_div(n, 64)"]


def test_many_macros_take_seconds() -> None:
    """About half of one; 20 where the time grows with their square. The bound leaves room for a busy machine."""
    text = "".join(f"#ifndef M{i}\n#define M{i} {i}\n#endif\n" for i in range(5_000))
    began = time.process_time()
    assert len(preprocessed(text).macros) == 5_000
    assert time.process_time() - began < 15


@pytest.mark.parametrize(
    ("index", "launched", "grid", "size"),
    [
        ("int i = blockDim.x * blockIdx.x + threadIdx.x;", "n / B, B", "n // block_size", "192 * 2**16"),
        ("int i = (blockDim.x * blockIdx.x + threadIdx.x) / 32;", "n / (B / 32), B", "n // (block_size // 32)", None),
        ("int i = blockDim.x * blockIdx.x + threadIdx.x;", "grid, block", "n // block_size", "192 * 2**16"),
    ],
)  # fmt: skip
def test_blocks_of_the_launch_go_by_the_tuned_number_of_threads(
    capsys: pytest.CaptureFixture[str], index: str, launched: str, grid: str, size: str | None
) -> None:
    """Nothing in the code is compared with the size: the launch alone says how many blocks there are."""
    kernel = f"__global__ void k(int n, float* y) {{ {index} y[i] = i; }}\n"
    data, _ = init(
        capsys,
        f"#define B 192\n{kernel}void go(int n, float* y) {{ dim3 grid(n / B), block(B); k<<<{launched}>>>(n, y); }}",
    )
    variant = data["variants"]["main"]
    assert launch(data)["grid"] == [grid] and launch(data)["block"] == ["block_size"]
    assert variant["parameters"]["block_size"]["default"] == 192
    if size is not None:
        assert data["problem"]["sizes"]["n"] == size
        assert "n % block_size == 0" in variant["constraints"].values()


def test_sizes_are_smaller_beside_extents_that_are_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 2^24 rows of 1024 numbers an array would have 64 GiB."""
    data, _ = init(
        capsys,
        """__global__ void pairs(unsigned* y, const unsigned* x) {
            y += blockIdx.x * 1024 + threadIdx.x;
            x += blockIdx.x * 1024 + threadIdx.x;
            y[0] = min(x[0], x[512]);
            y[512] = max(x[0], x[512]);
        }
        void go(unsigned* y, unsigned* x, unsigned n) { pairs<<<n / 1024, 512>>>(y, x); }""",
    )
    assert data["tensors"]["y"]["shape"] == ["rows", "1024"]
    assert data["problem"]["sizes"] == {"rows": "2**14"}


@pytest.mark.parametrize("axes", [1, 2])
def test_a_launch_that_cannot_be_read_leaves_what_the_code_says(
    capsys: pytest.CaptureFixture[str], axes: int
) -> None:
    """How many elements a program has may be what its user types; the problem had one."""
    code = {
        1: "int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] *= y[i];",
        2: "int i = blockIdx.y * 32 + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x; y[i * width + j] *= 2;",
    }
    blocks = {1: "n / 256, 256", 2: "dim3(n / 32, n / 32), dim3(32, 32)"}
    data, _ = init(
        capsys,
        f"__global__ void k(float* y, int width) {{ {code[axes]} }}\n"
        f"int main(int c, char** v) {{ int n = read(v); float* y; k<<<{blocks[axes]}>>>(y, width_of(n)); }}",
    )
    assert len(launch(data)["grid"]) == axes and all("ceil_div" in text for text in launch(data)["grid"])
    assert len(data["tensors"]["y"]["shape"]) == axes


def test_several_kernels_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("kernel.cu").write_text(f"{STENCIL}{TOTAL}{TOTAL.replace('float*', 'double*')}")
    assert_refused(said_by(capsys, "init", "kernel.cu"), 2, "3 kernels", "--entry: stencil5, total")
    assert_refused(said_by(capsys, "init", "kernel.cu", "--entry", "total"), 2, "total is overloaded")
    assert_refused(
        said_by(capsys, "init", "kernel.cu", "--entry", "x"), 2, "no kernel 'x'", "stencil5, total"
    )
    assert said_by(capsys, "init", "kernel.cu", "--entry", "stencil5").code == 0


@pytest.mark.parametrize(
    "loop",
    [
        "for (int by = n / 2; by > 0; by /= 2) shift<<<n / 64, 64>>>(x, n, by);",
        "while (far > 0) { shift<<<n / 64, 64>>>(x, n, far); far /= 2; }",
        "for (int i = 0; i < 9; ++i) if (i != 3) shift<<<n / 64, 64>>>(x, n, i);",
    ],
)
def test_what_a_loop_around_the_launch_changes_is_no_size_and_is_marked(
    loop: str, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert list(data["problem"]["sizes"]) == ["n"] and "far" in data["scalars"]
    assert "describe the loop by repeat" in said.err


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


@pytest.mark.parametrize(
    ("asked", "grid"),
    [
        ("int sms; cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);", "32 * sms"),
        ("cudaDeviceProp p; cudaGetDeviceProperties(&p, 0); int b = p.multiProcessorCount * 32;", "b"),
    ],
)
def test_blocks_by_multiprocessors_are_a_parameter(
    capsys: pytest.CaptureFixture[str], asked: str, grid: str
) -> None:
    text = f"""
    __global__ void twice(float* y, const float* x, int n) {{
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = 2 * x[i];
    }}
    void go(float* y, const float* x, int n) {{ {asked} twice<<<{grid}, 256>>>(y, x, n); }}
    """
    data, _ = init(capsys, text)
    assert launch(data)["grid"] == ["min(ceil_div(n, block_size), blocks_per_sm * sm_count)"]
    assert data["variants"]["main"]["parameters"]["blocks_per_sm"]["default"] == 32


def test_what_the_program_allocates_is_a_shape_that_the_code_does_not_show(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A triangle's indices look like half of the square; bytes that are known, and padding, say nothing."""
    text = """
    __global__ void mirror(float* square, const float* line, float* out, int n) {
        int row = blockIdx.x * blockDim.x + threadIdx.x;
        if (row >= n / 2) return;
        for (int i = row; i < n - row; ++i) { square[i * n + row] = square[row * n + i]; out[row] = line[row]; }
    }
    int main(int argc, char** argv) {
        int n = atoi(argv[1]), count = 0;
        size_t bytes = n * n * sizeof(float);
        float *s, *l, *o;
        check(cudaMalloc((void**)&s, bytes));
        check(cudaMalloc(&o, (n / 2 + 16) * sizeof(float)));
        cudaMalloc(&l, count * sizeof(float));
        mirror<<<(n / 2 + 255) / 256, 256>>>(s, l, o, n);
    }
    """
    data, said = init(capsys, text)
    assert shapes(data) == {"square": "n * n inout", "line": "n // 2 input", "out": "n // 2 output"}
    assert data["problem"]["sizes"]["n"] <= 4096
    marks = [line for line in said.err.splitlines() if "guess" in line]
    assert len(marks) == 1 and "the source allocates n * n elements, the code shows" in marks[0]


def test_sizes_of_a_template_are_those_of_the_problem(capsys: pytest.CaptureFixture[str]) -> None:
    data, said = init(
        capsys,
        """
        template <int m, int n, int k> __global__ void mink(const float* a, const float* b, float* c) {
            int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= m || j >= n) return;
            float best = 1e30f;
            for (int t = 0; t < k; t++) best = fminf(best, a[i * k + t] + b[t * n + j]);
            c[i * n + j] = best;
        }
        constexpr int M = 1024, N = 512, K = 256;
        void run(const float* a, const float* b, float* c) {
            mink<M, N, K><<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(a, b, c);
        }
        """,
    )
    assert launch(data)["entry"] == "mink<{{ problem.m }}, {{ problem.n }}, {{ problem.k }}>"
    assert data["problem"]["sizes"] == {"m": 1024, "n": 512, "k": 256}
    assert "correct before anything else" not in said.err


def test_a_block_of_one_of_two_numbers_is_limited_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(
        capsys,
        """
        #ifndef BLOCK_SIZE
        #define BLOCK_SIZE 256
        #endif
        __global__ void twice(const float* x, float* y, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = 2 * x[i];
        }
        void run(const float* x, float* y, int n) {
            int bs = n < BLOCK_SIZE ? n : BLOCK_SIZE;
            twice<<<(n + bs - 1) / bs, bs>>>(x, y, n);
        }
        """,
    )
    assert launch(data)["block"] == ["n if n < BLOCK_SIZE else BLOCK_SIZE"]
    (limit,) = data["variants"]["main"]["constraints"].values()
    assert [parse(limit).evaluate({"n": 2000, "BLOCK_SIZE": size}) for size in (1024, 2048)] == [True, False]


def test_functions_that_call_themselves_are_left_soon_and_threads_may_be_a_template_s(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = """
    int steps(int n) { return steps(n - 1) + steps(n - 2) + steps(n / 2) + steps(n / 3); }
    template <int THREADS> __global__ __launch_bounds__(THREADS) void first(const float* x, float* y) {
        if (threadIdx.x < 3) y[threadIdx.x] = x[0];
    }
    void run(const float* x, float* y, int n) {
        const int count = n > 5 ? 128 : 256;
        first<count><<<steps(n), count>>>(x, y);
    }
    """
    data, _ = init(capsys, text)
    assert launch(data)["block"] == ["THREADS"] and launch(data)["grid"] == ["1"]


def test_blocks_that_the_code_only_asks_for_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    __global__ void cuts(const int* a, int* y, int n) {
        int at = blockIdx.x * (n + n) / gridDim.x;
        if (threadIdx.x == 0 && at < n) y[blockIdx.x] = a[at];
    }
    void run(const int* a, int* y, int n, int parts) { cuts<<<parts, 32>>>(a, y, n); }
    """
    data, said = init(capsys, text)
    assert launch(data)["grid"] == ["blocks"] and "a guess: blocks" in said.err
    assert "correct before anything else" not in said.err


@pytest.mark.parametrize("launched", [True, False])
def test_threads_that_go_through_a_tile_of_more_rows(
    capsys: pytest.CaptureFixture[str], launched: bool
) -> None:
    """A block of 32 x 8 threads moves 32 x 32 elements; along y a loop says so, or the launch."""
    run = "dim3 grid(w / TILE, h / TILE), block(TILE, ROWS); turned<<<grid, block>>>(y, x, w, h);" * launched
    data, _ = init(
        capsys,
        f"""
#ifndef TILE
#define TILE 32
#endif
#ifndef ROWS
#define ROWS 8
#endif
__global__ void turned(float* out, const float* in, int w, int h) {{
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y, a = x + w * y, b = y + h * x;
    for (int i = 0; i < TILE; i += ROWS) out[b + i] = in[a + i * w];
}}
void run(float* y, const float* x, int w, int h) {{ {run} }}""",
    )
    constraints = data["variants"]["main"]["constraints"].values()
    assert launch(data)["block"] == ["TILE", "ROWS"] and len(launch(data)["grid"]) == 2
    assert {"w % TILE == 0", "h % TILE == 0", "TILE % ROWS == 0"} <= {*constraints}


def test_rows_of_a_block_by_its_threads_along_another_axis(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(
        capsys,
        "__global__ void total(const float* x, float* y, int rows, int cols) {\n"
        "    int row = blockIdx.x * blockDim.y + threadIdx.y;\n    if (row >= rows) return;\n    float sum = 0;\n"
        "    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += x[row * cols + i];\n"
        "    atomicAdd(&y[row], sum);\n}",
    )
    assert launch(data)["grid"] == ["ceil_div(rows, block_y)"]
    assert launch(data)["block"] == ["block_x", "block_y"]


@pytest.mark.parametrize("macro", ["", "#define BINS 256\n"])
def test_what_each_block_writes_for_itself_makes_their_number_a_size(
    capsys: pytest.CaptureFixture[str], macro: str
) -> None:
    """It was a parameter, with which the results changed."""
    bins = "BINS" if macro else "256"
    kernel = f"""
{macro}__global__ void partial(unsigned* out, const unsigned char* x, int n) {{
    __shared__ unsigned own[{bins}];
    for (int i = threadIdx.x; i < {bins}; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&own[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < {bins}; i += blockDim.x) out[blockIdx.x * {bins} + i] = own[i];
}}
void run(unsigned* out, const unsigned char* x, int n) {{ partial<<<240, 192>>>(out, x, n); }}
"""
    data, _ = init(capsys, kernel)
    assert data["problem"]["sizes"]["blocks"] == 240 and launch(data)["grid"] == ["blocks"]
    assert shapes(data)["out"] == "blocks 256 output"
    assert list(data["variants"]["main"]["parameters"]) == ["block_size"]


def test_threads_that_a_tile_leaves_open_are_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = """
#ifndef TILE
#define TILE 2048
#endif
__global__ void scale(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < TILE; i += blockDim.x)
        if (blockIdx.x * TILE + i < n) y[blockIdx.x * TILE + i] = 2 * x[blockIdx.x * TILE + i];
}
void run(const float* x, float* y, int n) { scale<<<(n + TILE - 1) / TILE, 192>>>(x, y, n); }
"""
    data, _ = init(capsys, kernel)
    assert launch(data)["block"] == ["block_size"]
    assert data["variants"]["main"]["parameters"]["block_size"]["default"] == 192
