// y = x / sqrt(mean(x * x) + 1e-6) for each row, one warp per row.
extern "C" __global__ void rms_norm(const float* x, float* y, int rows, int columns) {
    const int row = blockIdx.x * warps + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    x += static_cast<long long>(row) * columns;
    y += static_cast<long long>(row) * columns;
    float sum = 0.0f;
#pragma unroll unroll
    for (int i = threadIdx.x % 32; i < columns; i += 32) {
        sum += x[i] * x[i];
    }
    for (int lane = 16; lane > 0; lane /= 2) {
        sum += __shfl_xor_sync(~0u, sum, lane);
    }
    const float scale = rsqrtf(sum / columns + 1e-6f);
#pragma unroll unroll
    for (int i = threadIdx.x % 32; i < columns; i += 32) {
        y[i] = x[i] * scale;
    }
}
