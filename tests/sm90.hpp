// What a Hopper kernel needs beside tuner/emulator to run on the CPU: tensor maps and TMA, barriers that a cluster shares, and
// warpgroup matrix instructions. As hostile as the emulator: a copy or a product that need not be there yet often is not, and reads
// or writes shared memory as late as the rules allow. A block that has ended is gone for its neighbours.
#pragma once

#undef __forceinline__
#define __forceinline__ inline  // what a test does not call is not compiled

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace hopper {

[[noreturn]] inline void fail(const char* what) {
    std::fprintf(stderr, "hopper: %s\n", what);
    __builtin_trap();
}

inline bool toss() {
    static unsigned long long bits = 1;
    bits = bits * 6364136223846793005ull + 1442695040888963407ull;
    return bits >> 63;
}

// -- a launch

struct Launch {
    unsigned int cluster, shared_bytes;
    bool m_along_k, n_along_k;  // how the instruction's two tiles lie in shared memory
};
inline Launch launch;

inline int idle_arrivals = 0;  // at named barriers, of threads whose products are all finished

// Shared memory begins at an address that is a multiple of 16 and of no more.
constexpr unsigned int FIRST_ADDRESS = 0x410;

struct Mbarrier {
    unsigned int expected, missing, phase = 0;
    long long bytes = 0;
};

struct Meeting {
    unsigned int arrived = 0;
    long long generation = 0;
    void arrive(unsigned int threads) {
        emulator::begin_atomic();
        if (++arrived == threads) {
            arrived = 0;
            ++generation;
        }
    }
    void meet(unsigned int threads) {
        const long long mine = generation;
        arrive(threads);
        while (generation == mine) __nanosleep(0);
    }
};

struct Products {  // of one instruction and thread
    unsigned int thread;
    float* d;
    int columns;
    unsigned long long m_tile, n_tile;
    bool accumulate;
};
struct Warpgroup {  // multiplies when all of its threads have said what
    struct Group {
        std::vector<Products> products;
        unsigned int threads = 0;
    };
    std::vector<Products> said[128];  // not committed
    long long committed[128] = {};    // groups of a thread
    long long waited[128] = {};       // of these, groups that it has waited for
    std::deque<Group> groups;         // from number `finished` on
    long long finished = 0;
};

struct Block {
    unsigned char* shared;
    std::map<unsigned int, Mbarrier> barriers;
    std::map<int, Meeting> named;
    std::vector<std::function<void()>> loads;
    std::map<unsigned int, Warpgroup> warpgroups;
    unsigned int threads_left;
    std::map<unsigned int, long long> arrived_at;  // by thread: the cluster's generation

    unsigned char* at(unsigned int address, unsigned int bytes) const {
        if (address < FIRST_ADDRESS || address + bytes > FIRST_ADDRESS + launch.shared_bytes) fail("an address beside the shared memory");
        if (address % bytes != 0 && bytes <= 16) fail("an address in shared memory that is not aligned");
        return shared + (address - FIRST_ADDRESS);
    }
    Mbarrier& barrier(unsigned int address) {
        at(address, 8);
        const auto found = barriers.find(address);
        if (found == barriers.end()) fail("a barrier that was not initialised");
        return found->second;
    }
    void count(unsigned int address, unsigned int arrivals, long long bytes) {
        Mbarrier& one = barrier(address);
        if (arrivals > one.missing) fail("more arrivals at a barrier than it expects");
        one.missing -= arrivals;
        one.bytes += bytes;
        if (one.missing == 0 && one.bytes == 0) {
            one.missing = one.expected;
            one.phase ^= 1;
        }
    }
};
inline std::map<unsigned int, std::unique_ptr<Block>> blocks;
inline std::map<unsigned int, Meeting> clusters;

inline Block& block_at(unsigned int number) {
    const auto found = blocks.find(number);
    if (found == blocks.end()) fail("a block of the cluster that is not there yet, or has ended");
    return *found->second;
}
inline Block& here() { return block_at(blockIdx.x); }
inline unsigned int first_of_cluster() { return blockIdx.x / launch.cluster * launch.cluster; }

inline unsigned int address_of(const void* shared) {
    return FIRST_ADDRESS + static_cast<unsigned int>(static_cast<const unsigned char*>(shared) - emulator::dynamic_shared());
}

// Around what a thread runs of a kernel.
struct Running {
    explicit Running(Launch settings) {
        launch = settings;
        auto& block = blocks[blockIdx.x];
        if (!block) block.reset(new Block{emulator::dynamic_shared(), {}, {}, {}, {}, blockDim.x});
    }
    ~Running() {
        if (--here().threads_left > 0) return;
        if (!here().loads.empty()) fail("a block has ended before its loads have arrived");
        blocks.erase(blockIdx.x);
    }
};

// -- tensor maps

struct Matrix {
    unsigned short* elements;
    long long rows, columns;
    int box_rows, box_columns, swizzle;
};

template <typename TensorMap>
TensorMap map_of(const Matrix& matrix) {
    static std::deque<Matrix> kept;
    for (const Matrix& one : kept) {
        if (std::memcmp(&one, &matrix, sizeof(one)) == 0) return TensorMap{{reinterpret_cast<unsigned long long>(&one)}};
    }
    kept.push_back(matrix);
    return TensorMap{{reinterpret_cast<unsigned long long>(&kept.back())}};
}
template <typename TensorMap>
const Matrix& matrix_of(const TensorMap* map) {
    return *reinterpret_cast<const Matrix*>(map->opaque[0]);
}

inline unsigned int swizzled(unsigned int address) { return address ^ (address >> 7 & 7) << 4; }

// Calls `piece(address, row, column)` for each 16 bytes of a box.
template <typename Piece>
void for_pieces(const Matrix& matrix, unsigned int shared, int x, int y, Piece piece) {
    if (matrix.swizzle != 0 && (matrix.swizzle != 128 || matrix.box_columns != 64)) fail("a box of another width than its swizzle");
    if (shared % 128 != 0) fail("a box at an address that is no multiple of 128");
    for (int row = 0; row < matrix.box_rows; ++row) {
        for (int column = 0; column < matrix.box_columns; column += 8) {
            const unsigned int address = shared + (row * matrix.box_columns + column) * 2;
            piece(matrix.swizzle ? swizzled(address) : address, static_cast<long long>(y) + row, static_cast<long long>(x) + column);
        }
    }
}

inline void load(Block& block, const Matrix& matrix, unsigned int shared, int x, int y, unsigned int barrier) {
    for_pieces(matrix, shared, x, y, [&](unsigned int address, long long row, long long column) {
        unsigned short piece[8] = {};
        for (int i = 0; i < 8; ++i) {
            if (row >= 0 && row < matrix.rows && column + i < matrix.columns) piece[i] = matrix.elements[row * matrix.columns + column + i];
        }
        std::memcpy(block.at(address, 16), piece, 16);
    });
    block.count(barrier, 0, -2ll * matrix.box_rows * matrix.box_columns);
}

// Each load arrives sooner or later.
inline void bring_some() {
    auto& loads = here().loads;
    auto waiting = std::exchange(loads, {});
    for (auto& one : waiting) {
        if (toss()) {
            loads.push_back(std::move(one));
        } else {
            one();
            emulator::begin_atomic();
        }
    }
}

// -- what is only written down

// What a block asks for, where a test sets `log`: then nothing is copied, and nothing waited for.
struct Request {
    enum Kind { LOAD, MULTICAST, FETCH, EXPECT } kind;
    const Matrix* matrix;
    unsigned int shared;  // or the bytes that are expected
    int x, y;
    unsigned int barrier, blocks;
    int policy;  // 0 none, 1 evict first, 2 evict last
};
inline std::vector<Request>* log = nullptr;
inline bool alone = false;  // a test's only thread does not wait for its warpgroup

// -- warpgroup matrix instructions

// An element of a tile as an instruction reads it: the bits of the number `k` deep in a row (or column) from the first on.
inline unsigned short bits_of(const Block& block, unsigned long long tile, bool along_k, int line, int k) {
    if (tile >> 62 != 1) fail("a tile that is not swizzled by 128 bytes");
    const unsigned int start = (tile & 0x3fff) << 4, leading = (tile >> 16 & 0x3fff) << 4, stride = (tile >> 32 & 0x3fff) << 4;
    const unsigned int address = along_k ? start + line / 8 * stride + line % 8 * 128 + k * 2
                                         : start + line / 64 * leading + line % 64 * 2 + k / 8 * stride + k % 8 * 128;
    unsigned short bits;
    std::memcpy(&bits, block.at(swizzled(address), 2), 2);
    return bits;
}
inline float number(const Block& block, unsigned long long tile, bool along_k, int line, int k) {
    return __uint_as_float(static_cast<unsigned int>(bits_of(block, tile, along_k, line, k)) << 16);  // bfloat16
}

inline void multiply(const Block& block, const Products& one) {
    const int lane = one.thread % 32, warp = one.thread % 128 / 32;
    float m_side[2][16];
    for (int half = 0; half < 2; ++half) {
        for (int k = 0; k < 16; ++k) {
            m_side[half][k] = number(block, one.m_tile, launch.m_along_k, 16 * warp + lane / 4 + half * 8, k);
        }
    }
    for (int pair = 0; pair < one.columns / 4; ++pair) {
        const int column = pair / 2 * 8 + lane % 4 * 2 + pair % 2;
        float n_side[16];
        for (int k = 0; k < 16; ++k) n_side[k] = number(block, one.n_tile, launch.n_along_k, column, k);
        for (int half = 0; half < 2; ++half) {
            float& d = one.d[pair / 2 * 4 + half * 2 + pair % 2];
            float sum = one.accumulate ? d : 0.0f;
            for (int k = 0; k < 16; ++k) sum += m_side[half][k] * n_side[k];
            d = sum;
        }
    }
}

inline Warpgroup& warpgroup_here() { return here().warpgroups[threadIdx.x / 128]; }
inline void finish(long long before) {
    for (Warpgroup& group = warpgroup_here(); group.finished < before;) {
        if (group.groups.front().threads < 128) {
            __nanosleep(0);  // meanwhile another thread may finish it
            continue;
        }
        for (const Products& one : group.groups.front().products) multiply(here(), one);
        group.groups.pop_front();
        ++group.finished;
    }
}

}  // namespace hopper

#define __cvta_generic_to_shared hopper::address_of

namespace ptx {

using hopper::here;

// -- TMA

template <typename TensorMap>
void fetch_map(const TensorMap*) {}
inline unsigned long long keep_last_out() { return 1; }

template <typename TensorMap>
void request(hopper::Request::Kind kind, const TensorMap* map, unsigned int shared, int x, int y, const void* barrier, unsigned int blocks,
             int policy) {
    const hopper::Matrix& matrix = hopper::matrix_of(map);
    const unsigned int at = barrier == nullptr ? 0 : hopper::address_of(barrier);
    if (hopper::log != nullptr) {
        hopper::log->push_back({kind, &matrix, shared, x, y, at, blocks, policy});
        return;
    }
    for (unsigned int rank = 0; kind != hopper::Request::FETCH && rank < hopper::launch.cluster; ++rank) {
        if (!(blocks >> rank & 1)) continue;
        hopper::Block* block = &hopper::block_at(hopper::first_of_cluster() + rank);
        block->loads.push_back([=, &matrix] { hopper::load(*block, matrix, shared, x, y, at); });
    }
}
template <typename TensorMap, typename... Policy>
void load_box(unsigned int shared, const TensorMap* map, int x, int y, const void* barrier, Policy... policy) {
    const unsigned int self = 1u << blockIdx.x % hopper::launch.cluster;
    request(hopper::Request::LOAD, map, shared, x, y, barrier, self, (0 + ... + (1 + static_cast<int>(policy))));
}
template <typename TensorMap, typename... Policy>
void multicast_box(unsigned int shared, const TensorMap* map, int x, int y, const void* barrier, unsigned short blocks, Policy... policy) {
    request(hopper::Request::MULTICAST, map, shared, x, y, barrier, blocks, (0 + ... + (1 + static_cast<int>(policy))));
}
template <typename TensorMap>
void fetch_box(const TensorMap* map, int x, int y) {
    request(hopper::Request::FETCH, map, 0, x, y, nullptr, 0, 0);
}
// By the emulator's own bulk stores, which read shared memory late and must be waited for.
template <typename TensorMap>
void store_box(const TensorMap* map, int x, int y, unsigned int shared) {
    const hopper::Matrix& matrix = hopper::matrix_of(map);
    hopper::for_pieces(matrix, shared, x, y, [&](unsigned int address, long long row, long long column) {
        if (row >= matrix.rows || column >= matrix.columns) return;
        bulk_store(matrix.elements + row * matrix.columns + column, here().at(address, 16), 16);
    });
}

// -- barriers

inline void init_barrier(unsigned long long* barrier, unsigned int arrivals) {
    const unsigned int address = hopper::address_of(barrier);
    here().at(address, 8);
    here().barriers[address] = {arrivals, arrivals};
}
inline void count_at(hopper::Block& block, const void* barrier, unsigned int bytes) {
    emulator::begin_atomic();
    block.count(hopper::address_of(barrier), 1, bytes);
}
inline void expect_bytes(unsigned long long* barrier, unsigned int bytes) {
    if (hopper::log == nullptr) return count_at(here(), barrier, bytes);
    hopper::log->push_back({hopper::Request::EXPECT, nullptr, bytes, 0, 0, hopper::address_of(barrier), 0, 0});
}
inline void arrive(unsigned long long* barrier) { count_at(here(), barrier, 0); }
inline void arrive_at(unsigned long long* barrier, unsigned int rank) {
    if (rank >= hopper::launch.cluster) hopper::fail("a block that is not in the cluster");
    count_at(hopper::block_at(hopper::first_of_cluster() + rank), barrier, 0);
}
inline void wait_barrier(unsigned long long* barrier, unsigned int parity) {
    if (hopper::log != nullptr) return;
    while (here().barrier(hopper::address_of(barrier)).phase == parity) {
        hopper::bring_some();
        __nanosleep(0);
    }
}
inline void named_barrier_sync(int barrier, int threads) {
    if (!hopper::alone) here().named[barrier].meet(threads);
}
inline void named_barrier_arrive(int barrier, int threads) {
    const hopper::Warpgroup& group = hopper::warpgroup_here();
    const long long committed = group.committed[threadIdx.x % 128];
    hopper::idle_arrivals += committed > 0 && committed == group.waited[threadIdx.x % 128];
    here().named[barrier].arrive(threads);
}

inline unsigned int block_in_cluster() { return blockIdx.x % hopper::launch.cluster; }
inline void cluster_arrive_relaxed() {
    hopper::Meeting& cluster = hopper::clusters[hopper::first_of_cluster()];
    here().arrived_at[threadIdx.x] = cluster.generation;
    cluster.arrive(hopper::launch.cluster * blockDim.x);
}
inline void cluster_wait() {
    while (hopper::clusters[hopper::first_of_cluster()].generation == here().arrived_at[threadIdx.x]) __nanosleep(0);
}
inline void cluster_sync_relaxed() {
    cluster_arrive_relaxed();
    cluster_wait();
}

// -- from block to block

inline unsigned int shared_of_block(unsigned int shared, unsigned int rank) { return shared | rank << 24; }
inline void send(const float* numbers, unsigned int there, unsigned int barrier_there) {
    hopper::Block* block = &hopper::block_at(hopper::first_of_cluster() + (there >> 24));
    uint4 bits;
    std::memcpy(&bits, numbers, 16);
    block->loads.push_back([=] {
        std::memcpy(block->at(there & 0xffffff, 16), &bits, 16);
        block->count(barrier_there & 0xffffff, 0, -16);
    });
}
inline void wait_for_senders(unsigned long long* barrier) { wait_barrier(barrier, 0); }
inline void add_received(float* numbers, unsigned int from) {
    const float* received = reinterpret_cast<const float*>(here().at(from, 16));
    for (int i = 0; i < 4; ++i) numbers[i] += received[i];
}

// -- shared memory

inline uint4 read_shared_vector(unsigned int shared) { return *reinterpret_cast<const uint4*>(here().at(shared, 16)); }
inline unsigned int read_shared_pair(unsigned int shared) { return *reinterpret_cast<const unsigned int*>(here().at(shared, 4)); }

inline void store_matrices(unsigned int row, unsigned int a, unsigned int b, unsigned int c, unsigned int d) {
    emulator::show(&row, sizeof(row));
    const unsigned int pairs[4] = {a, b, c, d}, lane = emulator::lane();
    for (unsigned int i = 0; i < 4; ++i) {
        const unsigned int to = *static_cast<const unsigned int*>(emulator::seen(i * 8 + lane / 4));
        std::memcpy(here().at(to, 16) + lane % 4 * 4, &pairs[i], 4);
    }
    __syncwarp();
}
inline void store_transposed_matrices(unsigned int row, unsigned int a, unsigned int b, unsigned int c, unsigned int d) {
    emulator::show(&row, sizeof(row));
    const unsigned int pairs[4] = {a, b, c, d}, lane = emulator::lane();
    for (unsigned int i = 0; i < 8; ++i) {
        const unsigned int to = *static_cast<const unsigned int*>(emulator::seen(i / 2 * 8 + lane % 4 * 2 + i % 2));
        const unsigned short element = pairs[i / 2] >> i % 2 * 16;
        std::memcpy(here().at(to, 16) + lane / 4 * 2, &element, 2);
    }
    __syncwarp();
}
inline unsigned int transpose_8x8(unsigned int pair) {
    emulator::show(&pair, sizeof(pair));
    const unsigned int lane = emulator::lane();
    unsigned int result = 0;
    for (unsigned int i = 0; i < 2; ++i) {
        const unsigned int other = *static_cast<const unsigned int*>(emulator::seen((lane % 4 * 2 + i) * 4 + lane / 8));
        result |= (other >> lane / 4 % 2 * 16 & 0xffff) << i * 16;
    }
    __syncwarp();
    return result;
}

// -- warpgroups

template <int COUNT>
void warpgroup_reg_alloc() {}
template <int COUNT>
void warpgroup_reg_dealloc() {}
inline void warpgroup_arrive() {}

template <int COUNT>
void wgmma(float (&d)[COUNT], unsigned long long m_tile, unsigned long long n_tile, int accumulate) {
    hopper::warpgroup_here().said[threadIdx.x % 128].push_back({threadIdx.x, d, 2 * COUNT, m_tile, n_tile, accumulate != 0});
}
inline void warpgroup_commit() {
    hopper::Warpgroup& group = hopper::warpgroup_here();
    auto& said = group.said[threadIdx.x % 128];
    const long long number = group.committed[threadIdx.x % 128]++;
    while (group.finished + static_cast<long long>(group.groups.size()) <= number) group.groups.emplace_back();
    auto& together = group.groups[number - group.finished];
    together.products.insert(together.products.end(), said.begin(), said.end());
    said.clear();
    emulator::begin_atomic();
    if (++together.threads == 128 && hopper::toss()) hopper::finish(number + 1);
}
template <int PENDING>
void warpgroup_wait() {
    hopper::Warpgroup& group = hopper::warpgroup_here();
    long long& waited = group.waited[threadIdx.x % 128];
    waited = max(waited, group.committed[threadIdx.x % 128] - PENDING);
    hopper::finish(waited);
}

}  // namespace ptx
