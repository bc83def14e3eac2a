// y = x seen through a filter of 2 radius + 1 squared elements, which lies in constant memory; x has a border of radius
// elements on each side. A thread computes items_x times items_y elements, one block's width and height apart.
#ifndef radius  // built without the tuner
#define radius 3
#define block_x 16
#define block_y 16
#define items_x 1
#define items_y 1
#define staged 1
#define read_only 0
#define unroll 15
#endif
constexpr int extent = 2 * radius + 1;

__constant__ float weights[extent * extent];  // filled before the launch: constants.weights = "filter"

__device__ float element(const float* address) {
#if read_only
    return __ldg(address);
#else
    return *address;
#endif
}

extern "C" __global__ void __launch_bounds__(block_x * block_y) convolution(const float* x, float* y, int height, int width) {
    const int first_row = blockIdx.y * (block_y * items_y), first_column = blockIdx.x * (block_x * items_x);
    const int wide = width + 2 * radius, high = height + 2 * radius;
    float sums[items_y][items_x] = {};
#if staged
    __shared__ float tile[block_y * items_y + 2 * radius][block_x * items_x + 2 * radius];
    for (int i = threadIdx.y; i < block_y * items_y + 2 * radius && first_row + i < high; i += block_y) {
        const float* row = x + static_cast<long long>(first_row + i) * wide;
        for (int j = threadIdx.x; j < block_x * items_x + 2 * radius && first_column + j < wide; j += block_x) {
            tile[i][j] = element(row + first_column + j);
        }
    }
    __syncthreads();
#endif
#pragma unroll (unroll < extent ? unroll : extent)
    for (int i = 0; i < extent; ++i) {
#pragma unroll
        for (int j = 0; j < extent; ++j) {
#pragma unroll
            for (int m = 0; m < items_y; ++m) {
#pragma unroll
                for (int n = 0; n < items_x; ++n) {
                    const int row = threadIdx.y + m * block_y + i, column = threadIdx.x + n * block_x + j;
#if staged
                    const float value = tile[row][column];
#else
                    const int inside = min(first_row + row, high - 1);  // sums beyond the edge are not stored
                    const float value = element(x + static_cast<long long>(inside) * wide + min(first_column + column, wide - 1));
#endif
                    sums[m][n] += weights[i * extent + j] * value;
                }
            }
        }
    }
    for (int m = 0; m < items_y; ++m) {
        for (int n = 0; n < items_x; ++n) {
            const int row = first_row + threadIdx.y + m * block_y, column = first_column + threadIdx.x + n * block_x;
            if (row < height && column < width) {
                y[static_cast<long long>(row) * width + column] = sums[m][n];
            }
        }
    }
}
