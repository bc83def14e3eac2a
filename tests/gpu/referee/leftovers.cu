// 1 to 5 are right only where memory holds what the tuner first fills it with, 6 to 8 only at the size that is tuned, or
// for its usual numbers:
//
//   1  takes the minimum into an output that it never sets
//   2  the same with scratch memory, which it leaves as it was at first
//   3  reads beyond the end of x, where a maximum leaves NaN out
//   4  writes no -1
//   5  writes -1 behind the end of an output
//   6  takes large negative numbers for positive ones, in large tensors
//   7  ends at the 300000th number
//   8  leaves the last number out where half a vector is left
//   9  takes the maximum into shared memory that it never sets
//   0  does all of the work, and takes its time
extern "C" __global__ void leftovers(const float* x, const unsigned* z, int* signs, unsigned* least, float* largest,
                                     unsigned* kept, int n) {
    __shared__ float most[1024];
    const int me = threadIdx.x;
    unsigned* const low = CHEAT == 1 ? least : kept;
    if (me == 0 && CHEAT != 1 && CHEAT != 2) {
        *low = ~0u;
    }
    __syncthreads();
    const int end = CHEAT == 7 ? min(n, 300000) : CHEAT == 8 && n % 4 == 2 ? n - 1 : n;
    const int reads = CHEAT == 3 ? (n + 1023) / 1024 * 1024 : end;
    most[me] = CHEAT == 9 ? fmaxf(most[me], x[0]) : x[0];
    for (int i = me; i < reads; i += 1024) {
        most[me] = fmaxf(most[me], x[i]);
        if (i < end) {
            atomicMin(low, z[i]);
            const bool positive = x[i] > 0.0f || (CHEAT == 6 && n > 100000 && x[i] < -7.0f);
            if (positive || CHEAT != 4) {
                signs[i] = positive ? 1 : -1;
            }
        }
        if (CHEAT == 0) {
            __nanosleep(1000);
        }
    }
    if (CHEAT == 5) {
        signs[n + me % 8] = -1;
    }
    __syncthreads();
    if (me == 0) {
        for (int other = 1; other < 1024; ++other) {
            most[0] = fmaxf(most[0], most[other]);
        }
        *largest = most[0];
        *least = *low;
        if (CHEAT == 2) {
            *kept = ~0u;
        }
    }
}
