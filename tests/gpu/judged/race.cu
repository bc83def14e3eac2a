// tune: f<<<ceil_div(n, 256), 256>>>(x, y, int64(n))
extern "C" __global__ void f(float* x, float* y, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    __shared__ float s[256];
    s[threadIdx.x] = i < n ? x[i] : 0.0f;
    const float v = s[255 - threadIdx.x];
    if (i < n) y[i] = v * v + v;
}
