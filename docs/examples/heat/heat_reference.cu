// One thread per point, in double precision. `magnitude` is the sum of the absolute values of all that is added up.
extern "C" __global__ void heat_reference(const input_type* u, double* v, float* magnitude, int height, int width) {
    const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }
    const long long i = static_cast<long long>(y) * width + x;
    const double centre = u[i];
    v[i] = centre;
    magnitude[i] = fabs(centre);
    if (y > 0 && x > 0 && y < height - 1 && x < width - 1) {
        const double north = u[i - width], south = u[i + width], west = u[i - 1], east = u[i + 1];
        v[i] += 0.125 * (north + south + west + east - 4.0 * centre);
        magnitude[i] += 0.125 * (fabs(north) + fabs(south) + fabs(west) + fabs(east) + 4.0 * fabs(centre));
    }
}
