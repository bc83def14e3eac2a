// What sm90.hpp keeps of a launch; also for tests that look at it.
#pragma once

#include "sm90.hpp"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace hopper {

[[noreturn]] void fail(const char* what);

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
extern std::map<unsigned int, std::unique_ptr<Block>> blocks;

Block& block_at(unsigned int number);
inline Block& here() { return block_at(blockIdx.x); }
inline Warpgroup& warpgroup_here() { return here().warpgroups[threadIdx.x / 128]; }

// What a block asks for, where a test sets `log`: then nothing is copied, and nothing waited for.
struct Request {
    Kind kind;
    const Matrix* matrix;
    unsigned int shared;  // or the bytes that are expected
    int x, y;
    unsigned int barrier, blocks;
    int policy;  // 0 none, 1 evict first, 2 evict last
};
extern std::vector<Request>* log;

// An element of a tile as an instruction reads it: the bits of the number `k` deep in a row (or column) from the first on.
unsigned short bits_of(const Block& block, unsigned long long tile, bool along_k, int line, int k);

}  // namespace hopper
