// tune: f<<<ceil_div(n, 256), 256>>>(x, y, int64(n))
extern "C" __global__ void f(float* x, float* y, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n / 2) y[i] = x[i] * x[i] + x[i];
}
