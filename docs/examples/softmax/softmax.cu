// y = softmax(x) for each row: exp(x - max) / sum(exp(x - max)). One block per row.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifndef block_size  // built without the tuner
#define block_size 256
#define unroll_factor 1
#define one_pass 1
#define input_type __half
#endif

struct Total {
    float largest;
    float sum;  // of exp(x - largest)
};

__device__ Total merge(Total a, Total b) {
    const float largest = fmaxf(a.largest, b.largest);
    return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest)};
}

__device__ Total merge_block(Total mine) {
    __shared__ Total of_warp[block_size / 32];
    for (int lane = 16; lane > 0; lane /= 2) {
        const Total other = {__shfl_xor_sync(~0u, mine.largest, lane), __shfl_xor_sync(~0u, mine.sum, lane)};
        mine = merge(mine, other);
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = mine;
    }
    __syncthreads();
    Total all = of_warp[0];
    for (int warp = 1; warp < block_size / 32; ++warp) {
        all = merge(all, of_warp[warp]);
    }
    return all;
}

extern "C" __global__ void __launch_bounds__(block_size) softmax(const input_type* x, input_type* y, int columns) {
    x += static_cast<long long>(blockIdx.x) * columns;
    y += static_cast<long long>(blockIdx.x) * columns;
    Total mine = {-1e38f, 0.0f};
#if one_pass
#pragma unroll unroll_factor
    for (int i = threadIdx.x; i < columns; i += block_size) {
        mine = merge(mine, {static_cast<float>(x[i]), 1.0f});
    }
#else
#pragma unroll unroll_factor
    for (int i = threadIdx.x; i < columns; i += block_size) {
        mine.largest = fmaxf(mine.largest, static_cast<float>(x[i]));
    }
#pragma unroll unroll_factor
    for (int i = threadIdx.x; i < columns; i += block_size) {
        mine.sum += expf(static_cast<float>(x[i]) - mine.largest);
    }
#endif
    const Total all = merge_block(mine);
#pragma unroll unroll_factor
    for (int i = threadIdx.x; i < columns; i += block_size) {
        y[i] = static_cast<input_type>(expf(static_cast<float>(x[i]) - all.largest) / all.sum);
    }
}
