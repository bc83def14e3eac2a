// tune: square<<<ceil_div(n, 256), 256>>>(x, y, int64(n))
// tune: add<<<ceil_div(n, 256), 256>>>(x, y, int64(n))
extern "C" __global__ void square(const float* x, float* y, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}

extern "C" __global__ void add(const float* x, float* y, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n) y[i] += x[i];
}
