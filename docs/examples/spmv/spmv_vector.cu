// y = A x for a sparse matrix in CSR, several threads per row: what they load of a row lies side by side.
extern "C" __global__ void spmv_vector(const int* first, const int* column, const float* value, const float* x, float* y,
                                       int rows) {
    const int row = blockIdx.x * (block_size / lanes) + threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const int end = row < rows ? first[row + 1] : 0;
    float sum = 0.0f;
#pragma unroll unroll
    for (int i = row < rows ? first[row] + lane : 0; i < end; i += lanes) {
        sum += value[i] * x[column[i]];
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(~0u, sum, distance);
    }
    if (row < rows && lane == 0) {
        y[row] = sum;
    }
}
