// tune: f<<<1024, 256>>>(x, y, int64(n))
extern "C" __global__ void f(float* x, float* y, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    for (long long k = i; k < n; k += (long long)gridDim.x * blockDim.x) y[k] = x[k] * x[k] + x[k];
}
