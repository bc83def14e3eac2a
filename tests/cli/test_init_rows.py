"""What ``tune init`` makes of rows: longer than a size, in several loops, one for each block, or of an open number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.init_sources import init, launch, shapes

pytestmark = pytest.mark.usefixtures("in_empty_folder")
AT = "blockIdx.x * blockDim.x + threadIdx.x"
READ = {
    "rows that are longer than a size": (
        """__global__ void curve(const float* points, float* y, int n, int m) {
            const int i = AT;
            if (i > n) return;
            float sum = 0;
            for (int k = 0; k <= m; ++k) sum += points[i * (m + 1) + k];
            y[i] = sum;
        }""",
        {"points": "n + 1 m + 1 input", "y": "n + 1 output"},
    ),
    "planes whose rows have a border on one side": (
        """__global__ void copied(const float* x, float* y, int d, int h, int w) {
            const int i = AT, j = blockIdx.y, k = blockIdx.z;
            if (i > w || j > h || k > d) return;
            y[(k * (h + 1) + j) * (w + 1) + i] = x[(k * (h + 1) + j) * (w + 1) + i];
        }""",
        {"x": "d + 1 h + 1 w + 1 input", "y": "d + 1 h + 1 w + 1 output"},
    ),
    "a diagonal": (
        "__global__ void diagonal(const float* x, float* y, int n) { int i = AT; if (i < n) y[i] = x[i * n + i]; }",
        {"x": "n n input", "y": "n output"},
    ),
    "several loops over rows": (
        """__global__ void columns(const float* x, float* y, int h, int w, int r) {
            const int i = AT;
            if (i >= w) return;
            float sum = 0;
            for (int j = 0; j < r; ++j) sum += x[j * w + i];
            for (int j = 0; j < h; ++j) y[j * w + i] = sum + x[j * w + i];
        }""",
        {"x": "max(r, h) w input", "y": "h w output"},
    ),
    "a row of two sizes for each block": (
        """__global__ void shuffled(const float* x, float* y, int groups, int each) {
            const int whole = groups * each, first = blockIdx.x * whole;
            for (int i = threadIdx.x; i < whole; i += blockDim.x) y[first + i] = x[first + i % groups];
        }""",
        {"x": "rows each * groups input", "y": "rows each * groups output"},
    ),
    "a limit beside a number of the source": (
        """#define SPAN 8
        __global__ void spans(const float* x, float* y, int n) {
            const int i = AT;
            if (i + SPAN - 1 >= n) return;
            float sum = 0;
            for (int k = 0; k < SPAN; ++k) sum += x[i + k];
            y[i] = sum;
        }""",
        {"x": "n input", "y": "n inout zeros"},
    ),
    "a convolution without a border": (
        """__global__ void convolved(const float* x, const float* w, float* y, int n, int m, int k, int row) {
            const int i = AT, j = blockIdx.y;
            if (i >= m || j >= n) return;
            float sum = 0;
            for (int a = 0; a < k; ++a) for (int b = 0; b < k; ++b) sum += x[(j + a) * row + i + b] * w[a * k + b];
            y[j * m + i] = sum;
        }""",
        {"x": "n + k - 1 row input", "w": "k k input", "y": "n m output"},
    ),
    "rows with a border": (
        """#define IN(i, j) ((j + 1) * (nx + 2) + (i) + 1)
        __global__ void smooth(const float* x, float* y, int nx, int ny) {
            const int i = AT, j = blockIdx.y;
            if (i < nx && j < ny) y[IN(i, j)] = x[IN(i, j - 1)] + x[IN(i, j + 1)] + x[IN(i - 1, j)] + x[IN(i + 1, j)];
        }""",
        {"x": "ny + 2 nx + 2 input", "y": "ny + 1 nx + 2 inout zeros"},
    ),
    "an element more than is written": (
        "__global__ void steps(const float* x, float* y, int n) { int i = AT; if (i < n) y[i] = x[i + 1] - x[i]; }",
        {"x": "n + 1 input", "y": "n output"},
    ),
    "neighbours that conditions of all kinds leave out": (
        """__global__ void edges(const float* x, float* y, int w, int h) {
            const int i = AT, j = blockIdx.y;
            if (i >= w || j >= h) return;
            const float up = j < h - 1 ? x[(j + 1) * w + i] : 0, down = j > 0 ? x[(j - 1) * w + i] : 0;
            y[j * w + i] = up + down;
        }""",
        {"x": "h w input", "y": "h w output"},
    ),
    "a neighbour that the last one does not have": (
        """__global__ void next(const float* x, float* y, int n) {
            const int i = AT;
            if (i < n) y[i] = i == n - 1 ? 0 : x[i + 1];
        }""",
        {"x": "n input", "y": "n output"},
    ),
    "the last elements of a row": (
        """__global__ void tails(const float* x, float* y, int h, int w, int k) {
            const int i = AT, j = blockIdx.y;
            if (i < k && j < h) y[j * k + i] = x[j * w + i + w - k];
        }""",
        {"x": "h w input", "y": "h k output"},
    ),
    "rows behind a border of a passed width": (
        """__global__ void padded(const float* x, float* y, int h, int w, int p) {
            const int i = AT, j = blockIdx.y;
            if (i < w && j < h) y[(j + p) * (w + 2 * p) + i + p] = x[j * w + i];
        }""",
        {"x": "h w input", "y": "h + p w + 2 * p inout zeros"},
    ),
    "rows below a pivot": (
        """__global__ void cleared(float* a, const float* by, int n, int t) {
            const int i = AT, j = blockIdx.y;
            if (i < n && j < n - 1 - t) a[(j + 1 + t) * n + i] -= by[j + 1 + t] * a[t * n + i];
        }""",
        {"a": "n n inout", "by": "n input"},
    ),
    "the last row before the others": (
        """__global__ void upwards(float* x, int h, int w) {
            const int i = AT;
            if (i < w) for (int j = h - 2; j >= 0; --j) x[j * w + i] += x[(h - 1) * w + i];
        }""",
        {"x": "h * w inout"},
    ),
    "a first element beside those of a row": (
        """__global__ void sums(const float* x, float* y, int h, int w) {
            const int j = AT;
            if (j >= h) return;
            y[j * (w + 1)] = 0;
            for (int i = 0; i < w; ++i) y[j * (w + 1) + i + 1] = y[j * (w + 1) + i] + x[j * w + i];
        }""",
        {"x": "h w input", "y": "h w + 1 inout"},
    ),
    "an index that a function returns": (
        """__device__ int mine() { return AT; }
        __global__ void twice(const float* x, float* y, int n) { if (mine() < n) y[mine()] = 2 * x[mine()]; }""",
        {"x": "n input", "y": "n output"},
    ),
    "an index without a variable": (
        "__global__ void twice(const float* x, float* y, int n) { if (AT < n) y[AT] = 2 * x[AT]; }",
        {"x": "n input", "y": "n output"},
    ),
    "loops to numbers": (
        """__global__ void boxes(const float* x, float* y, int h, int w) {
            const int i = AT;
            if (i >= h) return;
            float sum = 0;
            for (int a = 0; a < 3; ++a) for (int b = 0; b <= 2; ++b) sum += x[(i + a) * w + b];
            y[i] = sum;
        }""",
        {"x": "h + 2 w input", "y": "h output"},
    ),
    "the last element of a row that has one more": (
        """__global__ void totals(const float* x, float* y, int h, int w) {
            const int j = AT;
            if (j >= h) return;
            float sum = 0;
            for (int i = 0; i < w; ++i) sum += y[j * (w + 1) + i] = x[j * w + i];
            y[j * (w + 1) + w] = sum + x[j * w + w - 1];
        }""",
        {"x": "h w input", "y": "h w + 1 output"},
    ),
    "rows that a condition leaves out by a size": (
        """__global__ void far(const float* x, const float* by, float* y, int h, int w, int m) {
            const int i = AT, j = blockIdx.y;
            if (i >= w || j >= h) return;
            float sum = 0;
            for (int k = 0; k < m; ++k) sum += by[k];
            y[j * w + i] = sum * (j + m < h ? x[(j + m) * w + i] : 1);
        }""",
        {"x": "h w input", "by": "m input", "y": "h w output"},
    ),
    "elements of a step": (
        """__global__ void pairs(const float* x, float* y, int n) {
            for (int i = 2 * (AT); i < n; i += 2 * blockDim.x * gridDim.x) { y[i] = x[i + 1]; y[i + 1] = x[i]; }
        }""",
        {"x": "n input", "y": "n output"},
    ),
    "elements from 1": (
        "__global__ void first(const float* x, float* y, int n) { int i = AT + 1; if (i <= n) y[i - 1] = x[i - 1]; }",
        {"x": "n input", "y": "n output"},
    ),
    "rows by a type's name": (
        """typedef int place_t;
        __global__ void corners(const float* x, float* y, int n) {
            const int i = AT;
            if (i < n) y[i] = x[place_t(8) * i] + x[place_t(8) * i + 7];
        }""",
        {"x": "n 8 input", "y": "n output"},
    ),
    "a limit minus a product": (
        """__global__ void steps(const float* x, float* y, int n, int h, int w) {
            for (int i = AT; i < n - h * w; i += blockDim.x * gridDim.x) y[i] = x[i + h * w] - x[i];
        }""",
        {"x": "n input", "y": "n - h * w output"},
    ),
}


@pytest.mark.parametrize("what", READ)
def test_rows_are_as_long_and_as_many_as_their_indices_say(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, of = READ[what]
    data, said = init(capsys, re.sub(r"\bAT\b", AT, text))
    assert shapes(data) == of and "a guess" not in said.err


def test_a_window_of_a_passed_length_leaves_out_the_last_elements(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"""__global__ void means(const float* x, float* y, int n, int win) {{
        const int i = {AT};
        if (i + win > n) return;
        float sum = 0;
        for (int j = i; j < i + win; ++j) sum += x[j];
        y[i] = sum / win;
    }}"""
    assert shapes(init(capsys, text)[0]) == {"x": "n input", "y": "n inout zeros"}


def test_elements_that_are_written_before_a_variable_is_0_have_threads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = f"""__global__ void later(const float* x, float* y, int n) {{
        const int i = {AT} - 1;
        const float kept = i >= 0 && i < n ? x[i] : 0;
        if (i < n) y[i + 1] = kept;
    }}"""
    data, _ = init(capsys, text)
    assert shapes(data) == {"x": "n input", "y": "n + 1 output"}
    assert launch(data)["grid"] == ["ceil_div(n + 1, block_size)"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (  # the condition is on threads alone
            f"""__global__ void shifted(const float* x, float* y, int n, int r) {{
                extern __shared__ float tile[];
                const int i = {AT}, right = i + blockDim.x;
                if (threadIdx.x < r) tile[threadIdx.x] = right < n ? x[right] : 0;
                __syncthreads();
                y[i] = tile[threadIdx.x];
            }}""",
            "y",
        ),
        (  # the rows of a block begin behind those of others
            """__global__ void repeated(const float* x, float* y, int many, int w) {
                for (int i = threadIdx.x; i < w; i += blockDim.x)
                    for (int j = blockIdx.x * many; j < blockIdx.x * many + many; ++j) y[j * w + i] = x[i];
            }""",
            "y",
        ),
        (  # a loop to a number goes beyond the rows of a thread
            """__global__ void blurred(const float* x, float* y, int w) {
                const int i = blockIdx.x * blockDim.x + threadIdx.x, j = (blockIdx.y * 4 + threadIdx.y) * rows;
                if (i < w) for (int a = 0; a < rows; ++a) {
                    float sum = 0;
                    for (int k = 0; k < 5; ++k) sum += x[(j + a + k) * w + i];
                    if (j + a < w) y[(j + a) * w + i] = sum;
                }
            }""",
            "x",
        ),
    ],
)
def test_an_open_number_of_rows_is_marked(text: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, said = init(capsys, text)
    lines = Path("kernel.toml").read_text().splitlines()
    assert any(line.startswith(f"{name} = ") and "# TODO: the shape" in line for line in lines)
    assert "a guess: the shape" in said.err


def test_blocks_of_a_launch_without_a_number_of_threads_stay(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(
        capsys,
        """__global__ void biased(half2* x, const half2* bias, int width, int height) {
            int i = threadIdx.x * 2, first = blockIdx.y * width * height + blockIdx.x * width;
            for (; i < width; i += blockDim.x * 2) x[(first + i) >> 1] = __hadd2(x[(first + i) >> 1], bias[i >> 1]);
        }
        void run(half2* x, half2* b, int width, int height, int many) {
            int threads;
            if (width > 512) threads = 256; else threads = 128;
            dim3 block(threads, 1), grid(height, many);
            biased<<<grid, block>>>(x, b, width, height);
        }""",
    )
    assert launch(data)["grid"][0] == "height"


def test_numbers_are_divided_as_c_divides_them(capsys: pytest.CaptureFixture[str]) -> None:
    data, said = init(
        capsys,
        f"""__global__ void scaled(float* x, float a, float b, float c, float d, int half, int n) {{
            const int i = {AT};
            if (i < n) x[i] = half > 1 ? x[i] * a : b + c + d;
        }}
        int main() {{
            int n = 1000;
            const double length = 1.0, width = 4;
            scaled<<<4, 256>>>(x, length / (n + 24), 1.0f / 3.f / 2.f, width / n, -1e30f, 5 / 2, n);
        }}""",
    )
    values = {name: one["value"] for name, one in data["scalars"].items()}
    assert type(values["d"]) is float and values["d"] == -1e30  # no integer of 31 digits
    assert values["a"] == 1 / 1024 and values["b"] == pytest.approx(1 / 6)
    assert values["c"] == 0.5 and "0.5 stands for what the source does not say: c." in said.err  # a cast?


def test_an_exponent_of_the_launch_is_small(capsys: pytest.CaptureFixture[str]) -> None:
    data, _ = init(
        capsys,
        """__global__ void halves(const float* x, float* y, int log2n) {
            extern __shared__ float kept[];
            const int n = 1 << log2n, first = blockIdx.x << log2n;
            for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = x[first + i];
            __syncthreads();
            for (int i = threadIdx.x; i < n; i += blockDim.x) y[first + i] = kept[i] / 2;
        }
        void run(float* x, float* y, int m, int log2n) {
            halves<<<m, (1 << log2n) / 4, (1 << log2n) * sizeof(float)>>>(x, y, log2n);
        }""",
    )
    assert data["problem"]["sizes"]["log2n"] == 10


@pytest.mark.parametrize(
    ("write", "asked"),
    [("y[at[i]] = x[i]", True), ("atomicAdd(&y[at[i]], x[i])", False), ("y[i] = x[at[i]]", False)],
)
def test_places_that_are_written_are_marked_as_they_may_be_the_same(
    write: str, asked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"""__global__ void moved(const float* x, const int* at, float* y, int n) {{
        const int i = {AT};
        if (i < n) {write};
    }}"""
    _, said = init(capsys, text)
    assert ("a guess: elements are written there: is its init right?" in said.err) == asked


def test_rows_by_a_number_that_is_no_size_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    _, said = init(
        capsys,
        f"""__global__ void planes(const float* x, float* y, int n, int h, int w, int offset_planes) {{
            const int i = {AT};
            if (i >= n) return;
            const int a = i % w, b = i / w % h, c = i / w / h % offset_planes, d = i / w / h / offset_planes;
            y[i] = c < 1 ? x[(d * h + b) * w + a] : 0;
        }}""",
    )
    assert "a guess: the shape" in said.err
