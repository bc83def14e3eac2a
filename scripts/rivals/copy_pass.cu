// The bytes of an input copied as they lie: what a kernel that moves them needs at least, on the GPU in front of you. Its
// output is wrong, of course; `tune bench` says so, beside the time.
//
//   tune bench transpose --against scripts/rivals/copy_pass.cu
//
// takes the launch below. Of rope, q and k in one launch (VECTORS counts 16 bytes of the first and of the second array):
//
//   copy_tiles<4><<<ceil_div(FIRST + SECOND, 256 * 4), 256>>>(q, q_out, int64(FIRST), k, k_out, int64(SECOND))
//
// tune: copy_tiles<4><<<ceil_div(batch * rows * columns * itemsize(input) // 16, 256 * 4), 256>>>(x, out, int64(batch * rows * columns * itemsize(input) // 16), x, out, int64(0))

template <int ITEMS>
__global__ void __launch_bounds__(256)
    copy_tiles(const void* x, void* out, long long count, const void* y, void* y_out, long long more) {
    const long long first = static_cast<long long>(blockIdx.x) * (256 * ITEMS) + threadIdx.x;
    uint4 held[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const long long at = first + i * 256;
        if (at < count + more) {
            held[i] = at < count ? static_cast<const uint4*>(x)[at] : static_cast<const uint4*>(y)[at - count];
        }
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const long long at = first + i * 256;
        if (at < count + more) {
            (at < count ? static_cast<uint4*>(out)[at] : static_cast<uint4*>(y_out)[at - count]) = held[i];
        }
    }
}
