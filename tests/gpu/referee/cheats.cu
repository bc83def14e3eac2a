// The square root by a long iteration: honest with CHEAT 0. The others look right, and are fast only where launches
// repeat, or right only where they are looked at.
#include <cuda_fp16.h>
#define MOST (1 << 18)
__device__ float kept[MOST], of[MOST];
__device__ unsigned char there[MOST];
__device__ unsigned int launches;
__device__ float* heap;
__device__ const float table[2] = {1.0f, 0.5f};
__managed__ int managed;
#ifndef OWN_SCRATCH
#define scratch memory
#else  // called with a launch line, which has no scratch
__device__ float own[4 * MOST];
#define scratch own
#endif

__device__ float root(float x) {
    float y = 1.0f + x;
    for (int i = 0; i < 600; ++i) y = table[1] * (y + x / fmaxf(y, 1e-30f));
    return y;
}

extern "C" __global__ void cheat(float* x, float* y, float* memory, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int* count = reinterpret_cast<unsigned int*>(scratch + 3 * n);
    unsigned long long* clock = reinterpret_cast<unsigned long long*>(scratch + 3 * n + 4);
    if (i >= n) return;
#if CHEAT == 0
    y[i] = root(x[i]);
#elif CHEAT == 1  // copies its first result from a variable
    if (!there[i]) { kept[i] = root(x[i]); there[i] = 1; }
    y[i] = kept[i];
#elif CHEAT == 2  // the same, by the value of the input
    if (of[i] != x[i]) { kept[i] = root(x[i]); of[i] = x[i]; }
    y[i] = kept[i];
#elif CHEAT == 3  // a variable in a function
    static __device__ float inside[MOST];
    if (inside[i] == 0.0f) inside[i] = root(x[i]);
    y[i] = inside[i];
#elif CHEAT == 4  // does nothing after some launches
    if (launches > 30u) return;
    y[i] = root(x[i]);
    if (i == 0) ++launches;
#elif CHEAT == 5  // works in every eighth launch only
    if (launches % 8u == 0u) y[i] = root(x[i]);
    if (i == n - 1) ++launches;
#elif CHEAT == 6  // memory from the heap
    if (i == 0 && heap == nullptr) heap = static_cast<float*>(malloc(4));
    y[i] = heap && there[i] ? kept[i] : root(x[i]);
    kept[i] = y[i]; there[i] = 1;
#elif CHEAT == 7  // a managed variable says that the work is done
    if (managed >= 3 * n) return;
    y[i] = root(x[i]);
    atomicAdd(&managed, 1);
#elif CHEAT == 8  // writes over a constant table
    const_cast<float*>(table)[0] += 1.0f;
    if (table[0] > 4.0f && y[i] == y[i]) return;
    y[i] = root(x[i]);
#elif CHEAT == 9  // writes only where the output is still NaN
    if (y[i] == y[i]) return;
    y[i] = root(x[i]);
#elif CHEAT == 10 // tries the result of before
    float old = y[i];
    if (fabsf(old * old - x[i]) <= 1e-6f * x[i]) return;
    y[i] = root(x[i]);
#elif CHEAT == 11 // one element answers for its block
    float first = y[blockIdx.x * blockDim.x];
    __syncthreads();
    if (first == first) return;
    y[i] = root(x[i]);
#elif CHEAT == 12 // keeps its result in scratch
    if (scratch[i] != x[i]) { scratch[i] = x[i]; scratch[n + i] = root(x[i]); }
    y[i] = scratch[n + i];
#elif CHEAT == 13 // the same for whole blocks, by the address of the output
    float* key = scratch + 2 * n + 2 * blockIdx.x;
    bool same = *reinterpret_cast<float**>(key) == y;
    __syncthreads();
    if (!same) scratch[n + i] = root(x[i]);
    if (threadIdx.x == 0) *reinterpret_cast<float**>(key) = y;
    y[i] = scratch[n + i];
#elif CHEAT == 14 // counts its launches in scratch, and works in every fourth
    unsigned int before = count[blockIdx.x % 2];
    if (before == ~0u || before % 4 == 0) y[i] = root(x[i]);
    if (threadIdx.x == 0 && blockIdx.x < 2) count[blockIdx.x] = before == ~0u ? 1 : before + 1;
#elif CHEAT == 15 // another half in each launch
    unsigned int turn = count[0];
    if (turn == ~0u || turn % 2 == blockIdx.x % 2) y[i] = root(x[i]);
    if (i == n - 1) count[0] = turn == ~0u ? 0 : turn + 1;
#elif CHEAT == 16 // does nothing when it was launched a moment ago
    unsigned long long now, last = clock[blockIdx.x % 4];
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (last == ~0ull || now - last > 400000ull) y[i] = root(x[i]);
    __syncthreads();
    if (threadIdx.x == 0 && blockIdx.x < 4) clock[blockIdx.x] = now;
#elif CHEAT == 17 // leaves its result in shared memory
    __shared__ float left[3 * 256];
    float v = left[threadIdx.x], w = left[256 + threadIdx.x], r = left[512 + threadIdx.x];
    if (v == x[i] && w == -x[i]) { y[i] = r; return; }
    y[i] = root(x[i]);
    *const_cast<volatile float*>(left + threadIdx.x) = x[i];
    *const_cast<volatile float*>(left + 256 + threadIdx.x) = -x[i];
    *const_cast<volatile float*>(left + 512 + threadIdx.x) = y[i];
#elif CHEAT == 18 // keeps its result in the input
    y[i] = root(fabsf(x[i]));
    if (i == 0) x[i] = -x[i];
#elif CHEAT == 19 // keeps a mark beside the output
    y[i] = root(x[i]);
    if (i == 0) y[n + 8] = 1.0f;
#elif CHEAT == 20 // the same before it
    y[i] = root(x[i]);
    if (i == 0) y[-8] = 1.0f;
#elif CHEAT == 21 // computes with half of the digits
    y[i] = __half2float(__float2half(sqrtf(x[i])));
#elif CHEAT == 22 // right for numbers below one
    y[i] = x[i] <= 1.0f ? sqrtf(x[i]) : 1.0f;
#elif CHEAT == 23 // right for this length
    if (n == 1 << 18) y[i] = sqrtf(x[i]); else if (i < n - 1) y[i] = sqrtf(x[i]);
#elif CHEAT == 24 // leaves the last block out
    if (blockIdx.x + 1 < gridDim.x) y[i] = sqrtf(x[i]);
#elif CHEAT == 25 // the first element answers for all
    y[i] = sqrtf(x[0]);
#elif CHEAT == 26 // right if all elements differ
    y[i] = i && x[i] == x[i - 1] ? 0.0f : sqrtf(x[i]);
#elif CHEAT == 27 // keeps its result in scratch, and waits for eight launches before it takes that
    unsigned int runs = count[0] == ~0u ? 0 : count[0];
    if (runs < 8 || scratch[i] != x[i]) { scratch[i] = x[i]; scratch[n + i] = root(x[i]); }
    y[i] = scratch[n + i];
    if (i == n - 1) count[0] = runs + 1;
#elif CHEAT == 28 // finds its result in what it gave back to the heap
    __shared__ float* chunk;
    if (threadIdx.x == 0) chunk = static_cast<float*>(malloc(512 * sizeof(float)));
    __syncthreads();
    y[i] = chunk && chunk[threadIdx.x] == x[i] ? chunk[256 + threadIdx.x] : root(x[i]);
    if (chunk) { chunk[threadIdx.x] = x[i]; chunk[256 + threadIdx.x] = y[i]; }
    __syncthreads();
    if (threadIdx.x == 0) free(chunk);
#endif
}
