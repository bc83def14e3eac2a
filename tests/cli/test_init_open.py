"""What ``tune init`` takes from a launch, and what it marks because neither that nor the code decides it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.init_sources import init, launch, shapes

pytestmark = pytest.mark.usefixtures("in_empty_folder")

BOUND = "const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
LAUNCHED: dict[str, tuple[Any, ...]] = {
    "numbers of a template": (
        """template <int ROWS, int STEP = 8, bool FAST = false> __global__ void k(float* y, int n) {
            const int i = blockIdx.x * ROWS * STEP + threadIdx.x; if (i < n) y[i] = FAST ? 1 : 2; }
        void run(float* y, int n) { const int ROWS = 16; k<ROWS><<<n / 128, ROWS * 8>>>(y, n); }""",
        ["ROWS = { values = [4, 8, 16, 32, 64], default = 16", "STEP = { values = [1, 2, 4, 8], default = 8"],
        ["FAST = { values = [0, 1], default = 0 }", 'block = ["ROWS * 8"]'],
    ),
    "what a template has by itself, behind what is chosen": (
        f"""template <typename T> struct Twice {{ __device__ T operator()(T v) const {{ return 2 * v; }} }};
        template <typename T, class Op = Twice<T>, typename = void>
        __global__ void k(T* y, [[maybe_unused]] int n) {{ {BOUND} y[i] = Op()(y[i]); }}""",
        ['entry = "k<input_type>"', 'arguments = ["y", "n"]'],
    ),
    "arrays of rows": (
        """#define N 1024
        #define M 64
        __global__ void k(float (*x)[N], const double y[M][N], float z[][M][N], int rows) {
            int r = blockIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x;
            if (r < rows && c < N) x[r][c] = 2 * y[r % M][c] + z[r][3][c]; }""",
        ['x = { shape = ["rows", "N"]', 'y = { shape = ["M", "N"]', 'z = { shape = ["rows", "M * N"]'],
    ),
    "a number of the code": (
        f"""#define COUNT 64
        __global__ void k(float* y, int n) {{ {BOUND} y[i] = COUNT * threadIdx.x; }}
        void run(float* y, int n) {{ k<<<(n + COUNT - 1) / COUNT, COUNT>>>(y, n); }}""",
        ['block = ["64"]', 'grid = ["ceil_div(n, 64)"]'],
    ),
    "threads of a block of CUB": (
        f"""__global__ void k(const float* x, float* y, int n) {{ {BOUND}
            using Sum = cub::BlockReduce<float, 128>; atomicAdd(y, Sum().Sum(x[i])); }}""",
        ['block = ["128"]', 'grid = ["ceil_div(n, 128)"]'],
    ),
    "a size that only the grid has": (
        """__global__ void k(const float* x, float* y, int columns, int pictures) {
            float sum = 0; for (int j = 0; j < columns; ++j) sum += x[blockIdx.x * columns + j];
            if (threadIdx.x == 0) y[blockIdx.x] = sum; }
        void run(float* x, float* y, int c, int pictures) { k<<<pictures, 64>>>(x, y, c, pictures); }""",
        ['x = { shape = ["pictures", "columns"]', 'y = { shape = ["pictures"]', 'grid = ["pictures"]'],
    ),
    "an enumeration": (
        f"""typedef enum {{ PLAIN, TWICE }} kind_t;
        __global__ void k(float* y, int n, kind_t kind) {{ {BOUND} y[i] = kind == TWICE ? 2 : 1; }}""",
        ['kind = { dtype = "int32", value = "1" }  # TODO: the value that you use'],
    ),
    "a macro that elements are compared with": (
        """#ifndef SIDE
        #define SIDE 512
        #endif
        __global__ void k(float* y) { const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < SIDE) y[i] = 1; }""",
        ["sizes.SIDE = 512  # TODO: a size that is a macro", 'y = { shape = ["SIDE"]'],
    ),
    "fewer elements than the code seems to have": (
        f"""__device__ float f(const float* w);
        __global__ void k(const float* w, float* y, int n) {{ {BOUND} y[i] = f(w); }}
        void run(float* y, int n) {{ float* w; cudaMalloc(&w, 9 * sizeof(float)); k<<<n / 64, 64>>>(w, y, n); }}""",
        ['w = { shape = ["9"], dtype = "float32" }  # TODO: the shape: the source allocates 9 elements'],
    ),
}
LAUNCHED |= {
    "a macro that only the program has": (
        """#define ROUNDS 2000
        __global__ void k(float* y, int n) { const int i = blockIdx.x * blockDim.x + threadIdx.x;
            for (int j = 0; j < 5; ++j) y[i + j * n] = j; }
        void run(float* y, int n) { for (int r = 0; r < ROUNDS; ++r) k<<<n / 64, 64>>>(y, n); }""",
        ['y = { shape = ["5", "n"], dtype = "float32", role = "output" }\n'],
    ),
    "blocks that read like a function, and threads that are set later": (
        """__global__ void k(float* y, int rows, int heads) {
            y[blockIdx.x / heads * heads + threadIdx.x + 4 * threadIdx.y] = 1; }
        void run(float* y, int rows, int heads) { dim3 grid(rows * heads); dim3 block; block = dim3(4, 8);
            k<<<grid, block>>>(y, rows, heads); }""",
        ['grid = ["rows * heads"]', 'block = ["4", "8"]'],
    ),
    "threads that the code asks for, and an array that a macro of another file writes": (
        f"""__global__ void k(const float* x, float* y, int n) {{ assert(blockDim.x == 32); {BOUND}
            STORE(y[i]) = x[i]; }}""",
        ['block = ["32"]', 'y = { shape = ["n"], dtype = "float32", role = "output" }'],
    ),
    "threads that only a function asks for": (
        """__device__ void one(float* y, int n) { y[threadIdx.x] = n; }
        __global__ void k(float* y, int n) { one(y, n); }
        void run(float* y, int n) { k<<<1, 64>>>(y, n); }""",
        ['block = ["64"]'],
    ),
    "an old product, and neighbours among vectors": (
        """__global__ void k(const float4* x, const int* at, float* y, int n) {
            const int i = __mul24(blockIdx.x, blockDim.x) + threadIdx.x; if (i < n) y[i] = x[at[i]].x + x[i].y; }""",
        ['y = { shape = ["n"]', 'at = { shape = ["n"], dtype = "int32", init = { uniform = [0, "n - 1"] } }'],
    ),
    "a type of the C library": (
        f"__global__ void k(ulong* y, int n) {{ {BOUND} y[i] = i; }}",
        ['y = { shape = ["n"], dtype = "uint64", role = "output" }'],
    ),
    "what stays above minus one": (
        """__global__ void k(float* y, int w, int h) { const int i = blockIdx.x * blockDim.x + threadIdx.x;
            const int r = blockIdx.y * blockDim.y + threadIdx.y - 1;
            if (r > -1 && r < h && i < w) y[r * w + i] = 1; }""",
        ['y = { shape = ["h", "w"]', 'grid = ["ceil_div(w, block_x)", "ceil_div(h + 1, block_y)"]'],
    ),
    "rows of a block and columns of its threads": (
        """__global__ void k(const float* x, float* y, int N, int C, int H) { const int c = blockIdx.x; float sum = 0;
            for (int n = threadIdx.x; n < N; n += blockDim.x) for (int h = 0; h < H; ++h) {
                const int i = (n * C + c) * H + h; sum += x[i]; }
            atomicAdd(&y[c], sum); }""",
        ['x = { shape = ["N", "C", "H"]', 'y = { shape = ["C"]', 'grid = ["C"]'],
    ),
    "two indices that one statement sets again": (
        """__global__ void k(const float* x, float* y, int w, int h) { __shared__ float s[16][17];
            int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
            if (i < w && j < h) s[threadIdx.y][threadIdx.x] = x[j * w + i]; __syncthreads();
            i = blockIdx.y * 16 + threadIdx.x, j = blockIdx.x * 16 + threadIdx.y;
            if (i < h && j < w) y[j * h + i] = s[threadIdx.x][threadIdx.y]; }""",
        ['grid = ["ceil_div(w, 16)", "ceil_div(h, 16)"]', 'block = ["16", "16"]'],
    ),
    "a scan whose loop ends by a power": (
        """__global__ void k(const float* x, float* y, int n) { __shared__ float s[256];
            const int i = blockIdx.x * 256 + threadIdx.x; s[threadIdx.x] = i < n ? x[i] : 0;
            for (int d = 0; 1 << d < 256; ++d) { __syncthreads();
                const float other = threadIdx.x >= (1 << d) ? s[threadIdx.x - (1 << d)] : 0;
                __syncthreads(); s[threadIdx.x] += other; }
            if (i < n) y[i] = s[threadIdx.x]; }""",
        ['x = { shape = ["n"]', 'grid = ["ceil_div(n, 256)"]', 'block = ["256"]'],
    ),
    "threads that the first half of a condition leaves out": (
        f"""#define COUNT 64
        __global__ void k(float* y, int n) {{ __shared__ int s[16]; {BOUND}
            if (threadIdx.x < 16 && s[threadIdx.x] == COUNT) y[i] = 1; }}
        void run(float* y, int n) {{ k<<<n / COUNT, COUNT>>>(y, n); }}""",
        ['block = ["64"]'],
    ),
}
LAUNCHED |= {
    "warps of a row, also by shifts": (
        """__global__ void k(const float* x, float* y, int rows, int columns) {
            const int tid = threadIdx.x, row = blockIdx.x * WARPS + (tid >> 5); if (row >= rows) return;
            for (int c = tid & 31; c < columns; c += 32) y[row * columns + c] = x[row * columns + c]; }""",
        ['grid = ["ceil_div(rows, WARPS)"]', 'block = ["32 * WARPS"]'],
    ),
    "elements of threads that also say their warp": (
        """__global__ void k(const float* x, float* y, int n) {
            int i = blockIdx.x * BLOCK + threadIdx.x; float s = i < n ? x[i] : 0;
            if (threadIdx.x % 32 == 0) atomicAdd(y + threadIdx.x / 32, s); }""",
        ['grid = ["ceil_div(n, BLOCK)"]', 'block = ["BLOCK"]'],
    ),
    "planes that a block goes through, and rows that are clamped": (
        """#define AT(x, y, z) ((x) + nx * ((y) + ny * (z)))
        __global__ void k(const float* u, float* v, int nx, int ny, int nz) {
            int x = blockIdx.x * BX + threadIdx.x, y = blockIdx.y * BY + threadIdx.y, z0 = blockIdx.z * CHUNK;
            int end = min(z0 + CHUNK, nz), above = min(y + 1, ny - 1); if (x >= nx || y >= ny) return;
            for (int z = z0; z < end; ++z) v[AT(x, y, z)] = u[AT(x, above, z)]; }""",
        ['grid = ["ceil_div(nx, BX)", "ceil_div(ny, BY)", "ceil_div(nz, CHUNK)"]'],
        ['u = { shape = ["nz", "ny", "nx"], dtype = "float32" }\n'],
    ),
    "tiles that blocks take by a ticket": (
        """__global__ void k(const int* in, int* out, unsigned* ticket, int n) { __shared__ int tile;
            if (threadIdx.x == 0) tile = atomicAdd(ticket, 1u);
            __syncthreads(); int i = tile * THREADS + threadIdx.x; if (i < n) out[i] = in[i]; }""",
        ['grid = ["ceil_div(n, THREADS)"]', 'block = ["THREADS"]'],
    ),
    "an explicit instantiation, with a class and a name of an enumeration": (
        """struct Square { __device__ float operator()(float v) const { return v * v; } };
        template <class Op, int BLOCK, cub::BlockLoadAlgorithm LOAD>
        __global__ void k(const float* x, float* y, int n) {
            int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) y[i] = Op()(x[i]); }
        template __global__ void k<Square, 64, cub::BLOCK_LOAD_DIRECT>(const float*, float*, int);""",
        ['entry = "k<Square, {{ BLOCK }}, cub::BLOCK_LOAD_DIRECT>"', "default = 64"],
    ),
    "a size and threads that are expressions": (
        """#ifndef N
        #define N (1 << 20)
        #endif
        constexpr int THREADS = (BM / TM) * 8;
        __global__ void __launch_bounds__(THREADS) k(const float* x, float* y) {
            for (int i = threadIdx.x; i < BM * 8; i += THREADS) {
                int at = blockIdx.x * BM * 8 + i; if (at < N) y[at] = x[at]; } }""",
        ["N = 1048576", 'grid = ["ceil_div(N, 8 * BM)"]', 'block = ["BM // TM * 8"]'],
    ),
    "shared memory of types of two bytes": (
        """__global__ void k(half* y, int n) { extern __shared__ half s[];
            int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) y[i] = s[threadIdx.x]; }
        void run(half* y, int n) {
            k<<<(n + BLOCK - 1) / BLOCK, BLOCK, 2 * BLOCK * sizeof(half) + sizeof(float4)>>>(y, n); }""",
        ['shared_bytes = "2 * BLOCK * 2 + 16"'],
    ),
    "groups of a row that share a number, and taps of a filter": (
        """#define K 3
        constexpr int operator""_kib(unsigned long long v) { return v * 1024; }
        __global__ void k(const float* w, const float* s, float* y, int rows, int columns) {
            int c = blockIdx.x * BLOCK + threadIdx.x; if (c >= columns) return;
            for (int r = 0; r < rows; ++r) for (int i = 0; i < K; ++i) for (int j = 0; j < K; ++j)
                y[r * columns + c] = w[(i * K + j) * columns + c] * s[r * (columns / GROUP) + c / GROUP] + 1_kib; }""",
        ['w = { shape = ["3", "3", "columns"]', 's = { shape = ["rows", "columns // GROUP"]'],
        ["GROUP = 64  # TODO", '"columns % GROUP == 0"', ".parameters]\nBLOCK = {"],
    ),
    "a block by its exponent, and a window": (
        """#define BLOCK (1 << LOG2_BLOCK)
        __global__ void k(const float* x, float* y, int n, int kernel_size) { float s = 0;
            int i = blockIdx.x * BLOCK + threadIdx.x; if (i >= n) return;
            for (int j = 0; j < kernel_size; ++j) s += i + j < n ? x[i + j] : 0; y[i] = s; }""",
        [
            "LOG2_BLOCK = { values = [5, 6, 7, 8, 9, 10], default = 8",
            'block = ["2 ** LOG2_BLOCK"]',
            "kernel_size = 2",
        ],
    ),
    "bins beside elements, and settings behind a pointer": (
        """struct Scale { float by, add; };
        __global__ void k(const unsigned char* x, const Scale* scale, unsigned* bins, int n) {
            __shared__ unsigned own[256]; int i = blockIdx.x * BLOCK + threadIdx.x;
            if (i < n) atomicAdd(&bins[x[i]], (unsigned)(scale->by + scale->add)); }""",
        ['n = "2**24"', 'scale = { shape = ["1", "2"]'],
    ),
}
OPEN = {
    "a pointer that is set again": (
        """__device__ const float* at(const float* p, int by) { return p + by; }
        __global__ void k(const float* x, float* y, int n) { x = at(x, blockIdx.y * n);
            int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) y[i] = x[i]; }""",
        ["# TODO: the shape: its pointer is set again"],
    ),
    "warps in rows and columns, and a radius": (
        """__global__ void k(const float* x, float* y, int m, int n) { const int warp = threadIdx.x / 32;
            const int r = blockIdx.y * WM + warp / WN, c = blockIdx.x * WN + warp % WN; float s[RADIUS];
            for (int i = 0; i < RADIUS; ++i) s[i] = i; if (r < m && c < n) y[r * n + c] = x[r * n + c] * s[0]; }""",
        ["# TODO: threads of a block", "RADIUS = { values = [1, 2, 4, 8], default = 1 }  # TODO: a choice"],
    ),
    "exponents, and blocks that nothing says": (
        """__global__ void k(float* y, int log2n) { y[(blockIdx.x << log2n) + threadIdx.x] = 1; }
        void run(float* y, int m, int log2n) { int n = 1 << log2n; k<<<m, n / 4>>>(y, log2n); }""",
        ['block = ["2 ** log2n // 4"]', "# TODO: blocks"],
    ),
    "the remainder within a quotient": (
        """__global__ void k(const float* w, float4* y, int T, int C) { const int i = blockIdx.y;
            y[threadIdx.x] = reinterpret_cast<const float4*>(w)[(4 * threadIdx.x + T * (i % C)) / 4]; }""",
        ["w = {", "# TODO: the shape"],
    ),
    "a power within a remainder": (
        """__global__ void k(float* y, int n, int m, int shift) {
            for (int j = threadIdx.x; j < n; j += blockDim.x) y[(j >> shift) % m] = 1; }""",
        ['y = { shape = ["m"]'],
    ),
    "tiles of two axes in one index": (
        """__global__ void k(float* y, int columns, int rows) { const int bx = blockIdx.x, by = blockIdx.y;
            const int i = columns * 16 * by + 16 * bx + columns * threadIdx.y + threadIdx.x; y[i] = 1; }""",
        ["# TODO: the shape", 'grid = ["ceil_div(columns, 16)"]  # TODO: blocks'],
    ),
    "which of several sizes rows have": (
        """__global__ void k(float* y, int n, int rows, int columns) {
            for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n - 2 * columns; i += blockDim.x * gridDim.x)
                y[i % (rows - 2) + i / (rows - 2) * rows] = 1; }""",
        ["y = {", "# TODO: the shape"],
    ),
    "a block's step that is a difference": (
        """__global__ void k(float* y, int n, int halo) {
            const int i = (256 - 2 * halo) * blockIdx.x + threadIdx.x; if (i < n) y[i] = 1; }""",
        ['grid = ["1"]  # TODO: blocks'],
    ),
    "indices that are a part of one": (
        f"""__global__ void k(const float* x, const int* at, float* y, int n, int m) {{ {BOUND}
            const int column = i / m; y[i] = x[i] + x[at[i] + m * column]; }}""",
        ["at = {", "# TODO: a part of an index: is its init right?"],
    ),
    "rows of a parameter": (
        """template <int N> __global__ void k(float* y, int rows) {
            for (int r = blockIdx.x; r < rows; r += gridDim.x) y[r * N + threadIdx.x] = 1; }""",
        ["sizes.N = 64  # TODO: a size of the template", 'y = { shape = ["rows", "N"]', "k<{{ problem.N }}>"],
    ),
    "rows of threads": (
        """__global__ void k(float* y, int n) { const int i = __umul24(blockIdx.x, blockDim.x) + threadIdx.x;
            if (i < n) y[__umul24(threadIdx.y, n) + i] = 1; }
        void run(float* y, int n) { dim3 threads(128, 3); k<<<(n + 127) / 128, threads>>>(y, n); }""",
        ["y = {", "# TODO: the shape"],
    ),
    "a number of a template's type": (
        f"""template <typename T> __global__ void k(float* y, int n, T factor) {{ {BOUND} y[i] *= factor; }}""",
        ["# TODO: 0.5 stands for what the source does not say: factor."],
    ),
    "threads that nothing says": (
        """__global__ void k(float* y) { y[blockIdx.x * blockDim.y + threadIdx.x] = 1; }""",
        ["# TODO: threads of a block"],
    ),
    "a number that a loop sets, and one that is rounded": (
        """__global__ void k(float* y, int n) { y[blockIdx.x * blockDim.x + threadIdx.x] = n; }
        void run(float* y, int n) { unsigned levels = 0; levels = n; int half = (1 << levels) / 2;
            k<<<(int)(n / 64.0 + 0.5), half>>>(y, n); }""",
        ['block = ["block_size"]'],
    ),
    "a pitch in bytes": (
        """__global__ void k(float* y, int rows, int columns, size_t pitch) {
            const int i = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y; if (i >= columns || r >= rows) return;
            float* row = (float*)((char*)y + r * pitch) + i; *row = 1; }""",
        ["pitch = {", "# TODO: the value that you use"],
    ),
    "types that the code tells apart": (
        f"""template <typename T> __global__ void k(T* y, int n) {{ {BOUND}
            if constexpr (std::is_same_v<T, unsigned>) y[i] = 1; else y[i] = 2; }}""",
        ['dtypes.input = ["int32"]  # TODO: the type that you use'],
    ),
    "a limit below zero, which is no size": (
        """__global__ void k(float* y, const float* x, int rows, int cols, int most) {
            const int i = blockIdx.x * cols + threadIdx.x; float value = threadIdx.x < cols ? x[i] : 0;
            if (value < -most) value = -most; if (threadIdx.x < cols) y[i] = value; }""",
        ['most = { dtype = "int32", value = "1" }  # TODO: the value that you use'],
    ),
    "numbers that nothing says": (
        f"__global__ void k(float* y, int n, float rate, float eps) {{ {BOUND} y[i] *= rate + eps; }}",
        ["# TODO: 0.5 stands for what the source does not say: rate, eps."],
    ),
    "blocks of which only a function asks": (
        """__device__ void f(float* y) { y[blockIdx.x * 64 + threadIdx.x] = 1; }
        __global__ void k(float* y) { __shared__ float s[64]; s[threadIdx.x] = 1; f(y); }
        void run(float* y, int m) { k<<<m, 64>>>(y); }""",
        ['grid = ["1"]  # TODO: blocks'],
    ),
    "an array without an index that shows": (
        f"""__global__ void k(const int* list, const float* x, float* y, int n) {{ {BOUND} y[i] = x[i]; }}""",
        [
            'list = { shape = ["n"], dtype = "int32" }  # TODO: the shape\n',
            'x = { shape = ["n"], dtype = "float32" }\n',
        ],
    ),
    "rows of a block that nothing bounds": (
        f"""__global__ void k(const float* x, float* y, int n) {{ {BOUND}
            for (int k = 0; k < 16; ++k) y[(blockIdx.y * 16 + k) * n + i] = x[(blockIdx.y * 16 + k) * n + i]; }}""",
        ['grid = ["ceil_div(n, block_size)"]  # TODO: blocks'],
    ),
    "what an index has of its own block is no size, and no number of threads beyond 1024": (
        """__global__ void k(float* x) { const int first = blockIdx.x * 4096 + threadIdx.x;
            for (int k = 0; k < 16; ++k) x[first + 256 * k] *= 2; }""",
        ['grid = ["ceil_div(n, 4096)"]\n', 'block = ["block_size"]  # TODO: threads of a block'],
    ),
}


@pytest.mark.parametrize("what", [*LAUNCHED, *OPEN])
def test_what_a_launch_says_is_taken_and_what_is_open_is_marked(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, *expected = {**LAUNCHED, **OPEN}[what]
    init(capsys, text)
    written = Path("kernel.toml").read_text()
    assert [one for of in expected for one in of if one not in written] == [], written


@pytest.mark.parametrize(
    "body",
    [
        "for (int c = 0; c < 3; ++c) y[c * width * height + i] = 2 * x[c * width * height + i];",
        "int plane = width * height; y[i] = x[i + plane]; y[plane + i] = x[2 * plane + i]; y[i + 2 * plane] = x[i];",
    ],
)
def test_planes_by_a_loop_or_by_numbers_are_a_dimension(
    body: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, said = init(
        capsys,
        "__global__ void turn(const float* x, float* y, int width, int height) {\n"
        "    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;\n"
        f"    if (column >= width || row >= height) return;\n    int i = row * width + column;\n    {body}\n}}",
    )
    assert shapes(data) == {"x": "3 height width input", "y": "3 height width output"}
    assert "a guess" not in said.err


@pytest.mark.parametrize(("dims", "cluster"), [("__cluster_dims__(2, 1, 1) ", None), ("", ["2"])])
def test_clusters_need_a_gpu_that_has_them(
    capsys: pytest.CaptureFixture[str], dims: str, cluster: list[str] | None
) -> None:
    data, _ = init(
        capsys,
        "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"
        f"__global__ void {dims}k(const float* x, float* y, int n) {{\n    cg::grid_group all = cg::this_grid();\n"
        "    auto cluster = cg::this_cluster();\n    cluster.sync();\n"
        "    for (int i = all.thread_rank(); i < n; i += blockDim.x * gridDim.x) y[i] = 2 * x[i];\n}",
    )
    assert data["variants"]["main"]["requires"] == "cc >= 90"
    assert launch(data).get("cluster") == cluster and "cooperative" not in launch(data)
