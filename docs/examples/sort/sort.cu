// A bitonic sort. Sorted stretches of `half` keys are merged in pairs: the first step compares a stretch with its mirrored
// neighbour, the others compare keys at half the distance each time. Each comparison moves the smaller key down, so that
// nothing beyond n, where a pair is incomplete, would ever move.

struct Pair {
    unsigned lower, upper;
};

// The pair with number t among those at one distance; `half` is a power of two.
__device__ Pair pair(unsigned t, unsigned half, bool mirrored) {
    const unsigned offset = t & (half - 1), lower = 2 * t - offset;
    return {lower, mirrored ? lower - offset + 2 * half - 1 - offset : lower + half};
}

// One step of all keys, each thread `items` pairs of them.
extern "C" __global__ void compare(const input_type* from, input_type* to, unsigned n, unsigned half, int mirrored) {
#pragma unroll
    for (int i = 0; i < items; ++i) {
        const unsigned t = (blockIdx.x * items + i) * block_size + threadIdx.x;
        const auto [lower, upper] = pair(t, half, mirrored);
        if (upper < n) {
            const input_type a = from[lower], b = from[upper];
            to[lower] = b < a ? b : a;
            to[upper] = b < a ? a : b;
        } else if (lower < n) {
            to[lower] = from[lower];
        }
    }
}

#ifdef tile
// One step of the first `count` keys of a tile in shared memory.
__device__ void compare_in(input_type* keys, unsigned count, unsigned half, bool mirrored) {
    __syncthreads();
#pragma unroll
    for (unsigned t = threadIdx.x; t < tile / 2; t += block_size) {
        const auto [lower, upper] = pair(t, half, mirrored);
        if (upper < count) {
            const input_type a = keys[lower], b = keys[upper];
            keys[lower] = b < a ? b : a;
            keys[upper] = b < a ? a : b;
        }
    }
}

// Sort each tile, or with `merging` do the last steps of a merge, at distances below a tile.
template <bool merging>
__device__ void in_tiles(const input_type* from, input_type* to, unsigned n) {
    __shared__ input_type keys[tile];
    const unsigned start = blockIdx.x * tile, count = min(n - start, unsigned(tile));
    for (unsigned i = threadIdx.x; i < count; i += block_size) keys[i] = from[start + i];
    for (unsigned half = merging ? tile : 1; half < (merging ? 2 * tile : tile); half *= 2) {
        if (!merging) compare_in(keys, count, half, true);
        for (unsigned distance = half / 2; distance > 0; distance /= 2) compare_in(keys, count, distance, false);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < count; i += block_size) to[start + i] = keys[i];
}

extern "C" __global__ void sort_tiles(const input_type* from, input_type* to, unsigned n) { in_tiles<false>(from, to, n); }

extern "C" __global__ void merge_tiles(input_type* keys, unsigned n) { in_tiles<true>(keys, keys, n); }
#endif
