// tune: f<<<ceil_div(n, 256), 256>>>(x, y, int64(n))
#include <cuda_fp16.h>
extern "C" __global__ void f(float* x, float* y, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) { const __half h = __float2half(x[i]); y[i] = __half2float(h) * __half2float(h) + __half2float(h); }
}
