// What sm90.hpp declares.
#include "cuda.hpp"

#include "sm90_state.hpp"

namespace hopper {

Launch launch;
int idle_arrivals = 0;
bool alone = false;
std::map<unsigned int, std::unique_ptr<Block>> blocks;
std::vector<Request>* log = nullptr;
static std::map<unsigned int, Meeting> clusters;

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "hopper: %s\n", what);
    __builtin_trap();
}

static bool toss() {
    static unsigned long long bits = 1;
    bits = bits * 6364136223846793005ull + 1442695040888963407ull;
    return bits >> 63;
}

Block& block_at(unsigned int number) {
    const auto found = blocks.find(number);
    if (found == blocks.end()) fail("a block of the cluster that is not there yet, or has ended");
    return *found->second;
}
static unsigned int first_of_cluster() { return blockIdx.x / launch.cluster * launch.cluster; }

unsigned int address_of(const void* shared) {
    return FIRST_ADDRESS + static_cast<unsigned int>(static_cast<const unsigned char*>(shared) - emulator::dynamic_shared());
}

Running::Running(Launch settings) {
    launch = settings;
    auto& block = blocks[blockIdx.x];
    if (!block) block.reset(new Block{emulator::dynamic_shared(), {}, {}, {}, {}, blockDim.x});
}
Running::~Running() {
    if (--here().threads_left > 0) return;
    if (!here().loads.empty()) fail("a block has ended before its loads have arrived");
    blocks.erase(blockIdx.x);
}

// -- tensor maps

const Matrix* kept(const Matrix& matrix) {
    static std::deque<Matrix> all;
    for (const Matrix& one : all) {
        if (std::memcmp(&one, &matrix, sizeof(one)) == 0) return &one;
    }
    all.push_back(matrix);
    return &all.back();
}

static unsigned int swizzled(unsigned int address) { return address ^ (address >> 7 & 7) << 4; }

// Calls `piece(address, row, column)` for each 16 bytes of a box.
template <typename Piece>
static void for_pieces(const Matrix& matrix, unsigned int shared, int x, int y, Piece piece) {
    if (matrix.swizzle != 0 && (matrix.swizzle != 128 || matrix.box_columns != 64)) fail("a box of another width than its swizzle");
    if (shared % 128 != 0) fail("a box at an address that is no multiple of 128");
    for (int row = 0; row < matrix.box_rows; ++row) {
        for (int column = 0; column < matrix.box_columns; column += 8) {
            const unsigned int address = shared + (row * matrix.box_columns + column) * 2;
            piece(matrix.swizzle ? swizzled(address) : address, static_cast<long long>(y) + row, static_cast<long long>(x) + column);
        }
    }
}

static void load(Block& block, const Matrix& matrix, unsigned int shared, int x, int y, unsigned int barrier) {
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
static void bring_some() {
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

void request(Kind kind, const Matrix& matrix, unsigned int shared, int x, int y, const void* barrier, unsigned int blocks, int policy) {
    const unsigned int at = barrier == nullptr ? 0 : address_of(barrier);
    if (launch.eight_bits) x /= 2;
    if (log != nullptr) {
        log->push_back({kind, &matrix, shared, x, y, at, blocks, policy});
        return;
    }
    for (unsigned int rank = 0; kind != FETCH && rank < launch.cluster; ++rank) {
        if (!(blocks >> rank & 1)) continue;
        Block* block = &block_at(first_of_cluster() + rank);
        block->loads.push_back([=, &matrix] { load(*block, matrix, shared, x, y, at); });
    }
}

// By the emulator's own bulk stores, which read shared memory late and must be waited for.
void store(const Matrix& matrix, int x, int y, unsigned int shared) {
    for_pieces(matrix, shared, x, y, [&](unsigned int address, long long row, long long column) {
        if (row >= matrix.rows || column >= matrix.columns) return;
        ptx::bulk_store(matrix.elements + row * (matrix.pitch ? matrix.pitch : matrix.columns) + column, here().at(address, 16), 16);
    });
}

// -- warpgroup matrix instructions

unsigned short bits_of(const Block& block, unsigned long long tile, bool along_k, int line, int k) {
    if (tile >> 62 != 1) fail("a tile that is not swizzled by 128 bytes");
    const unsigned int start = (tile & 0x3fff) << 4, leading = (tile >> 16 & 0x3fff) << 4, stride = (tile >> 32 & 0x3fff) << 4;
    const unsigned int address = along_k ? start + line / 8 * stride + line % 8 * 128 + k * 2
                                         : start + line / 64 * leading + line % 64 * 2 + k / 8 * stride + k % 8 * 128;
    unsigned short bits;
    std::memcpy(&bits, block.at(swizzled(address), 2), 2);
    return bits;
}
static float number(const Block& block, unsigned long long tile, bool along_k, int line, int k) {
    return __uint_as_float(static_cast<unsigned int>(bits_of(block, tile, along_k, line, k)) << 16);  // bfloat16
}

// A side of an instruction: for each row (or column) its 16 numbers, or 32 of 8 bits.
using Side = std::vector<float>;

static float number_of_8_bits(unsigned int bits) {
    return __uint_as_float((bits & 0x7f) << 20 | (bits & 0x80) << 24) * 0x1p120f;
}

static Side side_of(const Block& block, unsigned long long tile, bool along_k, int lines) {
    Side side;
    for (int line = 0; line < lines; ++line) {
        for (int k = 0; k < 16; ++k) {
            if (!launch.eight_bits) {
                side.push_back(number(block, tile, along_k, line, k));
                continue;
            }
            const unsigned int pair = bits_of(block, tile, along_k, line, k);
            side.push_back(number_of_8_bits(pair & 0xff));
            side.push_back(number_of_8_bits(pair >> 8));
        }
    }
    return side;
}

__attribute__((optimize("O3")))  // with -Og it takes a quarter of a test
static void multiply(const Products& one, const Side& m_side, const Side& n_side) {
    const int lane = one.thread % 32, warp = one.thread % 128 / 32, depth = launch.eight_bits ? 32 : 16;
    for (int i = 0; i < one.columns / 2; ++i) {
        const float* row = &m_side[(16 * warp + lane / 4 + i / 2 % 2 * 8) * depth];
        const float* column = &n_side[(i / 4 * 8 + lane % 4 * 2 + i % 2) * depth];
        float sum = one.accumulate ? one.d[i] : 0.0f;
        for (int k = 0; k < depth; ++k) sum += row[k] * column[k];
        one.d[i] = sum;
    }
}

static void multiply(const std::vector<Products>& all) {
    std::map<unsigned long long, Side> m_sides, n_sides;  // by tile: as a rule all threads have the same ones
    for (const Products& one : all) {
        Side &m_side = m_sides[one.m_tile], &n_side = n_sides[one.n_tile];
        if (m_side.empty()) m_side = side_of(here(), one.m_tile, launch.m_along_k, 64);
        if (n_side.empty()) n_side = side_of(here(), one.n_tile, launch.n_along_k, one.columns);
        multiply(one, m_side, n_side);
    }
}

static void finish(long long before) {
    for (Warpgroup& group = warpgroup_here(); group.finished < before;) {
        if (group.groups.front().threads < 128) {
            __nanosleep(0);  // meanwhile another thread may finish it
            continue;
        }
        multiply(group.groups.front().products);
        group.groups.pop_front();
        ++group.finished;
    }
}

void multiply_later(float* d, int columns, unsigned long long m_tile, unsigned long long n_tile, bool accumulate) {
    warpgroup_here().said[threadIdx.x % 128].push_back({threadIdx.x, d, columns, m_tile, n_tile, accumulate});
}

void wait_for_products(int pending) {
    Warpgroup& group = warpgroup_here();
    long long& waited = group.waited[threadIdx.x % 128];
    waited = std::max(waited, group.committed[threadIdx.x % 128] - pending);
    finish(waited);
}

}  // namespace hopper

namespace ptx {

using hopper::here;

// -- barriers

void init_barrier(unsigned long long* barrier, unsigned int arrivals) {
    const unsigned int address = hopper::address_of(barrier);
    here().at(address, 8);
    here().barriers[address] = {arrivals, arrivals};
}
static void count_at(hopper::Block& block, const void* barrier, unsigned int bytes) {
    emulator::begin_atomic();
    block.count(hopper::address_of(barrier), 1, bytes);
}
void expect_bytes(unsigned long long* barrier, unsigned int bytes) {
    if (hopper::log == nullptr) return count_at(here(), barrier, bytes);
    hopper::log->push_back({hopper::EXPECT, nullptr, bytes, 0, 0, hopper::address_of(barrier), 0, 0});
}
void arrive(unsigned long long* barrier) { count_at(here(), barrier, 0); }
void arrive_after_copies(unsigned long long* barrier) {
    commit_copies();
    emulator::wait_copies(0);
    arrive(barrier);
}
void arrive_at(unsigned long long* barrier, unsigned int rank) {
    if (rank >= hopper::launch.cluster) hopper::fail("a block that is not in the cluster");
    count_at(hopper::block_at(hopper::first_of_cluster() + rank), barrier, 0);
}
void wait_barrier(unsigned long long* barrier, unsigned int parity) {
    if (hopper::log != nullptr) return;
    while (here().barrier(hopper::address_of(barrier)).phase == parity) {
        hopper::bring_some();
        __nanosleep(0);
    }
}
void named_barrier_sync(int barrier, int threads) {
    if (!hopper::alone) here().named[barrier].meet(threads);
}
void named_barrier_arrive(int barrier, int threads) {
    const hopper::Warpgroup& group = hopper::warpgroup_here();
    const long long committed = group.committed[threadIdx.x % 128];
    hopper::idle_arrivals += committed > 0 && committed == group.waited[threadIdx.x % 128];
    here().named[barrier].arrive(threads);
}

void cluster_arrive_relaxed() {
    hopper::Meeting& cluster = hopper::clusters[hopper::first_of_cluster()];
    here().arrived_at[threadIdx.x] = cluster.generation;
    cluster.arrive(hopper::launch.cluster * blockDim.x);
}
void cluster_wait() {
    while (hopper::clusters[hopper::first_of_cluster()].generation == here().arrived_at[threadIdx.x]) __nanosleep(0);
}

// -- from block to block

void send(const float* numbers, unsigned int there, unsigned int barrier_there) {
    hopper::Block* block = &hopper::block_at(hopper::first_of_cluster() + (there >> 24));
    uint4 bits;
    std::memcpy(&bits, numbers, 16);
    block->loads.push_back([=] {
        std::memcpy(block->at(there & 0xffffff, 16), &bits, 16);
        block->count(barrier_there & 0xffffff, 0, -16);
    });
}
void add_received(float* numbers, unsigned int from) {
    const float* received = reinterpret_cast<const float*>(here().at(from, 16));
    for (int i = 0; i < 4; ++i) numbers[i] += received[i];
}

// -- shared memory

uint4 read_shared_vector(unsigned int shared) { return *reinterpret_cast<const uint4*>(here().at(shared, 16)); }
unsigned int read_shared_pair(unsigned int shared) { return *reinterpret_cast<const unsigned int*>(here().at(shared, 4)); }

void store_matrices(unsigned int row, unsigned int a, unsigned int b, unsigned int c, unsigned int d) {
    emulator::show(&row, sizeof(row));
    const unsigned int pairs[4] = {a, b, c, d}, lane = emulator::lane();
    for (unsigned int i = 0; i < 4; ++i) {
        const unsigned int to = *static_cast<const unsigned int*>(emulator::seen(i * 8 + lane / 4));
        std::memcpy(here().at(to, 16) + lane % 4 * 4, &pairs[i], 4);
    }
    __syncwarp();
}
void store_transposed_matrices(unsigned int row, unsigned int a, unsigned int b, unsigned int c, unsigned int d) {
    emulator::show(&row, sizeof(row));
    const unsigned int pairs[4] = {a, b, c, d}, lane = emulator::lane();
    for (unsigned int i = 0; i < 8; ++i) {
        const unsigned int to = *static_cast<const unsigned int*>(emulator::seen(i / 2 * 8 + lane % 4 * 2 + i % 2));
        const unsigned short element = pairs[i / 2] >> i % 2 * 16;
        std::memcpy(here().at(to, 16) + lane / 4 * 2, &element, 2);
    }
    __syncwarp();
}
unsigned int transpose_8x8(unsigned int pair) {
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

void warpgroup_commit() {
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

}  // namespace ptx
