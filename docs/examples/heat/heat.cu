// One step of the heat equation on a grid: each inner point moves towards the mean of its four neighbours.
#include "heat_point.h"

template <typename T, int ROWS>
__global__ void heat(const T* u, T* v, int height, int width) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int top = (blockIdx.y * blockDim.y + threadIdx.y) * ROWS;
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        if (x < width && top + row < height) {
            v[static_cast<long long>(top + row) * width + x] = heat_point(u, top + row, x, height, width);
        }
    }
}
