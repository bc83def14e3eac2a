// y = x / sqrt(mean(x * x) + 1e-6) for each row, one warp per row, several elements per load.
struct alignas(4 * vector_width) Vector {
    float at[vector_width];
};

extern "C" __global__ void rms_norm_vectors(const Vector* x, Vector* y, int rows, int columns) {
    const int row = blockIdx.x * warps + threadIdx.x / 32, vectors = columns / vector_width;
    if (row >= rows) {
        return;
    }
    x += static_cast<long long>(row) * vectors;
    y += static_cast<long long>(row) * vectors;
    float sum = 0.0f;
#pragma unroll unroll
    for (int i = threadIdx.x % 32; i < vectors; i += 32) {
        const Vector vector = x[i];
        for (float value : vector.at) {
            sum += value * value;
        }
    }
    for (int lane = 16; lane > 0; lane /= 2) {
        sum += __shfl_xor_sync(~0u, sum, lane);
    }
    const float scale = rsqrtf(sum / columns + 1e-6f);
#pragma unroll unroll
    for (int i = threadIdx.x % 32; i < vectors; i += 32) {
        Vector vector = x[i];
        for (float& value : vector.at) {
            value *= scale;
        }
        y[i] = vector;
    }
}
