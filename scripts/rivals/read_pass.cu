// X read once, and nothing done with it: what any kernel that reads X needs at least, on the GPU in front of you. Its output
// is wrong, of course; `tune bench` says so, beside the time.
//
//   tune bench --kernel mean_matvec --against scripts/rivals/read_pass.cu
//
// takes the launch below. Others, each with its own way to keep memory busy (VECTORS counts 16 bytes each):
//
//   read_tiles<4>, <8>, <16>    a tile a block, as many blocks as tiles, all loads of a thread before the first use
//       read_tiles<16><<<ceil_div(VECTORS, 512 * 16), 512>>>(x, y, int64(VECTORS))
//   read_strided<4>, <8>        a fixed number of blocks, which stride over the tiles
//       read_strided<8><<<4 * sm_count, 512>>>(x, y, int64(VECTORS))
//   read_ring<4>, <6>           bulk copies of 32 KiB into a ring of so many stages (compute capability 9.0)
//       read_ring<6><<<sm_count, 32, 6 * 32768>>>(x, y, int64(VECTORS))
//
// with VECTORS = groups * vectors * length * itemsize(input) // 16.
//
// tune: read_tiles<8><<<ceil_div(groups * vectors * length * itemsize(input) // 16, 512 * 8), 512>>>(x, y, int64(groups * vectors * length * itemsize(input) // 16))

__device__ __forceinline__ uint4 load_once(const uint4* from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(__cvta_generic_to_global(from)));
    return v;
}

// Keeps the loads alive: no count is negative, but the compiler does not know.
__device__ __forceinline__ void keep(unsigned int bits, void* never, long long count) {
    if (count < 0 && bits == 0x9e3779b9u) {
        *static_cast<unsigned int*>(never) = bits;
    }
}

template <int ITEMS>
__device__ __forceinline__ unsigned int read_tile(const uint4* x, long long begin, long long count) {
    const long long step = blockDim.x;
    const uint4* at = x + begin + threadIdx.x;
    unsigned int bits = 0;
    if (begin + ITEMS * step <= count) {
        uint4 v[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            v[i] = load_once(at + i * step);
        }
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            bits += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
        }
    } else {
        for (; at < x + count; at += step) {
            const uint4 v = load_once(at);
            bits += v.x ^ v.y ^ v.z ^ v.w;
        }
    }
    return bits;
}

template <int ITEMS>
__global__ void __launch_bounds__(512) read_tiles(const void* x, void* never, long long count) {
    const long long tile = static_cast<long long>(blockDim.x) * ITEMS;
    keep(read_tile<ITEMS>(static_cast<const uint4*>(x), blockIdx.x * tile, count), never, count);
}

template <int ITEMS>
__global__ void __launch_bounds__(512) read_strided(const void* x, void* never, long long count) {
    const long long tile = static_cast<long long>(blockDim.x) * ITEMS;
    unsigned int bits = 0;
    for (long long begin = blockIdx.x * tile; begin < count; begin += gridDim.x * tile) {
        bits += read_tile<ITEMS>(static_cast<const uint4*>(x), begin, count);
    }
    keep(bits, never, count);
}

#if __CUDA_ARCH__ >= 900
template <int STAGES>
__global__ void __launch_bounds__(32) read_ring(const void* x, void* never, long long count) {
    constexpr unsigned int STAGE_BYTES = 32768;
    extern __shared__ __align__(128) unsigned char stages[];
    __shared__ unsigned long long full[STAGES];
    const unsigned char* bytes = static_cast<const unsigned char*>(x);
    const long long size = count * 16;
    const long long chunks = (size + STAGE_BYTES - 1) / STAGE_BYTES;
    auto address = [](const void* shared) { return static_cast<unsigned int>(__cvta_generic_to_shared(shared)); };
    auto ask = [&](long long chunk, int stage) {
        const long long left = size - chunk * STAGE_BYTES;
        const unsigned int part = left < STAGE_BYTES ? static_cast<unsigned int>(left) : STAGE_BYTES;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&full[stage])), "r"(part)
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         address(stages + stage * STAGE_BYTES)),
                     "l"(__cvta_generic_to_global(bytes + chunk * STAGE_BYTES)), "r"(part), "r"(address(&full[stage]))
                     : "memory");
    };
    if (threadIdx.x != 0) {
        return;
    }
    for (int stage = 0; stage < STAGES; ++stage) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&full[stage])) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (int stage = 0; stage < STAGES; ++stage) {
        const long long chunk = blockIdx.x + static_cast<long long>(stage) * gridDim.x;
        if (chunk < chunks) {
            ask(chunk, stage);
        }
    }
    int stage = 0;
    unsigned int parity = 0;
    for (long long chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        unsigned int over;
        do {
            asm volatile(
                "{\n"
                "    .reg .pred over;\n"
                "    mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
                "    selp.u32 %0, 1, 0, over;\n"
                "}"
                : "=r"(over)
                : "r"(address(&full[stage])), "r"(parity)
                : "memory");
        } while (!over);
        const long long next = chunk + static_cast<long long>(STAGES) * gridDim.x;
        if (next < chunks) {
            ask(next, stage);
        }
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
}
#endif
