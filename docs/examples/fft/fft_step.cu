// One step of a Fourier transform by Stockham's method: y[p][j] is a sum over k of x[k][p] times powers of the roots of
// unity, for each of stride columns. Steps of radix 4 and 2, one after the other, are a transform.
#ifndef radix  // built without the tuner
#define radix 4
#define block_size 128
#define items 1
#define powers 0
#endif

__device__ float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ float2 operator-(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
__device__ float2 operator*(float2 a, float2 b) { return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
__device__ float2 times_minus_i(float2 a) { return make_float2(a.y, -a.x); }

__device__ float2 root(int numerator, int denominator) {  // of unity: exp(-2 pi i numerator / denominator)
    float2 turned;
    sincospif(-2.0f * numerator / denominator, &turned.y, &turned.x);
    return turned;
}

extern "C" __global__ void __launch_bounds__(block_size) fft_step(const float2* x, float2* y, int count, int stride) {
    const int length = radix * count, all = count * stride;
#pragma unroll
    for (int item = 0; item < items; ++item) {
        const int i = blockIdx.x * (block_size * items) + item * block_size + threadIdx.x;
        if (i >= all) {
            return;
        }
        const int p = i / stride, column = i % stride;
        float2 turns[radix];
        turns[0] = make_float2(1.0f, 0.0f);
        turns[1] = root(p, length);
#pragma unroll
        for (int j = 2; j < radix; ++j) {
            turns[j] = powers ? turns[j - 1] * turns[1] : root(j * p, length);
        }
        float2* to = y + static_cast<long long>(radix) * p * stride + column;
        const float2 a = x[i], b = x[i + all];
#if radix == 2
        to[0] = a + b;
        to[stride] = (a - b) * turns[1];
#else
        const float2 c = x[i + 2 * all], d = x[i + 3 * all];
        const float2 even = a + c, odd = b + d, first = a - c, second = times_minus_i(b - d);
        to[0] = even + odd;
        to[stride] = (first + second) * turns[1];
        to[2 * stride] = (even - odd) * turns[2];
        to[3 * stride] = (first - second) * turns[3];
#endif
    }
}
