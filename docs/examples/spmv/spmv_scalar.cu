// y = A x for a sparse matrix in CSR, one thread per row.
extern "C" __global__ void spmv_scalar(const int* first, const int* column, const float* value, const float* x, float* y,
                                       int rows) {
    const int row = blockIdx.x * block_size + threadIdx.x;
    if (row >= rows) {
        return;
    }
    float sum = 0.0f;
    const int end = first[row + 1];
#pragma unroll unroll
    for (int i = first[row]; i < end; ++i) {
        sum += value[i] * x[column[i]];
    }
    y[row] = sum;
}
