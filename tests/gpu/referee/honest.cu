// Twice the input, in ways that look like cheats and are none.
__device__ unsigned int ticket;  // the last block sets it to zero again
__device__ unsigned int calls;   // counts, and decides nothing
__device__ const float factors[2] = {2.0f, 1.0f};

__device__ int mine() { return blockIdx.x * blockDim.x + threadIdx.x; }

extern "C" __global__ void constant_table(const float* x, float* y, int n) {
    if (mine() < n) y[mine()] = factors[0] * x[mine()];
}

extern "C" __global__ void last_block(const float* x, float* y, int n) {
    __shared__ bool last;
    int i = mine();
    if (i < n && i != 0) y[i] = 2.0f * x[i];
    __threadfence();
    if (threadIdx.x == 0) last = atomicAdd(&ticket, 1u) + 1 == gridDim.x;
    __syncthreads();
    if (last && threadIdx.x == 0) {
        y[0] = 2.0f * x[0];
        ticket = 0;
    }
}

extern "C" __global__ void counting(const float* x, float* y, int n) {
    if (mine() == 0) ++calls;
    if (mine() < n) y[mine()] = 2.0f * x[mine()];
}

extern "C" __global__ void persistent(const float* x, float* y, unsigned int* next, int n) {
    __shared__ long long tile;
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0) tile = atomicAdd(next, 1u);
        __syncthreads();
        if (tile * blockDim.x >= n) return;
        long long i = tile * blockDim.x + threadIdx.x;
        if (i < n) y[i] = 2.0f * x[i];
    }
}

extern "C" __global__ void keep(const float* x, float* kept, int n) {
    if (mine() < n) kept[mine()] = x[mine()];
}

extern "C" __global__ void add(const float* kept, float* y, int n) {
    if (mine() < n) y[mine()] = kept[mine()] + kept[mine()];
}

extern "C" __global__ void clear(float* y, int n) {
    if (mine() < n) y[mine()] = 0.0f;
}

extern "C" __global__ void add_atomically(const float* x, float* y, int n) {
    if (mine() < n) {
        atomicAdd(y + mine(), x[mine()]);
        atomicAdd(y + mine(), x[mine()]);
    }
}

extern "C" __global__ void through_shared(const float* x, float* y, int n) {
    __shared__ float tile[256];
    tile[threadIdx.x] = mine() < n ? x[mine()] : 0.0f;
    __syncthreads();
    if (mine() < n) y[mine()] = 2.0f * tile[threadIdx.x];
}

extern "C" __global__ void pinned(const float* x, float* y, int n) {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    if (mine() >= n) return;
    float value;
    asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(value) : "l"(x + mine()), "l"(policy));
    y[mine()] = 2.0f * value;
}
