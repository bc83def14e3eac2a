"""``tune init``: tiles of a size, and blocks of tiles."""

from __future__ import annotations

import pytest

from tests.cli.init_sources import init, launch

pytestmark = pytest.mark.usefixtures("in_empty_folder")


@pytest.mark.parametrize("count", ["K / TILE", "(K + TILE - 1) / TILE"])
@pytest.mark.parametrize("tile", ["#define TILE 16", "#ifndef TILE\n#define TILE 16\n#endif"])
def test_loops_over_tiles_are_along_the_size_that_is_divided(
    capsys: pytest.CaptureFixture[str], tile: str, count: str
) -> None:
    data, said = init(
        capsys,
        f"""\
{tile}
__global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {{
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0;
    for (int t = 0; t < {count}; ++t) {{
        a[y][x] = A[row * K + t * TILE + x];
        b[y][x] = B[(t * TILE + y) * N + column];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += a[y][k] * b[k][x];
        __syncthreads();
    }}
    C[row * N + column] = sum;
}}
""",
    )
    assert [one["shape"] for one in data["tensors"].values()] == [["M", "K"], ["K", "N"], ["M", "N"]]
    of_tile = "TILE" if "ifndef" in tile else "16"
    assert launch(data)["grid"] == [f"ceil_div(N, {of_tile})", f"ceil_div(M, {of_tile})"]
    assert (f"K % {of_tile} == 0" in data["variants"]["main"]["constraints"].values()) == (
        count == "K / TILE"
    )
    assert "the shape" not in said.err


TILED = """\
#include <cassert>
template <const int BM, const int BN, const int BK>
__global__ void product(int M, int N, int K, const float* A, const float* B, float* C) {
    __shared__ float a[BM * BK], b[BK * BN];
    const unsigned int down = blockIdx.y, along = blockIdx.x;
    ASSERTS
    A += down * BM * K;
    B += along * BN;
    C += down * BM * N + along * BN;
    const int row = threadIdx.x / BN, column = threadIdx.x % BN;
    float sum = 0;
    for (int k = 0; k < K; k += BK) {
        a[threadIdx.x] = A[threadIdx.x / BK * K + threadIdx.x % BK];
        b[row * BN + column] = B[row * N + column];
        __syncthreads();
        A += BK;
        B += BK * N;
        for (int i = 0; i < BK; ++i) sum += a[row * BK + i] * b[i * BN + column];
        __syncthreads();
    }
    C[row * N + column] = sum;
}
"""


@pytest.mark.parametrize(
    "asserted", ["assert(BM * BK == blockDim.x);\n    assert(BN * BK == blockDim.x);", ""]
)
def test_blocks_of_tiles_whose_pointers_a_loop_moves_are_read(
    capsys: pytest.CaptureFixture[str], asserted: str
) -> None:
    data, said = init(capsys, TILED.replace("ASSERTS", asserted))
    assert [one["shape"] for one in data["tensors"].values()] == [["M", "K"], ["K", "N"], ["M", "N"]]
    assert launch(data)["grid"] == ["ceil_div(N, BN)", "ceil_div(M, BM)"]
    constraints = {*data["variants"]["main"]["constraints"].values()}
    assert {"M % BM == 0", "N % BN == 0", "K % BK == 0"} <= constraints
    assert launch(data)["block"] in (["BM * BK"], ["BK * BM"])
    assert ("BN * BK == BM * BK" in constraints) == bool(asserted)
    assert "the shape" not in said.err and "a guess: blocks" not in said.err


VECTORS = """\
template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM * BN) / (TM * TN)) rows(int M, int K, const float* A, float* C) {
    const int row = threadIdx.x / (BK / 4), column = threadIdx.x % (BK / 4);
    A += blockIdx.x * BM * K;
    C += blockIdx.x * BM;
    float sum = 0;
    for (int k = 0; k < K; k += BK) {
        const float4 four = reinterpret_cast<const float4*>(&A[row * K + column * 4])[0];
        sum += four.x + four.y + four.z + four.w;
        A += BK;
    }
    atomicAdd(C + row, sum);
}
"""


def test_vectors_within_a_tile_are_along_its_size_and_defaults_are_within_a_blocks_threads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, said = init(capsys, VECTORS)
    assert data["tensors"]["A"]["shape"] == ["M", "K"] and "the shape" not in said.err
    main = data["variants"]["main"]
    assert launch(data)["grid"] == ["ceil_div(M, BM)"]
    assert launch(data)["block"] == ["BM * BN // (TM * TN)"]
    chosen = {name: one["default"] for name, one in main["parameters"].items()}
    assert chosen["BM"] * chosen["BN"] // (chosen["TM"] * chosen["TN"]) <= 1024


@pytest.mark.parametrize(
    ("tile", "index", "block"),
    [
        ("", "blockIdx.x * 1024 + threadIdx.x * 4", "256"),
        ("", "blockIdx.x * 256 + threadIdx.x", "256"),
        ("#ifndef TILE\n#define TILE 1024\n#endif\n", "blockIdx.x * TILE + threadIdx.x * 4", "TILE // 4"),
        ("#ifndef TILE\n#define TILE 512\n#endif\n", "blockIdx.x * TILE * 2 + threadIdx.x * 4", "TILE // 2"),
        ("#ifndef TILE\n#define TILE 256\n#endif\n", "4 * (blockIdx.x * TILE + threadIdx.x)", "TILE"),
    ],
)
def test_threads_that_take_several_elements_are_fewer(
    tile: str, index: str, block: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, said = init(
        capsys,
        f"""{tile}__global__ void doubled(const float* x, float* y, int n) {{
            const int i = {index};
            if (i + 3 < n) for (int k = 0; k < 4; ++k) y[i + k] = 2 * x[i + k];
        }}""",
    )
    assert launch(data)["block"] == [block] and "a guess" not in said.err
