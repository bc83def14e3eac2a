import cupy

kernel = cupy.RawKernel(
    'extern "C" __global__ void f(const float* x, float* y, int n) {'
    "int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = x[i] * x[i] + x[i]; }",
    "f",
)


def candidate(x, y):
    n = x.size if isinstance(x.size, int) else x.numel()
    kernel(((n + 255) // 256,), (256,), (cupy.asarray(x), cupy.asarray(y), n))
