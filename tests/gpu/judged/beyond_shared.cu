// tune: f<<<ceil_div(n, 256), 256>>>(x, y, int64(n))
extern "C" __global__ void f(float* x, float* y, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    __shared__ float s[192];
    if (threadIdx.x < 192) s[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    const float v = *(volatile float*)(s + threadIdx.x);
    if (i < n) y[i] = v * v + v;
}
