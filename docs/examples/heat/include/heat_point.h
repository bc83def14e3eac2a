#pragma once

template <typename T>
__device__ T heat_point(const T* u, int y, int x, int height, int width) {
    const long long i = static_cast<long long>(y) * width + x;
    if (y == 0 || x == 0 || y == height - 1 || x == width - 1) {
        return u[i];
    }
    return u[i] + T(0.125) * (u[i - width] + u[i + width] + u[i - 1] + u[i + 1] - T(4) * u[i]);
}
