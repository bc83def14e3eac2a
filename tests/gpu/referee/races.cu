// 1 to 3 have a race, which 1 and 3 nearly always win as long as they have the GPU for themselves:
//
//   1  the first warp reads the others' sums without a barrier, after some work of its own
//   2  rows of a tile are overwritten without a barrier behind what reads them
//   3  a block takes what the block 64 before it should have written by then
//   0  has its barriers, and takes its time
extern "C" __global__ void races(const float* x, float* sums, float* firsts, float* written) {
    __shared__ volatile float parts[8];
    __shared__ float tile[256];
    const int me = threadIdx.x, warp = me / 32, lane = me % 32, row = blockIdx.x;
    const float first = x[row * 256];
    if (me == 0) {
        written[row] = first;
    }

    float mine = x[row * 256 + me];
    if (RACE == 2) {
        float sum = 0.0f;
        for (int turn = 0; turn < 8; ++turn) {
            tile[me] = x[row * 256 + (me + 32 * turn) % 256];
            __syncthreads();
            for (int k = 0; k < 32; ++k) {
                sum += tile[(me + 32 + k) % 256] * (me == 0 ? 1.0f : 0.0f);
            }
        }
        mine = sum;
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        mine += __shfl_xor_sync(~0u, mine, lanes);
    }
    if (RACE == 2) {
        if (me == 0) {
            sums[row] = mine;
        }
    } else {
        if (lane == 0) {
            parts[warp] = mine;
        }
        float busy = mine;
        for (int i = 0; i < (warp == 0 ? 200 : 0); ++i) {
            busy = fmaf(busy, 0.999f, 1e-3f);
        }
        if (RACE != 1) {
            __syncthreads();
        }
        if (me == 0) {
            float sum = busy == -1.0f ? busy : 0.0f;
            for (int i = 0; i < 8; ++i) {
                sum += parts[i];
            }
            sums[row] = sum;
        }
    }

    if (me == 0) {
        float before = 0.0f;
        if (row >= 64) {
            if (RACE == 3) {
                for (const long long began = clock64(); clock64() - began < 4000;) {
                }
                before = static_cast<volatile float*>(written)[row - 64];
            } else {
                before = x[(row - 64) * 256];
            }
        }
        firsts[row] = first + before;
        if (RACE == 0) {
            for (const long long began = clock64(); clock64() - began < 20000;) {
            }
        }
    }
}
