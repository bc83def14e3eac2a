// Hopper's hardware as a test needs it, on top of the emulator: the tensor memory accelerator, barriers in shared memory, clusters, and
// warpgroup matrix instructions on swizzled tiles of bfloat16. Stands for the PTX of the kernels in templates/sm90.
//
// Before it, in namespace hopper: CLUSTER (blocks of a cluster), SHARED_BYTES (of a block), M_K_MAJOR and N_K_MAJOR (how the tiles of an
// instruction lie).
//
// Copies happen at once, and instructions, too: what is found is a wrong address, count, phase or order of blocks, and who waits for
// ever; not a missing wait for an instruction. 32-bit addresses are the low halves of the CPU's.
#include <map>

struct TensorMap;
using Barrier = unsigned long long;

namespace hopper {

// What a test's map holds: a matrix of bfloat16, the boxes that it is copied in, and whether they are swizzled.
struct Map {
    unsigned short* elements;
    long long rows, columns, box_rows, box_columns, swizzle;
};

struct Count {
    unsigned int expected;  // arrivals of a phase
    unsigned int missing;
    long long bytes;  // that are still to come
    unsigned int phase;
};

inline std::map<const void*, Count> barriers;
inline std::map<unsigned int, unsigned char*> memories;  // shared memory, by block
inline std::map<unsigned int, unsigned int> arrived;     // threads, by cluster
inline std::map<std::pair<unsigned int, int>, std::pair<int, int>> named;  // by block and number: how often it opened, and arrivals
inline unsigned int word = 0;

[[noreturn]] inline void fail(const char* what) {
    std::fprintf(stderr, "hopper: %s\n", what);
    __builtin_trap();
}

// Tells the emulator that this is no standstill.
inline void happens() { ptx::take(&word); }

// Lets other threads run until `over` says so.
template <typename Over>
void wait(Over over) {
    while (!over()) ptx::acquire_word(&word);
}

// The shared memory at an address of this block, or of any other.
inline unsigned char* at(unsigned int address, unsigned int bytes) {
    for (const auto& [block, memory] : memories) {
        const unsigned int offset = address - static_cast<unsigned int>(reinterpret_cast<std::size_t>(memory));
        if (offset < SHARED_BYTES) {
            if (offset + bytes > SHARED_BYTES) fail("an access behind shared memory");
            return memory + offset;
        }
    }
    fail("no block's shared memory");
}
inline unsigned char* mine() { return memories.at(blockIdx.x); }
// All blocks' shared memory begins at the same address on a GPU; here at any: what is compared begins at a multiple of 1024 bytes.
inline std::size_t origin(const void* memory) { return (reinterpret_cast<std::size_t>(memory) + 1023) / 1024 * 1024; }
template <typename Pointer>
Pointer in_block(Pointer pointer, unsigned int of_cluster) {
    const unsigned int block = blockIdx.x / CLUSTER * CLUSTER + of_cluster;
    if (of_cluster >= CLUSTER || !memories.count(block)) fail("a block that is not there");
    return reinterpret_cast<Pointer>(reinterpret_cast<std::size_t>(pointer) - origin(mine()) + origin(memories.at(block)));
}
inline unsigned int swizzled(unsigned int address) { return address ^ (address >> 7 & 7) << 4; }

inline void count(const void* barrier, unsigned int arrivals, long long bytes) {
    if (!barriers.count(barrier)) fail("a barrier that was not made");
    Count& one = barriers.at(barrier);
    if (arrivals > one.missing) fail("more arrivals than a barrier expects");
    one.missing -= arrivals;
    one.bytes += bytes;
    if (one.missing == 0 && one.bytes == 0) {
        one.missing = one.expected;
        one.phase ^= 1;
    }
    happens();
}

// Calls `each(address in shared memory, element of the matrix or null)` for all elements of a box.
template <typename Each>
void for_box(unsigned int shared, const TensorMap* map, int x, int y, Each each) {
    const Map& of = *reinterpret_cast<const Map*>(map);
    if (of.swizzle && shared % 1024) fail("a box begins where the swizzle does not");
    for (int row = 0; row < of.box_rows; ++row) {
        for (int column = 0; column < of.box_columns; ++column) {
            const bool inside = x + column < of.columns && y + row < of.rows;
            const unsigned int address = shared + (row * of.box_columns + column) * 2;
            each(of.swizzle ? swizzled(address) : address, inside ? of.elements + (y + row) * of.columns + x + column : nullptr);
        }
    }
}

inline void copy_box(unsigned int shared, const TensorMap* map, int x, int y, const Barrier* barrier, unsigned int of_cluster) {
    const Map& of = *reinterpret_cast<const Map*>(map);
    unsigned char* base = mine();
    const unsigned int distance = static_cast<unsigned int>(reinterpret_cast<std::size_t>(in_block(base, of_cluster)) -
                                                            reinterpret_cast<std::size_t>(base));
    for_box(shared, map, x, y, [&](unsigned int address, const unsigned short* element) {
        *reinterpret_cast<unsigned short*>(at(address + distance, 2)) = element ? *element : 0;
    });
    count(in_block(barrier, of_cluster), 0, -of.box_rows * of.box_columns * 2);
}

// Threads at one of a block's named barriers.
inline void meet(int number, int threads, bool stays) {
    const auto key = std::make_pair(blockIdx.x, number);
    const int before = named[key].first;
    if (++named[key].second == threads) named[key] = {before + 1, 0};
    happens();
    if (stays) wait([=] { return named[key].first != before; });
}

// A row (or column) of a tile that a descriptor names, `mn` from its first: 16 elements along k.
struct Line {
    float at[16];

    Line(unsigned long long descriptor, bool k_major, int mn) {
        const unsigned char* memory = mine();
        const unsigned int base = static_cast<unsigned int>(reinterpret_cast<std::size_t>(memory));
        const unsigned int start = base + ((static_cast<unsigned int>(descriptor & 0x3fff) << 4) - base & 0x3ffff);
        const unsigned int leading = (descriptor >> 16 & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
        for (int k = 0; k < 16; ++k) {
            const unsigned int address = k_major ? start + mn / 8 * stride + mn % 8 * 128 + k * 2
                                                 : start + mn / 64 * leading + mn % 64 * 2 + k / 8 * stride + k % 8 * 128;
            const unsigned int offset = swizzled(address) - base;
            if (offset + 2 > SHARED_BYTES) fail("an instruction reads behind shared memory");
            unsigned short bits;
            std::memcpy(&bits, memory + offset, 2);
            at[k] = __uint_as_float(static_cast<unsigned int>(bits) << 16);
        }
    }
};

}  // namespace hopper

namespace ptx {

// -- barriers

inline void init_barrier(Barrier* barrier, unsigned int arrivals) {
    hopper::memories[blockIdx.x] = emulator::dynamic_shared();
    hopper::barriers[barrier] = {arrivals, arrivals, 0, 0};
}
inline void expect_bytes(Barrier* barrier, unsigned int bytes) { hopper::count(barrier, 1, bytes); }
inline void arrive(Barrier* barrier) { hopper::count(barrier, 1, 0); }
inline void arrive_at(Barrier* barrier, unsigned int block) { hopper::count(hopper::in_block(barrier, block), 1, 0); }
inline void wait_barrier(Barrier* barrier, unsigned int parity) {
    hopper::wait([=] { return hopper::barriers.at(barrier).phase != (parity & 1); });
}
inline void named_barrier_sync(int barrier, int threads) { hopper::meet(barrier, threads, true); }
inline void named_barrier_arrive(int barrier, int threads) { hopper::meet(barrier, threads, false); }

// -- the tensor memory accelerator

inline void fetch_map(const TensorMap*) {}
inline void load_box(unsigned int shared, const TensorMap* map, int x, int y, Barrier* barrier, unsigned long long = 0) {
    hopper::copy_box(shared, map, x, y, barrier, blockIdx.x % hopper::CLUSTER);
}
inline void multicast_box(unsigned int shared, const TensorMap* map, int x, int y, Barrier* barrier, unsigned short blocks,
                          unsigned long long = 0) {
    for (unsigned int block = 0; block < 16; ++block) {
        if (blocks >> block & 1) hopper::copy_box(shared, map, x, y, barrier, block);
    }
}
inline void store_box(const TensorMap* map, int x, int y, unsigned int shared) {
    hopper::for_box(shared, map, x, y, [](unsigned int address, unsigned short* element) {
        if (element) *element = *reinterpret_cast<const unsigned short*>(hopper::at(address, 2));
    });
}
inline void fetch_box(const TensorMap*, int, int) {}
inline unsigned long long keep_last_out() { return 0; }

// -- clusters

inline unsigned int block_in_cluster() { return blockIdx.x % hopper::CLUSTER; }
inline unsigned int shared_of_block(unsigned int shared, unsigned int block) {
    return static_cast<unsigned int>(reinterpret_cast<std::size_t>(hopper::in_block(hopper::at(shared, 1), block)));
}
inline void cluster_arrive_relaxed() {
    ++hopper::arrived[blockIdx.x / hopper::CLUSTER];
    hopper::happens();
}
inline void cluster_wait() {
    hopper::wait([] { return hopper::arrived[blockIdx.x / hopper::CLUSTER] == hopper::CLUSTER * blockDim.x; });
}
inline void cluster_sync_relaxed() {
    cluster_arrive_relaxed();
    cluster_wait();
}
inline void send(const float* numbers, unsigned int there, unsigned int barrier_there) {
    std::memcpy(hopper::at(there, 16), numbers, 16);
    hopper::count(hopper::at(barrier_there, 8), 0, -16);
}
inline void wait_for_senders(Barrier* barrier) { wait_barrier(barrier, 0); }
inline void add_received(float* numbers, unsigned int from) {
    float received[4];
    std::memcpy(received, hopper::at(from, 16), 16);
    for (int i = 0; i < 4; ++i) numbers[i] += received[i];
}

// -- matrix instructions

template <int COUNT>
void wgmma(float (&d)[COUNT], unsigned long long m_tile, unsigned long long n_tile, int accumulate) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
    const hopper::Line rows[2] = {{m_tile, hopper::M_K_MAJOR, row}, {m_tile, hopper::M_K_MAJOR, row + 8}};
    for (int j = 0; j < COUNT; j += 4) {
        for (int of_pair = 0; of_pair < 2; ++of_pair) {
            const hopper::Line column(n_tile, hopper::N_K_MAJOR, j / 4 * 8 + lane % 4 * 2 + of_pair);
            for (int half = 0; half < 2; ++half) {
                float& sum = d[j + half * 2 + of_pair];
                if (!accumulate) sum = 0.0f;
                for (int k = 0; k < 16; ++k) sum += rows[half].at[k] * column.at[k];
            }
        }
    }
}
inline void warpgroup_arrive() {}
inline void warpgroup_commit() {}
// An instruction is the whole warpgroup's: none of its threads is behind it before all are.
template <int PENDING>
void warpgroup_wait() {
    hopper::meet(16 + threadIdx.x / 128, 128, true);
}
inline unsigned int transpose_8x8(unsigned int pair) {
    const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    const unsigned int first = __shfl_sync(~0u, pair, column * 4 + row / 2), second = __shfl_sync(~0u, pair, column * 4 + 4 + row / 2);
    return (first >> row % 2 * 16 & 0xffff) | (second >> row % 2 * 16) << 16;
}

template <int COUNT>
void warpgroup_reg_dealloc() {}
template <int COUNT>
void warpgroup_reg_alloc() {}

// -- shared memory

inline void store_matrices(unsigned int row, unsigned int a, unsigned int b, unsigned int c, unsigned int d) {
    const unsigned int pairs[4] = {a, b, c, d};
    for (int matrix = 0; matrix < 4; ++matrix) {
        const unsigned int to = __shfl_sync(~0u, row, matrix * 8 + threadIdx.x % 32 / 4) + threadIdx.x % 4 * 4;
        std::memcpy(hopper::at(to, 4), &pairs[matrix], 4);
    }
}
inline void store_transposed_matrices(unsigned int row, unsigned int a, unsigned int b, unsigned int c, unsigned int d) {
    store_matrices(row, transpose_8x8(a), transpose_8x8(b), transpose_8x8(c), transpose_8x8(d));
}
inline uint4 read_shared_vector(unsigned int shared) {
    uint4 vector;
    std::memcpy(&vector, hopper::at(shared, 16), 16);
    return vector;
}
inline unsigned int read_shared_pair(unsigned int shared) {
    unsigned int pair;
    std::memcpy(&pair, hopper::at(shared, 4), 4);
    return pair;
}

}  // namespace ptx
