// tune: f<<<ceil_div(n, 256), 256>>>(x, y, int64(n))
extern "C" __global__ void f(float* x, float* y, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n && isnan(y[i])) {
        float v = x[i];
        for (int k = 0; k < 4000; ++k) v = fmaf(v, 0.0f, x[i]);
        y[i] = v * v + v;
    }
}
