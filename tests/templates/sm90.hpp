// What a Hopper kernel needs beside tuner/inspect/emulator to run on the CPU: tensor maps and TMA, barriers that a cluster shares, and
// warpgroup matrix instructions. As hostile as the emulator: a copy or a product that need not be there yet often is not, and reads
// or writes shared memory as late as the rules allow. A block that has ended is gone for its neighbours.
//
// sm90.cpp is compiled once and linked with each kernel; sm90_state.hpp has what is behind this.
#pragma once

#undef __forceinline__
#define __forceinline__ inline  // what a test does not call is not compiled

namespace hopper {

// -- a launch

struct Launch {
    unsigned int cluster, shared_bytes;
    bool m_along_k, n_along_k;  // how the instruction's two tiles lie in shared memory
    bool eight_bits = false;    // elements are e4m3, and maps of pairs of them
};
extern Launch launch;

extern int idle_arrivals;  // at named barriers, of threads whose products are all finished
extern bool alone;         // a test's only thread does not wait for its warpgroup

// Shared memory begins at an address that is a multiple of 16 and of no more.
constexpr unsigned int FIRST_ADDRESS = 0x410;

unsigned int address_of(const void* shared);

// Around what a thread runs of a kernel.
struct Running {
    explicit Running(Launch settings);
    ~Running();
};

// -- tensor maps

struct Matrix {
    unsigned short* elements;
    long long rows, columns;
    int box_rows, box_columns, swizzle;
    int pitch;  // elements from row to row of one that is stored to; 0: its columns
};
const Matrix* kept(const Matrix& matrix);

template <typename TensorMap>
TensorMap map_of(const Matrix& matrix) {
    return {{reinterpret_cast<unsigned long long>(kept(matrix))}};
}
template <typename TensorMap>
const Matrix& matrix_of(const TensorMap* map) {
    return *reinterpret_cast<const Matrix*>(map->opaque[0]);
}

enum Kind { LOAD, MULTICAST, FETCH, EXPECT };
void request(Kind kind, const Matrix& matrix, unsigned int shared, int x, int y, const void* barrier, unsigned int blocks, int policy);
void store(const Matrix& matrix, int x, int y, unsigned int shared);

// -- warpgroup matrix instructions

void multiply_later(float* d, int columns, unsigned long long m_tile, unsigned long long n_tile, bool accumulate);
void wait_for_products(int pending);

}  // namespace hopper

#define __cvta_generic_to_shared hopper::address_of

namespace ptx {

// -- TMA

template <typename TensorMap>
void fetch_map(const TensorMap*) {}
// An address outside of all arrays faults.
inline void prefetch_l1(const void* line) { (void)*static_cast<const volatile char*>(line); }
inline void prefetch_l2(const void* line) { prefetch_l1(line); }
inline unsigned long long l2_evict_last_policy() { return 1; }

template <typename TensorMap, typename... Policy>
void load_box(unsigned int shared, const TensorMap* map, int x, int y, const void* barrier, Policy... policy) {
    const unsigned int self = 1u << blockIdx.x % hopper::launch.cluster;
    const int which = (0 + ... + (1 + static_cast<int>(policy)));
    hopper::request(hopper::LOAD, hopper::matrix_of(map), shared, x, y, barrier, self, which);
}
template <typename TensorMap, typename... Policy>
void multicast_box(unsigned int shared, const TensorMap* map, int x, int y, const void* barrier, unsigned short blocks, Policy... policy) {
    const int which = (0 + ... + (1 + static_cast<int>(policy)));
    hopper::request(hopper::MULTICAST, hopper::matrix_of(map), shared, x, y, barrier, blocks, which);
}
template <typename TensorMap>
void fetch_box(const TensorMap* map, int x, int y) {
    hopper::request(hopper::FETCH, hopper::matrix_of(map), 0, x, y, nullptr, 0, 0);
}
template <typename TensorMap>
void store_box(const TensorMap* map, int x, int y, unsigned int shared) {
    hopper::store(hopper::matrix_of(map), x, y, shared);
}
template <typename TensorMap>
void store_box_first(const TensorMap* map, int x, int y, unsigned int shared) {
    store_box(map, x, y, shared);
}

// -- barriers

void init_barrier(unsigned long long* barrier, unsigned int arrivals);
void expect_bytes(unsigned long long* barrier, unsigned int bytes);
void arrive(unsigned long long* barrier);
void arrive_after_copies(unsigned long long* barrier);
void arrive_at(unsigned long long* barrier, unsigned int rank);
void wait_barrier(unsigned long long* barrier, unsigned int parity);
void named_barrier_sync(int barrier, int threads);
void named_barrier_arrive(int barrier, int threads);

inline unsigned int block_in_cluster() { return blockIdx.x % hopper::launch.cluster; }
void cluster_arrive_relaxed();
void cluster_wait();
inline void cluster_sync_relaxed() {
    cluster_arrive_relaxed();
    cluster_wait();
}

// -- from block to block

inline unsigned int shared_of_block(unsigned int shared, unsigned int rank) { return shared | rank << 24; }
void send(const float* numbers, unsigned int there, unsigned int barrier_there);
inline void wait_for_senders(unsigned long long* barrier) { wait_barrier(barrier, 0); }
void add_received(float* numbers, unsigned int from);

// -- shared memory

uint4 read_shared_vector(unsigned int shared);
unsigned int read_shared_pair(unsigned int shared);
void store_matrices(unsigned int row, unsigned int a, unsigned int b, unsigned int c, unsigned int d);
void store_transposed_matrices(unsigned int row, unsigned int a, unsigned int b, unsigned int c, unsigned int d);
unsigned int transpose_8x8(unsigned int pair);

// -- warpgroups

template <int COUNT>
void warpgroup_reg_alloc() {}
template <int COUNT>
void warpgroup_reg_dealloc() {}
inline void warpgroup_arrive() {}

template <int COUNT>
void wgmma(float (&d)[COUNT], unsigned long long m_tile, unsigned long long n_tile, int accumulate) {
    hopper::multiply_later(d, 2 * COUNT, m_tile, n_tile, accumulate != 0);
}
void warpgroup_commit();
template <int PENDING>
void warpgroup_wait() {
    hopper::wait_for_products(PENDING);
}

}  // namespace ptx
