// The same in double, and the sum of the terms' sizes, to which rounding errors are proportional.
extern "C" __global__ void convolution_reference(const float* x, const float* filter, double* y, float* magnitude, int height, int width) {
    const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row >= height || column >= width) {
        return;
    }
    double sum = 0.0, size = 0.0;
    for (int i = 0; i <= 2 * radius; ++i) {
        for (int j = 0; j <= 2 * radius; ++j) {
            const double term = static_cast<double>(filter[i * (2 * radius + 1) + j]) * x[static_cast<long long>(row + i) * (width + 2 * radius) + column + j];
            sum += term;
            size += fabs(term);
        }
    }
    y[static_cast<long long>(row) * width + column] = sum;
    magnitude[static_cast<long long>(row) * width + column] = static_cast<float>(size);
}
