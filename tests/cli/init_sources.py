"""CUDA sources in the ways that people write kernels, and what ``tune init`` makes of one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Said, said_by

STENCIL = """\
// A five-point stencil in one dimension {
__global__ void stencil5(const float* x, float* y, int n) {
    const int first = blockIdx.x * BLOCK * TILE + threadIdx.x;
    for (int t = 0; t < TILE; ++t) {
        const int i = first + t * BLOCK;
        if (i >= 2 && i < n - 2) {
            y[i] = 0.2f * (x[i - 2] + x[i - 1] + x[i] + x[i + 1] + x[i + 2]);
        }
    }
}
"""
TILED = """
#ifndef TILE
#define TILE 16
#endif
__global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0.f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        a[ty][tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.f;
        b[ty][tx] = (col < N && k0 + ty < K) ? B[(k0 + ty) * N + col] : 0.f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += a[ty][k] * b[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}
"""
SOFTMAX = """
__global__ void softmax(const half* in, half* out, int cols) {
    const half* row = in + blockIdx.x * (long long)cols;
    half* to = &out[blockIdx.x * (size_t)cols];
    for (int j = threadIdx.x; j < cols; j += block_size) { to[j] = row[j]; }
}
"""
WARPS = """
__global__ void norm(const float *__restrict__ x, float *__restrict__ y, const int rows, const int columns)
{
    const int row = blockIdx.x * warps + threadIdx.x / 32;
    if (row >= rows) return;
    x += (size_t)row * columns;
    y += (size_t)row * columns;
    float sum = 0;
    for (int i = threadIdx.x % 32; i < columns; i += 32) sum += x[i];
    for (int i = threadIdx.x % 32; i < columns; i += 32) y[i] = sum * x[i];
}
"""
VOLUME = """
__global__ void scale(const double volatile* u, double* v, unsigned nx, unsigned ny, unsigned nz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
    if (x >= nx || y >= ny || z >= nz) return;
    size_t at = ((size_t)z * ny + y) * nx + x;
    v[at] = 2 * u[at];
}
"""
GATHER = """
__global__ void gather(const float* table, const int* at, float* y, long long n, int m) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = table[at[i]];
}
"""
TOTAL = """
__global__ void total(const float* x, float* sum, size_t n) {
    float part = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) part += x[i];
    atomicAdd(sum, part);
}
"""
VECTORS = """
struct Colour { unsigned char r, g, b; };
__global__ void paint(const float4* in, Colour* out, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) { out[i].r = in[i].x; }
}
"""
CASTS = """
__global__ void copy4(const float* from, float* to, int n) {
    const float4* in = reinterpret_cast<const float4*>(from);
    float4* out = (float4*)to;
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n / 4) out[i] = in[i];
}
"""
MASKED = """
__global__ void positive(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) y[i] = x[i];
}
"""
SPARSE = """
__global__ void sparse(const int* begins, const float* values, float* y, int rows) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / THREADS_PER_ROW;
    if (row >= rows) return;
    float sum = 0;
    for (int j = begins[row]; j < begins[row + 1]; j += THREADS_PER_ROW) sum += values[j];
    y[row] = __shfl_down_sync(~0u, sum, 1, THREADS_PER_ROW);
}
"""
SELECTED = """
__global__ void selected(const float* x, const int* mask, float* y, int n, int m) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int k = 0; k < m; ++k) {
        if (mask[k] == 0) continue;
        if (i + k >= 2 && i + k < n - 2) sum += x[i + k];
    }
    y[i] = sum;
}
"""


def init(capsys: pytest.CaptureFixture[str], text: str, *options: str) -> tuple[dict[str, Any], Said]:
    """Return what the file holds that is written for a source, and what was said."""
    Path("kernel.cu").write_text(text)
    said = said_by(capsys, "init", "kernel.cu", *options)
    assert said.code == 0, said.err
    return tomllib.loads(Path("kernel.toml").read_text()), said


def launch(data: dict[str, Any]) -> dict[str, Any]:
    return data["variants"]["main"]["launches"][0]  # type: ignore[no-any-return]


def shapes(data: dict[str, Any]) -> dict[str, str]:
    """Return shape and role of each tensor, as a short text."""
    return {
        name: " ".join([*one["shape"], one.get("role", "input"), str(one.get("init", ""))]).strip()
        for name, one in data["tensors"].items()
    }


WHOLE_BLOCKS = """
__global__ void add(const float* a, const float* b, float* c) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    c[i] = a[i] + b[i];
}
"""
NO_VARIABLE = """
__global__ void twice(const float* a, float* b) {
    b[blockIdx.x * 256 + threadIdx.x] = 2 * a[blockIdx.x * 256 + threadIdx.x];
}
"""
WHOLE_TILES = """
__global__ void flip(const float* in, float* out, int width, int height) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    out[x * height + y] = in[y * width + x];
}
"""
ROWS = """
__global__ void row_sums(const float* m, float* s) {
    int row = blockIdx.x;
    float sum = 0;
    for (int c = threadIdx.x; c < COLS; c += warp_threads) sum += m[row * COLS + c];
    if (threadIdx.x == 0) s[row] = sum;
}
"""
PARTS = """
__global__ void parts(const float* x, float* part, int n) {
    float sum = 0;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) sum += x[i];
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}
"""
PLANES = """
__global__ void lengths(const float* p, const float* table, float* y, int n, int m, int repeat) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int r = 0; r < repeat; r++)
        for (int j = 0; j < m; j++) sum += table[j] * table[i];
    y[i] = sum + p[i] * p[i] + p[n + i] * p[n + i] + p[i + 2 * n] * p[i + 2 * n];
}
"""
PAIRS = """
__global__ void widths(const float* ends, unsigned* out) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x, lower = 2 * at, upper = lower + 1;
    out[at] = ends[upper] - ends[lower];
}
"""
LOOP = """
#define GRID_LOOP(i, n) \\
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)
__global__ void other(float* a, int n) { GRID_LOOP(k, n) { a[k] = 0; } }
__global__ void half(const float* a, ulong2* b, int n, int m) {
    GRID_LOOP(i, n * m) { b[i] = make_ulong2(a[i % m], 0); }
}
"""
STRIDES = """
__global__ void mm(int M, int N, int K, const float* A, int lda, const float* B, int ldb, float* C, int pitch_of_c) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= N || y >= M) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[y * lda + k] * B[k * ldb + x];
    C[y * pitch_of_c + x] = sum;
}
"""
INDEX_MACROS = """
#define AT(i, j) (((i) + pad) * ld + ((j) + pad))
#define ld (w)
#define pad 0
#define OUT(i, j) out[AT((j), (i))]
__global__ void blurred(const float* in, float* out, int h, int w) {
    int y = blockIdx.y * SIZE_Y + threadIdx.y, x = blockIdx.x * M_TILE + threadIdx.x;
    if (x < w && y < h) OUT(x, y) = M_PI * in[AT(y, x)];
}
"""
WIDE = """
#define AS_FLOAT4(p) (reinterpret_cast<float4*>(&(p))[0])
__global__ void scaled(float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, first = 4 * i;
    if (first >= n) return;
    float4 v = AS_FLOAT4(a[first]), w = *((const float4*)b + i);
    *reinterpret_cast<float4*>(&c[first]) = make_float4(v.x * w.x, v.y, v.z, w.w);
    reinterpret_cast<float4*>(a)[i] = v;
}
"""
INDEX_FUNCTIONS = """
template <typename I> __host__ __device__ inline I place(I z, I y, I x, I h, I w) { return (z * h + y) * w + x; }
inline int blocks(int n, int per) { return (n + per - 1) / per; }
__global__ void shifted(const float* a, float* b, float* first, int d, int h, int w) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
    auto at = [&](int row) { return place(z, row, x, h, w); };
    if (x >= w || y >= h || z >= d) return;
    b[place(z, y, x, h, w)] = a[at(y)];
    if (x + y + z == 0) first[1] = a[0];
}
void run(float* a, float* b, float* c, int d, int h, int w) {
    shifted<<<dim3(blocks(w, 32), blocks(h, 4), d), dim3(32, 4)>>>(a, b, c, d, h, w);
}
"""
ONE_BLOCK = """
__global__ void total(const float* x, float* sum) {
    __shared__ float part[128];
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) for (int i = 0; i < 128; i++) sum[0] += part[i];
}
"""
KEPT = """
__global__ void sorted_rows(const float* a, float* b, int n, int width) {
    int row = blockIdx.y;
    float kept[32];
    for (int i = 0; i < width; i++) kept[i] = a[row * width + i];
    for (int i = 0; i < width; i++) b[row * width + i] = kept[width - 1 - i];
}
"""
DIVIDED = """
__global__ void losses(const float* logits, const int* targets, float* loss, int B, int T, int V) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= B * T) return;
    int b = i / T, t = i % T;
    const float* row = logits + b * T * V + t * V;
    loss[b * T + t] = -row[targets[b * T + t]];
}
"""
