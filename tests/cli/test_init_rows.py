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
        f"""__global__ void scaled(float* x, float a, float b, float c, int half, int n) {{
            const int i = {AT};
            if (i < n) x[i] = half > 1 ? x[i] * a : b + c;
        }}
        int main() {{
            int n = 1000;
            const double length = 1.0, width = 4;
            scaled<<<4, 256>>>(x, length / (n + 24), 1.0f / 3.f / 2.f, width / n, 5 / 2, n);
        }}""",
    )
    values = {name: one["value"] for name, one in data["scalars"].items()}
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
