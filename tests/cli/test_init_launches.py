"""What ``tune init`` makes of several kernels, and of loops around a launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.init_sources import STENCIL, TOTAL, init, launch, shapes
from tests.commands import assert_refused, said_by

pytestmark = pytest.mark.usefixtures("in_empty_folder")


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
    assert data["kernel"]["name"] == "smooth_scale"
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
    assert data["problem"]["sizes"].keys() == {"view_rows", "view_columns"}
    assert shapes(data) == {"a": "view_rows inout", "b": "view_rows output"}
    passed = [one["arguments"] for one in data["variants"]["main"]["launches"]]
    assert passed[0][2] == passed[1][2] == {"fields": ["view_rows", "view_columns"]}
    assert [data["scalars"][arguments[3]]["value"] for arguments in passed] == [2.0, 3.0]


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
    assert launch(data)["grid"] == ["1"] and "a guess: blocks" in said.err
    assert "correct before anything else" not in said.err
